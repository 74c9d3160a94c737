"""Repeats an abort that the coordinator did not answer, because an open transaction blocks committed readers."""

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
    """The transaction's interface to the consumer whose positions it commits."""

    def check_for_transactions(self) -> None:
        """Raise ConfigurationError or UsageError unless positions are committed only in transactions."""
        ...

    def take_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit, and mark them as possibly committed. Raises GroupFencedError."""
        ...

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's identity in its group."""
        ...

    def forget_positions(self) -> None:
        """Make the next poll start at the committed positions. Does no I/O and cannot fail."""
        ...

    def transaction_ended(self, committed: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """Record the result of the positions taken last: `committed` has them, or is None if they are not committed."""
        ...


class BackgroundAbort:
    """An abort that was not answered, repeated until it is. Each transactional producer has one instance."""

    def __init__(self, runtime: Runtime, transactions: ProducerTransactions) -> None:
        self.consumer: TransactionalConsumer | None = None  # consumer of the block whose abort is outstanding
        self.committed: TransactionCommittedError | None = None  # the transaction was committed; not reported yet
        self._runtime = runtime
        self._transactions = transactions
        self._task: TaskHandle | None = None
        self._stopped: TaskHandle | None = None  # the last task that was cancelled

    @property
    def is_running(self) -> bool:
        """True while the abort is attempted. Afterwards `committed` has the result."""
        return self._task is not None and not self._task.done()

    def start(self, *, at_once: bool = False) -> None:
        """Abort in the background. With `at_once`, the first attempt is made without waiting."""
        if not self.is_running:
            self._task = self._runtime.spawn(self._run(at_once=at_once))

    async def stop(self) -> None:
        """End the attempts in the background, because the caller aborts itself. Return when none is running."""
        task = self._task
        if task is None:
            return
        if task is not self._stopped:  # a second cancellation would interrupt the task's clean-up
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
