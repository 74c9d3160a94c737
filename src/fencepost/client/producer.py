"""The producer's core: sending, flushing, transactions. `blocking` and `aio` have the faces users see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fencepost.client.accumulator import Accumulator, Chunk, OnDelivery
from fencepost.client.cluster import Cluster
from fencepost.client.interceptors import Interceptors, OutgoingRecord
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.sender import Sender
from fencepost.client.tasks import within
from fencepost.client.transactions import Transactions
from fencepost.client.txn_states import TxnState
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import BufferFullError, ClosedError, KafkaError, KafkaTimeoutError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("fencepost.client.producer")

_ENDS_BY_ABORT = (TxnState.IN_TRANSACTION, TxnState.ABORTABLE_ERROR, TxnState.ABORTING)


class ProducerCore:
    """One producer over one cluster view. `append` may be called from any thread, all else in the runtime."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        lock: AbstractContextManager[Any],
        wake: Callable[[Callable[[], object]], object],
    ) -> None:
        """`lock` guards what `append` touches; `wake` runs a function in the runtime, from any thread."""
        self.cluster = cluster
        self.config = config
        self.closed = False
        runtime = cluster.runtime
        self.accumulator = Accumulator(
            lock=lock,
            wake=lambda: wake(self.sender.wake),
            now_ms=runtime.now_ms,
            wall_ms=runtime.wall_ms,
            chunk_bytes=min(config.batch_size, config.max_request_size),
            max_record_bytes=config.max_request_size,
            buffer_bytes=config.buffer_memory,
        )
        self.sender = Sender(cluster, config, self.accumulator)
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.transactions = Transactions(cluster, self.sender, config)
            self.sender.transactions = self.transactions
            self.accumulator.refuse()
        self.interceptors = Interceptors(config.interceptors)
        self.sender.start()

    # --- sending ---

    def check_sending(self) -> None:
        """Raise unless records are taken now."""
        if self.closed:
            raise ClosedError("the producer is closed")
        if self.sender.fatal is not None:
            raise self.sender.fatal
        if self.transactions is not None:
            self.transactions.check_sending()

    @property
    def full(self) -> bool:
        """Whether `send` has to wait for room."""
        return self.accumulator.full

    async def wait_for_room(self) -> None:
        """Wait for room in buffer_memory. Raises BufferFullError after max_block_ms."""
        deadline_ms = self.cluster.runtime.now_ms() + self.config.max_block_ms
        if not await self.sender.wait_for_room(deadline_ms):
            self.sender.metrics.buffer_exhausted_total += 1
            raise BufferFullError(f"buffer_memory stayed full for {self.config.max_block_ms} ms")
        self.check_sending()

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> tuple[Chunk, int]:
        """Take a record without waiting."""
        if self.accumulator.slow:
            self.check_sending()
        if self.interceptors:
            record = self.interceptors.send(OutgoingRecord(topic, value, key, partition, headers, timestamp_ms))
            tell = self.interceptors.acknowledging(on_delivery)
            try:
                return self.accumulator.append(*record_fields(record), tell)
            except KafkaError as error:
                self.interceptors.acknowledging(None)(error, None)  # the caller is told by the exception
                raise
        return self.accumulator.append(topic, value, key, partition, headers, timestamp_ms, on_delivery)

    def append_table(self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None) -> list[Chunk]:
        """Take Arrow data without waiting; a chunk for every few megabytes of a topic. Raises ConfigurationError."""
        from fencepost.client.arrow_input import by_topic, check_table, in_pieces

        self.check_sending()
        parts = by_topic(data) if topic is None else [(topic, data)]
        tables = [(name, check_table(part, partition)) for name, part in parts if len(part)]
        return [
            self.accumulator.append_table(name, piece, piece.nbytes)
            for name, table in tables
            for piece in in_pieces(table)
        ]

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent before has its fate. Raises KafkaTimeoutError."""
        deadline_ms = None if timeout_ms is None else self.cluster.runtime.now_ms() + round(timeout_ms)
        if not await self.sender.flush(deadline_ms):
            raise KafkaTimeoutError(f"not everything was delivered within {timeout_ms} ms")

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partition numbers. Raises KafkaTimeoutError after max_block_ms."""
        known = await self.cluster.topic(topic, self.cluster.runtime.now_ms() + self.config.max_block_ms)
        return sorted(known.partitions)

    async def close(self, timeout_ms: float | None = 30_000) -> None:
        """Deliver what was sent (for at most `timeout_ms`), abort an open transaction, release everything.

        What is not delivered by then fails, and KafkaTimeoutError is raised; 0 does not wait at all. A prepared
        transaction and an unanswered commit are left as they are. May be called again.
        """
        if self.closed:
            return
        self.closed = True
        self.accumulator.refuse()
        try:
            if timeout_ms == 0:
                return
            if self.transactions is None:
                await self.flush(timeout_ms)
            elif self.transactions.state in _ENDS_BY_ABORT:
                abort = self.transactions.abort()
                if timeout_ms is None:
                    await abort
                else:
                    await within(self.cluster.runtime, abort, timeout_ms, "the abort of the open transaction")
        finally:
            self.sender.drop(ClosedError("the producer was closed"))
            self.sender.stop()
            self.cluster.close()
            self.interceptors.close()

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

    async def init_transactions(self, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Claim the transactional id: earlier producers are fenced, what they left open is aborted.

        With `keep_prepared` (KIP-939) an open transaction is kept instead and returned, to be given to
        `complete_transaction`; it needs a broker that can (UnsupportedVersionError). Raises ProducerFencedError,
        TransactionalIdAuthorizationError, KafkaTimeoutError (call it again).
        """
        transactions = self._transactional()
        kept: list[PreparedTransaction | None] = []

        async def call() -> None:
            kept.append(await transactions.init(keep_prepared))

        await transactions.exclusively(call)
        return kept[0]

    def begin_transaction(self) -> None:
        """Open a transaction. Raises UsageError, or what broke the producer for good."""
        self._transactional().begin()
        self.sender.metrics.transaction_begin_total += 1

    async def commit_transaction(self) -> None:
        """Commit. Raises CommitFailedError (abort_transaction(), then begin again) or a fatal error, nothing else."""
        transactions = self._transactional()
        await transactions.exclusively(transactions.commit)
        self.sender.metrics.transaction_commit_total += 1

    async def abort_transaction(self) -> None:
        """Abort; always safe to call. See Transactions.abort for what it raises."""
        transactions = self._transactional()
        await transactions.exclusively(transactions.abort)
        self.sender.metrics.transaction_abort_total += 1

    async def abort_after(self, error: BaseException) -> None:
        """Abort because of `error`, which the caller raises again.

        Nothing may take the place of a cancellation or Ctrl-C: what the abort has to say is then only logged, above all
        that the commit which was cut short had taken effect.
        """
        try:
            await self.abort_transaction()
        except KafkaError as finding:
            if isinstance(error, Exception):
                raise
            log.warning(
                "after %s in a transaction of %r: %s", type(error).__name__, self.config.transactional_id, finding
            )

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit consumer positions with the transaction. `group`: consumer.group_metadata(), or a bare group id.

        Raises GroupFencedError and other AbortableErrors, KafkaTimeoutError (abort), or a fatal error.
        """
        transactions = self._transactional()
        positions = {
            TopicPartition(*one): OffsetAndMetadata(at) if isinstance(at, int) else at for one, at in offsets.items()
        }
        whom = GroupMetadata(group) if isinstance(group, str) else group
        await transactions.exclusively(lambda: transactions.send_offsets(positions, whom))

    async def prepare_transaction(self) -> PreparedTransaction:
        """First phase of two: flush; then only complete, commit or abort. Raises as commit_transaction does."""
        transactions = self._transactional()
        found: list[PreparedTransaction] = []

        async def call() -> None:
            found.append(await transactions.prepare())

        await transactions.exclusively(call)
        return found[0]

    async def complete_transaction(self, prepared: PreparedTransaction | str) -> bool:
        """Second phase: commit if `prepared` names the transaction prepared here, else abort it. True: committed.

        False as well when init_transactions(keep_prepared=True) found nothing open: it had been completed.
        """
        transactions = self._transactional()
        wanted = PreparedTransaction.parse(prepared) if isinstance(prepared, str) else prepared
        done: list[bool] = []

        async def call() -> None:
            done.append(await transactions.complete(wanted))

        await transactions.exclusively(call)
        return done[0]

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before there is one."""
        return self.sender.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before there is one."""
        return self.sender.epoch


def record_fields(
    record: OutgoingRecord,
) -> tuple[str, bytes | None, bytes | None, int | None, Sequence[tuple[str, bytes | None]] | None, int | None]:
    """In the order that `append` takes."""
    return record.topic, record.value, record.key, record.partition, record.headers, record.timestamp_ms
