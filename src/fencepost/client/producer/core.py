"""The producer's core: sending, flushing, transactions. `blocking` and `aio` have the faces users see."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.arguments import Milliseconds
from fencepost.client.calling import Caller
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.tasks import within
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.chunks import Chunk, Headers, OnDelivery
from fencepost.client.producer.owed_abort import OwedAbort
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.transaction_states import TxnState
from fencepost.client.producer.transactions import Transactions
from fencepost.client.types import GroupMetadata, K, OffsetAndMetadata, TopicPartition
from fencepost.config import ProducerConfig
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
)
from fencepost.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("fencepost.client.producer")

T = TypeVar("T")

CUT_OFF_MS: Final = 1_000
_ENDS_BY_ABORT = (TxnState.IN_TRANSACTION, TxnState.ABORTABLE_ERROR, TxnState.ABORTING)


class ProducerCore:
    """One producer over one cluster view. `append` may be called from any thread, all else in the runtime."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        wake: Callable[[Callable[[], object]], object],
        caller: Caller | None = None,
    ) -> None:
        """`wake` runs a function in the runtime, from any thread and in the order of its calls; `caller` runs the
        application's functions (None: the runtime does)."""
        self.cluster = cluster
        self.config = config
        self.closed = False
        runtime = cluster.runtime
        self._wake = wake
        self.accumulator = Accumulator.of(config, runtime, wake=lambda: wake(self.sender.wake), in_runtime=wake)
        self.accumulator.check = self.check_sending
        self.sender = Sender(cluster, config, self.accumulator, caller=caller)
        self.transactions: Transactions | None = None
        self.owed_abort: OwedAbort | None = None
        self._in_call = False  # a transactional one
        if config.transactional_id is not None:
            self.transactions = Transactions(cluster, self.sender, config)
            self.owed_abort = OwedAbort(runtime, self.transactions)
            self.sender.transactions = self.transactions
            self.accumulator.refuse()
            self.accumulator.unhandled.enabled = False
        self.interceptors = self.sender.interceptors
        self.sender.start()

    # --- sending ---

    def check_sending(self) -> None:
        """Raise unless records are taken now."""
        if self.closed:
            raise ClosedError("the producer is closed")
        if self.sender.fatal is not None:
            raise self.sender.fatal.with_traceback(None)
        if self.transactions is not None:
            self.transactions.check_sending()

    @property
    def full(self) -> bool:
        """Whether `send` has to wait for room."""
        return self.accumulator.full

    async def wait_for_room(self) -> None:
        """Wait for room in buffer_memory.

        Raises:
            BufferFullError: After max_block_ms. The record was not taken, so the same call may be made again.
            TransactionAbortableError: Instead, in a transaction, which lacks the record and cannot be committed.
        """
        deadline_ms = self.cluster.runtime.now_ms() + self.config.max_block_ms
        if not await self.sender.wait_for_room(deadline_ms):
            raise self.no_room(f"buffer_memory stayed full for {self.config.max_block_ms} ms")
        self.check_sending()

    def no_room(self, why: str) -> KafkaError:
        """Make the error of a record that found no room, as `wait_for_room` raises it. From any thread."""
        self.sender.metrics.buffer_exhausted_total += 1
        full = BufferFullError(why)
        if self.transactions is None:
            return full
        self.not_taken(full)
        told = TransactionAbortableError(f"a record was not taken, abort the transaction, which lacks it: {full}")
        told.__cause__ = full
        return told

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> tuple[Chunk, int]:
        """Take a record without waiting."""
        if self.accumulator.refusing:
            self.check_sending()
        if not self.interceptors:
            return self.accumulator.append(topic, value, key, partition, headers, timestamp_ms, on_delivery)
        pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
        record = self.interceptors.send(OutgoingRecord(topic, value, key, partition, pairs, timestamp_ms))
        try:
            return self.accumulator.append(*record, on_delivery)
        except (KafkaError, TypeError) as error:  # the caller is told by the exception
            told = error if isinstance(error, KafkaError) else RecordRejectedError(str(error))
            self.interceptors.acknowledge(None, told)
            raise

    def not_taken(self, error: KafkaError) -> None:
        """`send` refused a record, from any thread: the transaction that lacks it can only be aborted, as in Java's.

        A value of the wrong type dooms nothing, there as here: no record was made of it.
        """
        if self.transactions is not None:
            self._wake(partial(self.transactions.batch_failed, error, False))

    def append_table(self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None) -> list[Chunk]:
        """Take Arrow data without waiting; a chunk for every few megabytes of a topic. Raises ConfigurationError."""
        require("arrow", "send_arrow")
        from fencepost.client.producer.arrow_input import pieces_of

        self.check_sending()
        if self.interceptors:
            raise UsageError("send_arrow would go past the producer's interceptors; use send, or a producer without")
        pieces = pieces_of(topic, data, partition)
        return [self.accumulator.append_table(name, piece, piece.nbytes) for name, piece in pieces]

    async def flush(self, timeout_ms: Milliseconds | None = None) -> None:
        """Wait until everything sent before has its fate.

        Raises ProduceFailedError for failures that nobody has looked at (`records`: how many; `__cause__`: the first
        cause), KafkaTimeoutError. In a transaction failures are told by the next transactional call instead.
        """
        deadline_ms = None if timeout_ms is None else self.cluster.runtime.now_ms() + timeout_ms
        if not await self.sender.flush(deadline_ms):
            raise self._late(f"not everything was delivered within {timeout_ms} ms")
        self._raise_unhandled()

    def _late(self, what: str) -> KafkaTimeoutError:
        reason = self.cluster.lasting_errors.latest()
        words = [what, self.sender.slow_calls.in_progress(), str(reason or "")]
        late = KafkaTimeoutError("; ".join(filter(None, words)))
        late.__cause__ = reason
        return late

    def _raise_unhandled(self) -> None:
        """Raise what nobody has looked at."""
        unhandled = self.accumulator.unhandled
        unhandled.log(self.cluster.runtime.now_ms())
        failed = unhandled.take()
        if failed is not None:
            raise failed

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partition numbers as they are now. Raises KafkaTimeoutError after max_block_ms."""
        deadline_ms = self.cluster.runtime.now_ms() + self.config.max_block_ms
        known = await self.cluster.topic(topic, deadline_ms, fresh=True)
        return sorted(known.partitions)

    async def close(self, timeout_ms: Milliseconds | None = 30_000) -> None:
        """Deliver what was sent (for at most `timeout_ms`), abort an open transaction, release everything.

        What is not delivered by then fails; 0 does not wait at all. Raises ProduceFailedError as `flush` does,
        KafkaTimeoutError when the abort of the transaction was not answered. A prepared transaction and an unanswered
        commit are left as they are. May be called again.
        """
        if self.closed:
            return
        self.closed = True
        self.accumulator.refuse()
        reason: KafkaError = ClosedError("the producer was closed before this record was delivered")
        begun_ms = self.cluster.runtime.now_ms()
        try:
            if self.owed_abort is not None:
                await self.owed_abort.stop()
            if timeout_ms == 0:
                pass
            elif self.transactions is None:
                deadline_ms = None if timeout_ms is None else begun_ms + timeout_ms
                if not await self.sender.flush(deadline_ms):
                    reason = self._late(f"not delivered within the {timeout_ms} ms that close() waited")
            elif self.transactions.state in _ENDS_BY_ABORT:
                await self._abort_at_the_end(self.transactions.abort(), timeout_ms)
        finally:
            self.sender.drop(reason)
            self.sender.stop(reason)
            self.cluster.close()
            await self.sender.drain(self.cluster.runtime.now_ms() + CUT_OFF_MS)  # the closed connections end them
            await self.sender.end_callbacks(None if timeout_ms is None else begun_ms + timeout_ms + CUT_OFF_MS)
        if self.transactions is None:
            self._raise_unhandled()

    async def _abort_at_the_end(self, abort: Coroutine[Any, Any, None], timeout_ms: int | None) -> None:
        """What turns out to be committed is raised, unless the consumer of its block will read on behind it anyway."""
        try:
            if timeout_ms is None:
                await abort
            else:
                await within(self.cluster.runtime, abort, timeout_ms, "the abort of the open transaction")
        except TransactionCommittedError as finding:
            if self.owed_abort is None or self.owed_abort.consumer is None:
                raise
            log.warning("%s; its consumer's group goes on behind it", finding)

    async def close_after(self, error: BaseException) -> None:
        """Close because of `error`, which the caller raises again: what closing has to say is logged and noted on it.

        After a cancellation or Ctrl-C nothing is waited for.
        """
        try:
            await self.close(30_000 if isinstance(error, Exception) else 0)
        except KafkaError as finding:
            log.error("closing after %s: %s", type(error).__name__, finding)
            error.add_note(f"closing the producer afterwards: {type(finding).__name__}: {finding}")

    async def leave(self, timeout_ms: int) -> None:
        """Close for an application that forgot to: what fails is only logged."""
        try:
            await self.close(timeout_ms)
        except ProduceFailedError as error:
            log.debug("at the end: %s", error)  # was logged by topic and cause

    def unsaid(self) -> str:
        """What is lost if the producer ends right now."""
        count = 0 if self.closed else self.sender.undelivered
        return f"{count} records were not delivered" if count else ""

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Kafka's names in snake_case (see client.metrics); cheap, from any thread."""
        found = self.sender.metrics.snapshot()
        found["requests_in_flight"] = self.sender.in_flight
        found["buffer_total_bytes"] = self.config.buffer_memory
        found["buffer_available_bytes"] = max(0, self.config.buffer_memory - self.accumulator.waiting_bytes)
        return found

    # --- transactions ---

    def _transactional(self) -> Transactions:
        if self.closed:
            raise ClosedError("the producer is closed")
        if self.transactions is None:
            raise UsageError("this producer has no transactional_id")
        return self.transactions

    async def _alone(self, call: Callable[[], Awaitable[T]]) -> T:
        """One transactional call; a second one at the same time is refused."""
        if self.owed_abort is not None:
            await self.owed_abort.stop()
        if self._in_call:
            raise UsageError("another transactional call of this producer has not finished")
        self._in_call = True
        try:
            return await call()
        finally:
            self._in_call = False

    @property
    def is_in_call(self) -> bool:
        """Whether a transactional call has not finished."""
        return self._in_call

    @property
    def transactions_begun(self) -> int:
        """How many transactions were begun, without one whose begin_transaction() has not returned."""
        return self.sender.metrics.transaction_begin_total

    @property
    def is_ready(self) -> bool:
        """Whether a transaction can be begun."""
        return self.transactions is not None and self.transactions.state is TxnState.READY

    @property
    def is_in_transaction(self) -> bool:
        """Whether one is open, and nothing ends it yet."""
        return self.transactions is not None and self.transactions.state is TxnState.IN_TRANSACTION

    @property
    def abort_is_owed(self) -> bool:
        """Whether an abort was begun and is not done."""
        return self.transactions is not None and self.transactions.state is TxnState.ABORTING

    async def init_transactions(self, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Claim the transactional id: earlier producers are fenced, what they left open is aborted.

        With `keep_prepared` (KIP-939) an open transaction is kept instead and returned, to be given to
        `complete_transaction`; it needs a broker that can (UnsupportedVersionError). Raises ProducerFencedError,
        TransactionalIdAuthorizationError, KafkaTimeoutError (call it again), and what has ended the producer's sender.
        """
        transactions = self._transactional()
        if self.sender.stopped is not None:
            raise self.sender.stopped.with_traceback(None)
        return await self._alone(lambda: transactions.init(keep_prepared))

    def begin_transaction(self) -> None:
        """Open a transaction. Raises UsageError, or what broke the producer for good."""
        self._transactional().begin()
        if self.owed_abort is not None:
            self.owed_abort.consumer = None  # of the block before
        self.sender.metrics.transaction_begin_total += 1

    async def commit_transaction(self) -> None:
        """Commit. Raises CommitFailedError (abort_transaction(), then begin again) or a fatal error, nothing else."""
        transactions = self._transactional()
        await self._alone(transactions.commit)
        self.sender.metrics.transaction_commit_total += 1

    async def abort_transaction(self) -> None:
        """Abort; always safe to call. See Transactions.abort for what it raises."""
        transactions = self._transactional()
        await self._alone(transactions.abort)
        self.sender.metrics.transaction_abort_total += 1

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[K, OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit consumer positions with the transaction. `group`: consumer.group_metadata(), or a bare group id.

        Raises GroupFencedError and other AbortableErrors (also when no answer came in time: abort), or a fatal error.
        """
        transactions = self._transactional()
        positions = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
        whom = GroupMetadata(group) if isinstance(group, str) else group
        await self._alone(lambda: transactions.send_offsets(positions, whom))

    async def prepare_transaction(self) -> PreparedTransaction:
        """First phase of two: flush; then only complete, commit or abort. Raises as commit_transaction does."""
        transactions = self._transactional()
        return await self._alone(transactions.prepare)

    async def complete_transaction(self, prepared: PreparedTransaction | str) -> bool:
        """Second phase: commit if `prepared` names the transaction prepared here, else abort it. True: committed.

        True as well when init_transactions(keep_prepared=True) found it committed. PreparedTransactionLostError when it
        found nothing open and it was aborted (timed out), or nobody can tell what became of it.
        Cancelled or unanswered (CommitFailedError, KafkaTimeoutError), it can be repeated until it says how it ended.
        """
        transactions = self._transactional()
        stored = PreparedTransaction.parse(prepared) if isinstance(prepared, str) else prepared
        return await self._alone(lambda: transactions.complete(stored))

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before the first."""
        return self.sender.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before the first."""
        return self.sender.epoch
