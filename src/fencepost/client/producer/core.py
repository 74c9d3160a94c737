"""The producer's core: sending, flushing, transactions. The clients of `blocking` and `aio` use it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.arguments import Int32, Milliseconds
from fencepost.client.calling import Caller
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.tasks import within
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.background_abort import BackgroundAbort
from fencepost.client.producer.chunks import Chunk, Headers, OnDelivery
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_answers import UnreportedResult, committed_words
from fencepost.client.producer.transaction_states import ProducerTxnState
from fencepost.client.producer.transactions import ProducerTransactions
from fencepost.client.telemetry.reporting import ReportingCore
from fencepost.client.telemetry.standard_names import PRODUCER
from fencepost.client.types import GroupMetadata, K, OffsetAndMetadata, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    BufferFullError,
    ClosedError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RecordRejectedError,
    TransactionAbortableError,
    TransactionCommittedError,
    UsageError,
    without_traceback,
)
from fencepost.extras import require
from fencepost.process.at_exit import PATIENCE_AFTER_CTRL_C_MS

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("fencepost.client.producer")

T = TypeVar("T")

CUT_OFF_MS: Final = 1_000
FEW_MS: Final = 100  # a shorter timeout of flush() is probably meant in seconds, as in confluent-kafka
_OPEN = (ProducerTxnState.IN_TRANSACTION, ProducerTxnState.PREPARING)
_ENDS_BY_ABORT = (*_OPEN, ProducerTxnState.ABORTABLE_ERROR, ProducerTxnState.ABORTING)


class ProducerCore(ReportingCore):
    """A producer. Any thread may call `append`; everything else runs in the runtime."""

    ROLE = PRODUCER

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        wake: Callable[[Callable[[], object]], object],
        caller: Caller | None = None,
    ) -> None:
        """Create a producer.

        Args:
            cluster: The cluster's metadata and connections.
            config: The settings.
            wake: Runs a function in the runtime, from any thread and in the order of the calls.
            caller: Runs the application's functions; None: the runtime runs them.
        """
        self.cluster = cluster
        self.config = config
        self.closed = False
        runtime = cluster.runtime
        self._wake = wake

        def wake_later() -> None:
            """Wake the sender one turn later, so that a commit that follows at once closes the chunk before."""
            wake(lambda: wake(self.sender.wake))

        self.accumulator = Accumulator.of(config, runtime, wake=wake_later, in_runtime=wake)
        self.accumulator.check = self.check_sending
        self.sender = Sender(cluster, config, self.accumulator, caller=caller)
        self._has_hinted_unit = False
        self.transactions: ProducerTransactions | None = None
        self.background_abort: BackgroundAbort | None = None
        self.unreported = UnreportedResult()
        self._in_call = False  # a transactional call is in progress
        self._ended = runtime.event()  # close() has finished
        if config.transactional_id is not None:
            self.transactions = ProducerTransactions(cluster, self.sender, config)
            self.background_abort = BackgroundAbort(runtime, self.transactions)
            self.sender.transactions = self.transactions
            self.accumulator.refuse()
            self.accumulator.unhandled.enabled = False
        self.interceptors = self.sender.interceptors
        self.sender.start()
        self._start_reports()

    # --- sending ---

    @property
    def failure(self) -> KafkaError | None:
        """The error after which this producer can only be closed."""
        transactions = self.transactions
        if transactions is not None and transactions.state is ProducerTxnState.FATAL_ERROR:
            return transactions.error
        return self.sender.fatal

    def check_sending(self) -> None:
        """Raise the reason if records cannot be sent now."""
        if self.closed:
            raise ClosedError("the producer is closed")
        if self.sender.fatal is not None:
            raise without_traceback(self.sender.fatal)
        if self.transactions is not None:
            self.transactions.check_sending()

    @property
    def full(self) -> bool:
        """True if `send` has to wait for buffer space."""
        return self.accumulator.full

    async def wait_for_room(self) -> None:
        """Wait for space in buffer_memory.

        Raises:
            BufferFullError: After max_block_ms. The record was not accepted, so the same call may be made again.
            TransactionAbortableError: Instead, in a transaction, which lacks the record and cannot be committed.
        """
        deadline_ms = self.cluster.runtime.now_ms() + self.config.max_block_ms
        if not await self.sender.wait_for_room(deadline_ms):
            raise self.no_room(f"buffer_memory stayed full for {self.config.max_block_ms} ms")
        self.check_sending()

    def no_room(self, reason: str) -> KafkaError:
        """Return the error of a record that found no room, as `wait_for_room` raises it. Any thread may call it."""
        self.sender.metrics.buffer_exhausted_total += 1
        full = BufferFullError(reason)
        if self.transactions is None:
            return full
        self.not_taken(full)
        abortable = TransactionAbortableError(f"a record was not taken, abort the transaction, which lacks it: {full}")
        abortable.__cause__ = full
        return abortable

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: Int32 | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> tuple[Chunk, int]:
        """Accept a record without waiting."""
        if self.accumulator.refusing:
            self.check_sending()
        if not self.interceptors:
            return self.accumulator.append(topic, value, key, partition, headers, timestamp_ms, on_delivery)
        pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
        record = self.interceptors.send(OutgoingRecord(topic, value, key, partition, pairs, timestamp_ms))
        try:
            return self.accumulator.append(*record, on_delivery)
        except (KafkaError, TypeError) as error:  # also raised to the caller
            abortable = error if isinstance(error, KafkaError) else RecordRejectedError(str(error))
            self.interceptors.acknowledge(None, abortable)
            raise

    def not_taken(self, error: KafkaError) -> None:
        """Report that `send` rejected a record.

        As in Java, the transaction can then only be aborted. Any thread may call it.

        A value of a wrong type has no such effect, because no record was created.
        """
        if self.transactions is not None:
            self._wake(partial(self.transactions.batch_failed, error, False))

    def append_table(self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: Int32 | None) -> list[Chunk]:
        """Accept Arrow data without waiting, in chunks of a few megabytes per topic. Raises ConfigurationError."""
        require("arrow", "send_arrow")
        from fencepost.client.producer.arrow_input import pieces_of

        self.check_sending()
        if self.interceptors:
            raise UsageError("send_arrow would go past the producer's interceptors; use send, or a producer without")
        pieces = pieces_of(topic, data, partition)
        return [self.accumulator.append_table(name, piece, piece.nbytes) for name, piece in pieces]

    async def flush(self, timeout_ms: Milliseconds | None = None) -> None:
        """Wait until all records sent before are acknowledged or have failed.

        In a transaction failures are raised by the next transactional call instead.

        Args:
            timeout_ms: Maximum wait in ms; None: no limit.

        Raises:
            ProduceFailedError: Deliveries failed that the application has not examined. `records` is their number and
                `__cause__` the first reason.
            KafkaTimeoutError: `timeout_ms` expired.
        """
        deadline_ms = None if timeout_ms is None else self.cluster.runtime.now_ms() + timeout_ms
        seconds = timeout_ms is not None and 0 < timeout_ms < FEW_MS
        if seconds and not self._has_hinted_unit:
            self._has_hinted_unit = True
            log.warning("flush(%s) waits %s ms, not seconds as in other clients", timeout_ms, timeout_ms)
        if not await self.sender.flush(deadline_ms):
            hint = f"for {timeout_ms} seconds call flush({timeout_ms}000)" if seconds else ""
            raise self._late(f"not everything was delivered within {timeout_ms} ms", hint)
        self._raise_unhandled()

    def _late(self, operation: str, hint: str = "") -> KafkaTimeoutError:
        reason = self.cluster.lasting_errors.latest()
        words = [operation, self.sender.slow_calls.in_progress(), str(reason or ""), hint]
        late = KafkaTimeoutError("; ".join(filter(None, words)))
        late.__cause__ = reason
        return late

    def _raise_unhandled(self) -> None:
        """Raise the failures that the application has not examined."""
        unhandled = self.accumulator.unhandled
        unhandled.log(self.cluster.runtime.now_ms())
        failed = unhandled.take()
        if failed is not None:
            raise failed

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> int:
        """Drop records as Producer.purge does. It does not wait."""
        purged = self.sender.purge(in_queue=in_queue, in_flight=in_flight)
        log.info("purged %d records", purged)
        return purged

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's current partition numbers. Raises KafkaTimeoutError after max_block_ms."""
        deadline_ms = self.cluster.runtime.now_ms() + self.config.max_block_ms
        known = await self.cluster.topic(topic, deadline_ms, fresh=True)
        return sorted(known.partitions)

    async def close(self, timeout_ms: Milliseconds | None = 30_000) -> None:
        """Deliver pending records, abort an open transaction, and release all resources.

        Records that are not delivered in time fail. A prepared transaction and an unanswered commit stay as they are.
        It may be called again. A call during another one waits for it.

        Args:
            timeout_ms: Maximum wait in ms; 0: no wait; None: no limit.

        Raises:
            ProduceFailedError: Deliveries failed that the application has not examined.
            KafkaTimeoutError: The abort was not acknowledged, or the call before has not finished.
        """
        if self.closed:
            if timeout_ms != 0 and not await self._ended.wait(timeout_ms):
                raise KafkaTimeoutError(f"another close() of this producer has not finished within {timeout_ms} ms")
            return
        self.closed = True
        try:
            await self._close(timeout_ms)
        finally:
            self._ended.set()
        if self.transactions is None:
            self._raise_unhandled()

    async def _close(self, timeout_ms: int | None) -> None:
        """Deliver or abort in the given time, then release all resources. Raises KafkaTimeoutError."""
        self.accumulator.refuse()
        reason: KafkaError = ClosedError("the producer was closed before this record was delivered")
        begun_ms = self.cluster.runtime.now_ms()
        try:
            if self.background_abort is not None:
                await self.background_abort.stop()
            if timeout_ms == 0:
                pass
            elif self.transactions is None:
                deadline_ms = None if timeout_ms is None else begun_ms + timeout_ms
                if not await self.sender.flush(deadline_ms):
                    reason = self._late(f"not delivered within the {timeout_ms} ms that close() waited")
            elif self._ends_by_abort(self.transactions):
                await self._abort_at_the_end(self.transactions.abort(), timeout_ms)
            await self.telemetry.end(None if timeout_ms is None else begun_ms + timeout_ms)
        finally:
            self.sender.drop(reason)
            self.sender.stop(reason)
            self.telemetry.stop()
            self.cluster.close()
            # The closed connections end the requests.
            await self.sender.drain(self.cluster.runtime.now_ms() + CUT_OFF_MS)
            callbacks_by_ms = None if timeout_ms is None else begun_ms + timeout_ms + CUT_OFF_MS
            await self.sender.end_callbacks(callbacks_by_ms)
            await self.cluster.callbacks.end(callbacks_by_ms)

    def _ends_by_abort(self, transactions: ProducerTransactions) -> bool:
        """Return true if a transaction is open that cannot have been committed, and that nobody else decides."""
        if transactions.state is not ProducerTxnState.COMMITTING:
            return transactions.state in _ENDS_BY_ABORT
        is_sent = self._in_call or transactions.commit_unanswered  # or may be sent at any moment
        return not is_sent and transactions.prepared is None

    async def _abort_at_the_end(self, abort: Coroutine[Any, Any, None], timeout_ms: int | None) -> None:
        """Abort in the given time.

        Raises TransactionCommittedError, unless the block's consumer continues after the committed records anyway.
        """
        try:
            if timeout_ms is None:
                await abort
            else:
                await within(self.cluster.runtime, abort, timeout_ms, "the abort of the open transaction")
        except TransactionCommittedError as finding:
            if self.background_abort is None or self.background_abort.consumer is None:
                raise
            log.warning("%s; the consumer's group continues after it", finding)

    async def close_after(self, error: BaseException) -> None:
        """Close because of `error`, which the caller raises again.

        Errors of closing are logged and added to it as a note.
        After a cancellation or Ctrl-C it waits as briefly as the end of the program for an unclosed client.
        """
        try:
            await self.close(30_000 if isinstance(error, Exception) else PATIENCE_AFTER_CTRL_C_MS)
        except KafkaError as finding:
            log.error("closing after %s: %s", type(error).__name__, finding)
            error.add_note(f"closing the producer afterwards: {type(finding).__name__}: {finding}")

    async def leave(self, timeout_ms: int) -> None:
        """Close for an application that did not. Failures are only logged."""
        try:
            await self.close(timeout_ms)
        except ProduceFailedError as error:
            log.debug("at the end: %s", error)  # already logged by topic and cause

    def close_warning(self) -> str:
        """Return a text about the records that would be lost if the producer ended now, or ""."""
        count = 0 if self.closed else self.sender.undelivered
        return f"{counted_noun(count, 'record', 'were')} not delivered" if count else ""

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges, by Kafka's names in snake_case (see client.metrics). Any thread may call it."""
        found = self.sender.metrics.snapshot()
        found["requests_in_flight"] = self.sender.in_flight
        found["buffer_total_bytes"] = self.config.buffer_memory
        found["buffer_available_bytes"] = max(0, self.config.buffer_memory - self.accumulator.waiting_bytes)
        return found | self.cluster.links.metrics(self.cluster.nodes)

    # --- transactions ---

    def _transactional(self) -> ProducerTransactions:
        if self.closed:
            raise ClosedError("the producer is closed")
        if self.transactions is None:
            raise UsageError("this producer has no transactional_id")
        return self.transactions

    async def _alone(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a transactional call. Reject a second one at the same time."""
        if self.background_abort is not None:
            await self.background_abort.stop()
        self._check_alone()
        self._in_call = True
        try:
            return await call()
        finally:
            self._in_call = False

    def _check_alone(self) -> None:
        if self._in_call:
            raise UsageError("another transactional call of this producer has not finished")

    @property
    def is_in_call(self) -> bool:
        """True while a transactional call runs."""
        return self._in_call

    @property
    def transactions_begun(self) -> int:
        """Number of transactions begun. It excludes one whose begin_transaction() has not returned."""
        return self.sender.metrics.transaction_begin_total

    @property
    def is_ready(self) -> bool:
        """True if a transaction can begin."""
        return self.transactions is not None and self.transactions.state is ProducerTxnState.READY

    @property
    def is_in_transaction(self) -> bool:
        """True if a transaction is open and is neither prepared nor being ended."""
        return self.transactions is not None and self.transactions.state in _OPEN

    @property
    def abort_is_pending(self) -> bool:
        """True if an abort has begun and is not complete."""
        return self.transactions is not None and self.transactions.state is ProducerTxnState.ABORTING

    async def init_transactions(self, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Initialize the transactional id: fence earlier producers and abort their open transaction.

        Args:
            keep_prepared: Keep an open transaction and return it, for `complete_transaction` (KIP-939).

        Returns:
            The kept transaction, or None.

        Raises:
            UnsupportedVersionError: The broker does not support `keep_prepared`.
            ProducerFencedError: Another producer took over the transactional id.
            TransactionalIdAuthorizationError: The principal may not use the transactional id.
            KafkaTimeoutError: No response in time; call it again.
            FatalError: The producer has failed permanently.
        """
        transactions = self._transactional()
        if self.sender.stopped is not None:
            raise without_traceback(self.sender.stopped)
        self.unreported = UnreportedResult()
        return await self._alone(lambda: transactions.init(keep_prepared))

    def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises:
            UsageError: A transaction is open, or init_transactions() is missing.
            FatalError: The producer has failed permanently.
        """
        transactions = self._transactional()
        self._check_alone()
        transactions.begin()
        self.unreported = UnreportedResult()
        if self.background_abort is not None:
            self.background_abort.consumer = None  # the consumer of the block before
        self.sender.metrics.transaction_begin_total += 1

    async def commit_transaction(self) -> None:
        """Commit the transaction.

        After an interruption, as by Ctrl-C, the call can be repeated: it returns if the transaction is committed.

        Raises:
            TransactionCommitFailedError: The commit failed. Call abort_transaction(), then begin again.
            ApplicationRecoverableError: Create a new producer.
            FatalError: The producer has failed permanently.
        """
        transactions = self._transactional()
        if self.unreported.take():
            return
        await self._alone(transactions.commit)
        self.unreported.committed = True
        self.sender.metrics.transaction_commit_total += 1

    async def abort_transaction(self) -> None:
        """Abort the transaction. It is safe in every state.

        Raises:
            TransactionCommittedError: An earlier commit without a response had succeeded, or one that was interrupted.
            KafkaTimeoutError: No response in time; abort again.
            FatalError: The producer has failed permanently.
        """
        transactions = self._transactional()
        if self.unreported.take():
            raise TransactionCommittedError(committed_words(self.config.transactional_id or "", unanswered=True))
        try:
            await self._alone(transactions.abort)
        except TransactionCommittedError:
            self.unreported.committed = True
            raise
        self.sender.metrics.transaction_abort_total += 1

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[K, OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit consumer positions with the transaction.

        Args:
            offsets: Positions by partition.
            group: Result of consumer.group_metadata(), or a group id.

        Raises:
            GroupFencedError: The consumer is no longer in its group. Abort.
            AbortableError: The transaction failed, or no response arrived in time. Abort.
            FatalError: The producer has failed permanently.
        """
        transactions = self._transactional()
        positions = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
        whom = GroupMetadata(group) if isinstance(group, str) else group
        await self._alone(lambda: transactions.send_offsets(positions, whom))

    async def prepare_transaction(self) -> PreparedTransaction:
        """Prepare the transaction: flush, and store its name before completing it (KIP-939).

        From its call on, `send()` raises UsageError, in every thread. The transaction can only be completed, committed
        or aborted. After a cancellation the call can be repeated.

        Returns:
            The prepared transaction.

        Raises:
            KafkaError: As commit_transaction() raises.
        """
        transactions = self._transactional()
        return await self._alone(transactions.prepare)

    async def complete_transaction(self, prepared: PreparedTransaction | str) -> bool:
        """Complete a prepared transaction: commit it if `prepared` names it, else abort it.

        The call can be repeated after a cancellation, a TransactionCommitFailedError or a KafkaTimeoutError.

        Args:
            prepared: The prepared transaction whose commit is decided.

        Returns:
            True if it is committed, also if init_transactions(keep_prepared=True) found it committed already.

        Raises:
            PreparedTransactionLostError: The transaction was aborted, or its outcome is unknown.
            TransactionCommitFailedError: No response arrived.
            KafkaTimeoutError: No response arrived in time.
        """
        transactions = self._transactional()
        stored = PreparedTransaction.parse(prepared) if isinstance(prepared, str) else prepared
        self.unreported.take()
        committed = await self._alone(lambda: transactions.complete(stored))
        self.unreported.committed = committed
        return committed

    @property
    def producer_id(self) -> int:
        """The current producer id, or -1 before the first."""
        return self.sender.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, or -1 before the first."""
        return self.sender.epoch
