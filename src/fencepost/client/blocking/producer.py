"""The blocking producer: a ProducerCore in the I/O thread."""

from __future__ import annotations

import functools
import queue
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import fencepost.client.blocking as clients  # loads the consumer when a call names it
from fencepost.arguments import NUMBER, Int32, Milliseconds, checked, prepared
from fencepost.client.blocking.base import BlockingClient, blocking, cluster_for
from fencepost.client.blocking.own_thread import OwnThread
from fencepost.client.blocking.transaction import BlockingTransaction
from fencepost.client.coding import Codec, Parts, listed, serializers
from fencepost.client.configured import configured_by
from fencepost.client.net.io_thread import io_thread
from fencepost.client.producer.arrow_results import AppendedRun, bulk_result, bulk_text, release_undone
from fencepost.client.producer.chunks import EVERY_ROW, RECORD_OVERHEAD, Chunk, Headers, OnDelivery
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata
from fencepost.config import ProducerConfig
from fencepost.errors import KafkaError, KafkaTimeoutError, RecordRejectedError, without_traceback
from fencepost.process.signal_waits import WaitQueue

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
R = TypeVar("R")


class _Progress:
    """Reports of the I/O thread for a waiting thread.

    It does not use `threading.Event`, whose lock the waiting thread holds briefly. A signal handler that flushes in
    such a moment would wait for the I/O thread, which would wait for the lock.
    """

    def __init__(self, timeout_s: float | None) -> None:
        """Start the time limit. `timeout_s` limits all waits together; None: no limit."""
        self._reports: WaitQueue[None] = WaitQueue()
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s

    def report(self) -> None:
        """Wake the waiting thread. Any thread may call it."""
        self._reports.put(None)

    def wait(self) -> bool:
        """Wait for the next report. Return false if the time limit passed first."""
        left_s = None if self._until_s is None else max(self._until_s - time.monotonic(), 0.0)
        try:
            self._reports.get(left_s)
        except queue.Empty:
            return False
        return True


class Delivery(tuple[Chunk, int]):
    """A record in delivery. It may be dropped; `result()` waits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self[0].text("Delivery", self[1])

    def done(self) -> bool:
        """Return true if the record has been acknowledged or has failed."""
        return self[0].outcome(self[1]) is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait, and return the record's partition and offset.

        Args:
            timeout_s: Maximum wait in seconds; None: no limit.

        Raises:
            ProduceFailedError: The record was not delivered.
            KafkaTimeoutError: `timeout_s` expired. The delivery continues.
        """
        outcome = self._wait(timeout_s)
        if isinstance(outcome, KafkaError):
            raise without_traceback(outcome)
        return outcome

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Wait, and return the error of a failed delivery, or None.

        Args:
            timeout_s: Maximum wait in seconds; None: no limit.

        Raises:
            KafkaTimeoutError: `timeout_s` expired. The delivery continues.
        """
        outcome = self._wait(timeout_s)
        return without_traceback(outcome) if isinstance(outcome, KafkaError) else None

    def _wait(self, timeout_s: float | None) -> RecordMetadata | KafkaError:
        if timeout_s is not None:
            NUMBER.of("timeout_s", timeout_s)
        chunk, index = self
        unhandled = chunk.unhandled
        outcome = chunk.outcome(index)
        if outcome is None:
            unhandled.before_waiting()
            progress = _Progress(timeout_s)
            try:
                chunk.watch(progress.report)
                unhandled.claim(chunk, index)
                while (outcome := chunk.outcome(index)) is None:
                    if not progress.wait():
                        raise KafkaTimeoutError(
                            f"the record was not delivered within {timeout_s} s", outcome_unknown=True
                        )
            finally:
                chunk.unwatch(progress.report)
                if outcome is None:
                    unhandled.release(chunk, index)
        if isinstance(outcome, KafkaError):
            unhandled.claim(chunk, index)
        return outcome


class BulkDelivery:
    """Arrow data in delivery."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def __repr__(self) -> str:
        return bulk_text("BulkDelivery", self._chunks)

    def done(self) -> bool:
        """Return true if every row has been acknowledged or has failed."""
        return all(chunk.done for chunk in self._chunks)

    @checked
    def result(self, timeout_s: float | None = None) -> list[AppendedRun]:
        """Wait, and return the partitions and offsets of the rows.

        Args:
            timeout_s: Maximum wait in seconds; None: no limit.

        Raises:
            ProduceFailedError: A row was not delivered; for the first failure.
            KafkaTimeoutError: `timeout_s` expired. The delivery continues.
        """
        for chunk in self._chunks if not self.done() else ():
            chunk.unhandled.before_waiting()
        progress = _Progress(timeout_s)
        try:
            for chunk in self._chunks:
                chunk.watch(progress.report)
                chunk.unhandled.claim(chunk, EVERY_ROW)
            while not self.done():
                if not progress.wait():
                    raise KafkaTimeoutError(f"not every row was delivered within {timeout_s} s", outcome_unknown=True)
        finally:
            for chunk in self._chunks:
                chunk.unwatch(progress.report)
            release_undone(self._chunks)
        return bulk_result(self._chunks)


Append = Callable[..., tuple[Chunk, int]]


def _serializing(codec: Codec, append: Append) -> Append:
    """Return an `append` that serializes keys and values."""

    def call(topic: str, value: Any, key: Any, partition: int | None, headers: Any, *more: Any) -> tuple[Chunk, int]:
        pairs = listed(headers)
        value, key = codec.both(Parts(topic, value, key, pairs))
        return append(topic, value, key, partition, pairs or None, *more)

    return call


def _ending(
    method: Callable[Concatenate[ProducerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Producer, P], R]:
    """Return the blocking variant of a call that ends the transaction.

    A signal handler may raise after the call has ended in the I/O thread. An abort that follows must not return as if
    the transaction were aborted. No function is called between the plain stores and the return, so no handler runs
    there.
    """
    ready = prepared(method)

    def call(self: Producer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_waiting()
        begin = ready(self._core, *args, **kwargs)
        unreported = self._core.unreported
        try:
            result = self._io.call(begin)
        except KafkaError:
            unreported.committed = False
            raise
        except BaseException:
            unreported.interrupted = True
            raise
        unreported.committed = False
        return result

    functools.update_wrapper(call, method)
    return call


class Producer(BlockingClient[ProducerCore]):
    """A blocking producer, idempotent by default. Threads may share it, with one transaction at a time.

    Settings have Kafka's names in snake_case (`fencepost.config.ProducerConfig`).
    """

    _config_type = ProducerConfig

    @configured_by(ProducerConfig)
    def __init__(self, config: ProducerConfig) -> None:
        """Create a producer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        codec = serializers(config, may_wait=False)
        wake = io_thread().call_soon
        waits = "no other callback of this producer runs meanwhile, and its flush() and close() wait"
        self._callbacks = callbacks = OwnThread(wake, "fencepost-callbacks", waits)
        super().__init__(lambda: ProducerCore(cluster_for(config), config, wake=wake, caller=callbacks))
        self._accumulator = self._core.accumulator
        self._accumulator.delivery = Delivery
        io, core = self._io, self._core

        def check_waiting() -> None:
            io.check_process()
            callbacks.refuse_to_wait()

        self._accumulator.unhandled.before_waiting = check_waiting  # a wait in a forked child would never end

        # Refers to the core, because a reference to the producer would prevent its collection.
        def check_sending() -> None:
            io.check_process()
            core.check_sending()

        self._accumulator.check = check_sending
        self._open = self._accumulator.open
        self._append = self._accumulator.append
        if config.on_delivery is not None:
            self._open = {}  # the fast path of `send` does not support callbacks
        if config.interceptors:
            self._open, self._append = {}, self._core.append
        if codec:
            self._open, self._append = {}, _serializing(codec, self._append)

    def _forked(self) -> None:
        """Make `send` check the process in a forked child."""
        self._accumulator.refuse()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: Int32 | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record. The call waits only while buffer_memory is full.

        A failed delivery that the application has not examined is raised by flush, close and the end of `with`. In a
        transaction the next transactional call raises it. With `key_serializer` and `value_serializer`, key and value
        are the objects that these accept. Serializers run in the calling thread, before the interceptors.

        Args:
            topic: The topic.
            value: The value; None for a tombstone.
            key: The key. Without a partition it selects the partition as in Java's client.
            partition: The partition; without it and a key, the producer fills one partition after another.
            headers: Headers in order.
            timestamp_ms: Timestamp in ms since 1970; default: now.
            on_delivery: Called as `on_delivery(error, metadata)` in the producer's own thread.

        Returns:
            The delivery, which may be ignored.

        Raises:
            BufferFullError: buffer_memory stayed full for max_block_ms. The record was not accepted, so call again.
            RecordRejectedError: The record is too large, or an interceptor failed. Abort an open transaction.
            TransactionAbortableError: The transaction has failed, or buffer_memory stayed full in it. Abort it.
            SerializationError: A serializer failed. Nothing was sent, and a transaction continues.
            UsageError: Records cannot be sent in this state.
            ConfigurationError: A value is invalid.
            TypeError: A value has a wrong type.
            FatalError: The producer has failed permanently.
        """
        chunk = self._open.get(topic) if topic.__class__ is str else None
        if self._accumulator.slow:
            self._before_send()  # after the look-up: a state that forbids sending closes all chunks, also this one
        # Fast path: a plain record for a topic with an open chunk with room needs at most one further call. `Chunk`
        # explains why this is safe without a lock.
        is_plain = partition is None and headers is None and timestamp_ms is None and on_delivery is None
        if is_plain and chunk is not None:
            if chunk.native is not None:
                delivery: Delivery | None = chunk.native.take(value, key)
                if delivery is not None:
                    return delivery
            elif value.__class__ is bytes and (key is None or key.__class__ is bytes):
                size = len(value) + RECORD_OVERHEAD if key is None else len(value) + len(key) + RECORD_OVERHEAD
                if size < chunk.room:
                    index = next(chunk.indexes)
                    chunk.room -= size
                    try:
                        if key is not None:
                            chunk.keys[index] = key
                        chunk.values[index] = value
                        there = not chunk.closed
                    except IndexError:
                        there = False
                    if there or chunk.put(index, value, key):
                        return Delivery((chunk, index))
        try:
            return Delivery(self._append(topic, value, key, partition, headers, timestamp_ms, on_delivery))
        except RecordRejectedError as error:
            self._core.not_taken(error)
            raise

    def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: Int32 | None = None
    ) -> BulkDelivery:
        """Send every row of Arrow data, as bytes (without serializers).

        Args:
            topic: The topic, or None to use the column `topic`.
            data: Columns: value, optionally key, partition, headers, timestamp, topic.
            partition: The partition of all rows; default: as in `send`.

        Raises:
            KafkaError: As `send` raises.
        """
        if self._accumulator.slow:
            self._before_send()
        return BulkDelivery(self._core.append_table(topic, data, partition))

    def _before_send(self) -> None:
        self._check()
        self._core.check_sending()
        if not self._accumulator.full:
            return
        if self._callbacks.is_current():
            raise self._core.no_room(
                "the buffer is full, and a delivery callback of this producer cannot wait for room"
            )
        self._io.call(self._core.wait_for_room)

    def _check_waiting(self) -> None:
        self._check()
        self._before_waiting()

    def _failure(self) -> KafkaError | None:
        return self._core.failure

    def _before_waiting(self) -> None:
        self._callbacks.refuse_to_wait()

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    client_instance_id = blocking(ProducerCore.client_instance_id)
    init_transactions = blocking(ProducerCore.init_transactions)
    commit_transaction = _ending(ProducerCore.commit_transaction)
    abort_transaction = _ending(ProducerCore.abort_transaction)
    send_offsets_to_transaction = blocking(ProducerCore.send_offsets_to_transaction)
    prepare_transaction = blocking(ProducerCore.prepare_transaction)
    complete_transaction = _ending(ProducerCore.complete_transaction)

    @checked
    def purge(self, in_queue: bool = True, in_flight: bool = True) -> int:
        """Drop records that are not acknowledged. Their deliveries and callbacks get a ProduceFailedError.

        Its `__cause__` is a RecordPurgedError. flush() and close() do not raise it again. Records in flight may be in
        the log, so their `outcome_unknown` is true: sending them again may duplicate them. A transaction that lacks
        purged records cannot be committed; abort it. Records that are sent afterwards are delivered once and in order.

        A delivery callback may call it. When it returns, the deliveries have their errors. flush() waits for callbacks.

        Args:
            in_queue: Drop records that wait to be sent or sent again.
            in_flight: Drop records that were sent and have no response.

        Returns:
            The number of purged records.
        """
        self._check()

        async def purge() -> int:
            return self._core.purge(in_queue, in_flight)

        return self._io.call(purge)

    def begin_transaction(self) -> None:
        """Begin a transaction.

        Raises:
            UsageError: A transaction is open, or init_transactions() is missing.
            FatalError: The producer has failed permanently.
        """
        self._check()

        async def begin() -> None:  # only the I/O thread changes the state, so one of two concurrent calls fails
            self._core.begin_transaction()

        self._io.call(begin)

    @checked
    def transaction(self, consumer: clients.Consumer | None = None) -> BlockingTransaction[Self]:
        """Begin a transaction, commit it at the end of the block, and abort it if the block raises (KIP-691).

        With a `consumer`, its positions are committed in the transaction. If the block fails, the consumer returns to
        the group's committed offsets, or to the first position without these. Poll again; do not use records polled
        before. Until the block ends, calls of the consumer from other threads raise UsageError.

        After an AbortableError or RetriableError the next block may begin with the same producer, even if the abort has
        not been acknowledged. After an ApplicationRecoverableError use a new producer. After a FatalError a person must
        intervene.

        Args:
            consumer: The consumer of the records that the block processes.

        Raises:
            GroupFencedError: A rebalance revoked partitions of the consumer; the transaction is aborted.
            ConfigurationError: The consumer has enable_auto_commit.
            KafkaError: The transaction failed.
        """
        return BlockingTransaction(
            self, self._check_waiting, self._core, self._io, None if consumer is None else consumer.core
        )

    @property
    def producer_id(self) -> int:
        """The current producer id, or -1 before the first."""
        return self._core.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, or -1 before the first."""
        return self._core.producer_epoch

    @checked
    def close(self, timeout_ms: Milliseconds | None = 30_000) -> None:
        """Deliver pending records, abort an open transaction unless it is prepared, and release all resources.

        It may be called again. A call during a close in another thread waits for it.

        Args:
            timeout_ms: Maximum wait for deliveries, in ms; None: no limit.

        Raises:
            ProduceFailedError: Deliveries failed that the application has not examined (see `flush`).
            KafkaTimeoutError: The abort was not acknowledged, or the close in another thread has not finished.
        """
        self._end(lambda core: core.close(timeout_ms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(lambda core: core.close() if error is None else core.close_after(error))
