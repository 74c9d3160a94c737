"""An abort that the coordinator did not answer: it is asked again, as later records are held up until it is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from fencepost.client.net.runtime import Runtime, TaskHandle
from fencepost.client.producer.transaction_states import ProducerTxnState
from fencepost.client.producer.transactions import ProducerTransactions
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.errors import KafkaError, RetriableError, TransactionCommittedError

log = logging.getLogger("fencepost.client.producer")

ASK_AGAIN_MS: Final = 500


class TransactionalConsumer(Protocol):
    """The consumer whose positions a transaction commits, as far as the transaction uses it."""

    def check_for_transactions(self) -> None:
        """Raise ConfigurationError, UsageError unless positions can be committed in transactions only."""
        ...

    def take_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions to commit; from now on they may be committed. Raises GroupFencedError."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """Return its identity in its group."""
        ...

    def forget_positions(self) -> None:
        """The next poll goes back to what is committed. No I/O, cannot fail."""
        ...

    def transaction_ended(self, committed: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """It is certain that the positions taken last are committed: these; or None, that they are not."""
        ...


class OwedAbort:
    """An abort that was not answered, tried again until it is. A producer has one of these."""

    def __init__(self, runtime: Runtime, transactions: ProducerTransactions) -> None:
        self.consumer: TransactionalConsumer | None = None  # of the block that owes it
        self.committed: TransactionCommittedError | None = None  # it was committed instead; not reported yet
        self._runtime = runtime
        self._transactions = transactions
        self._task: TaskHandle | None = None
        self._stopped: TaskHandle | None = None  # the last one that was cancelled

    @property
    def is_running(self) -> bool:
        """True while the abort is attempted. Afterwards `committed` has the result."""
        return self._task is not None and not self._task.done()

    def start(self, *, at_once: bool = False) -> None:
        """Abort in the background; `at_once`: it has not been tried yet."""
        if not self.is_running:
            self._task = self._runtime.spawn(self._run(at_once=at_once))

    async def stop(self) -> None:
        """End the attempts in the background, because the caller aborts itself. Returns when none runs any more."""
        task = self._task
        if task is None:
            return
        if task is not self._stopped:  # a second cancellation would cut short how it ends
            self._stopped = task
            task.cancel()
        while not task.done():
            await self._runtime.sleep_ms(1)

    async def _run(self, *, at_once: bool) -> None:
        while at_once or self._transactions.state is ProducerTxnState.ABORTING:
            if not at_once:
                await self._runtime.sleep_ms(ASK_AGAIN_MS)
            at_once = False
            try:
                await self._transactions.abort()
            except RetriableError as error:
                log.warning("still trying to abort the transaction: %s", error)
            except TransactionCommittedError as error:
                self.committed = error
                log.warning("instead of an abort: %s", error)
            except KafkaError as error:
                log.warning("the abort failed, the next call raises this: %s", error)
