"""The block `with producer.transaction(consumer):`, for the blocking and the asyncio clients.

If the commit is not known to have succeeded, the consumer forgets its positions as soon as the block ends. An abort may
fail, be interrupted or stay unanswered. The next poll reads the group's committed positions, and waits while the
outcome is open. An unanswered abort is repeated in the background, because until then committed readers cannot read
later records of these partitions.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final

from fencepost.client.producer.background_abort import TransactionalConsumer
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import OffsetAndMetadata, TopicPartition
from fencepost.errors import (
    KafkaError,
    RetriableError,
    TransactionAbortableError,
    TransactionCommitFailedError,
    TransactionCommittedError,
    UsageError,
)

log = logging.getLogger("fencepost.client.producer")

ENTERED_TWICE: Final = "this transaction() block has not ended, so it cannot be entered again"


class TransactionBlock:
    """One use of `transaction()`: finish the block before and begin; then commit, or forget positions and abort."""

    def __init__(self, producer: ProducerCore, consumer: TransactionalConsumer | None) -> None:
        self._producer = producer
        self._consumer = consumer
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committing = False
        self._number: int | None = None  # number of this block's transaction, among all that the producer has begun

    @property
    def is_open(self) -> bool:
        """True if its transaction has begun and is not being ended. Any thread may read it."""
        # Incremented after the transaction begins; a signal handler may run in between.
        begun = self._producer.transactions_begun
        return self._number in (begun, begun + 1) and self._producer.is_in_transaction

    async def __aenter__(self) -> None:
        """Begin the transaction.

        Raises:
            ConfigurationError: The consumer's settings do not fit transactions.
            UsageError: A transaction is open, or init_transactions() is missing.
            TransactionAbortableError: The abort of an earlier block is not complete. Try again.
            KafkaError: The error that ended the producer.
        """
        try:
            if self._must_settle:
                await self._settle()
            self._begin()
        except BaseException:
            self._forget()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._fail(error)
            return
        try:
            await self._commit()
        except BaseException as failure:
            if not await self._fail(failure):
                raise

    def abandon(self) -> None:
        """Abort a block that a signal handler's exception left without its `__aexit__`. Runs in the runtime."""
        abort = self._producer.background_abort
        if abort is None or not self.is_open or self._producer.is_in_call:
            return
        log.warning("a transaction() block ended without its end, because of a signal handler: it is aborted")
        self._forget()
        abort.consumer = self._consumer
        abort.start(at_once=True)

    async def _fail(self, error: BaseException) -> bool:
        self._forget()
        return await self._abort(error)

    @property
    def _must_settle(self) -> bool:
        """True if the abort of an earlier block is not complete, or its result was not reported.

        Any thread may read it.
        """
        abort = self._producer.background_abort
        return self._producer.abort_is_pending or (
            abort is not None and (abort.is_running or abort.committed is not None)
        )

    async def _settle(self) -> None:
        """Finish the abort of an earlier block.

        Raises:
            TransactionAbortableError: The coordinator does not answer yet.
            TransactionCommittedError: That block was committed. Not raised if it had the same consumer, which continues
                after it.
            FatalError: The producer has failed permanently.
        """
        abort = self._producer.background_abort
        if abort is None:
            return
        await abort.stop()
        committed, abort.committed = abort.committed, None
        if self._producer.abort_is_pending:
            try:
                await self._producer.abort_transaction()
            except TransactionCommittedError as error:
                committed = error
            except RetriableError as error:
                abort.start()
                raise TransactionAbortableError(f"the abort of the transaction before is not done: {error}") from error
        if committed is None:
            return
        if self._consumer is None or self._consumer is not abort.consumer:
            raise committed
        log.warning("%s; the consumer continues after it", committed)

    def _begin(self) -> None:
        if self._consumer is not None:
            self._consumer.check_for_transactions()
        self._number = self._producer.transactions_begun + 1 if self._producer.is_ready else None
        self._producer.begin_transaction()

    async def _commit(self) -> None:
        """Commit the consumer's positions and the transaction. Raises as the producer's calls do."""
        if self._consumer is not None:
            self._positions = self._consumer.take_positions()
            await self._producer.send_offsets_to_transaction(self._positions, self._consumer.group_metadata())
        self._committing = True
        await self._producer.commit_transaction()
        self._report_committed()

    def _report_committed(self) -> None:
        if self._consumer is not None:
            self._consumer.transaction_ended(self._positions)

    def _forget(self) -> None:
        """Make the consumer forget its positions. First step after a failure: does no I/O and cannot fail."""
        if self._consumer is not None:
            self._consumer.forget_positions()

    async def _abort(self, error: BaseException) -> bool:
        """Abort because of `error`, which the caller then raises. Return true if the transaction was committed instead.

        Raises an error that is worse than `error`: a fatal one, or one that requires a new producer. After a
        cancellation or Ctrl-C it only logs such an error, so that the caller raises the original.
        """
        try:
            await self._producer.abort_transaction()
        except TransactionCommittedError as finding:
            if self._committing and isinstance(error, TransactionCommitFailedError):
                log.warning("a commit without an answer had taken effect")
                self._report_committed()
                return True
            self._more_severe(error, finding)
        except RetriableError as finding:
            self._abort_in_background(error, finding)
        except UsageError as finding:
            log.warning("no abort after %s in a transaction: %s", type(error).__name__, finding)
        except KafkaError as finding:
            if finding is not error:
                self._more_severe(error, finding)
        else:
            if self._consumer is not None:
                self._consumer.transaction_ended(None)
            if isinstance(error, TransactionCommitFailedError):
                error.outcome_unknown = False
        return False

    def _more_severe(self, error: BaseException, finding: KafkaError) -> None:
        if isinstance(error, Exception):
            raise finding
        log.warning("after %s in a transaction: %s", type(error).__name__, finding)

    def _abort_in_background(self, error: BaseException, finding: KafkaError) -> None:
        error.add_note("the transaction is not aborted yet: the coordinator did not answer; it is asked again")
        log.warning("the abort after %s was not answered, trying again: %s", type(error).__name__, finding)
        abort = self._producer.background_abort
        if abort is not None:
            abort.consumer = self._consumer
            abort.start()
