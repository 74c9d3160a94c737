"""The blocking clients: `Producer`, `Consumer`, `Admin`. All clients of a process share one I/O thread."""

from __future__ import annotations

import queue
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import fencepost.client.blocking as clients  # loads the consumer when a call names it
from fencepost.arguments import NUMBER, Milliseconds, checked
from fencepost.client.blocking.base import BlockingClient, blocking
from fencepost.client.blocking.own_thread import OwnThread
from fencepost.client.blocking.transaction import Transaction
from fencepost.client.configured import configured_by
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import io_thread
from fencepost.client.producer.accumulator import RECORD_OVERHEAD
from fencepost.client.producer.arrow_results import Appended, bulk_result, release_undone
from fencepost.client.producer.chunks import EVERY_ROW, Chunk, Headers, OnDelivery
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata
from fencepost.config import ProducerConfig
from fencepost.errors import KafkaError, KafkaTimeoutError, RecordRejectedError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class News:
    """Lets a thread wait for what the I/O thread tells.

    Of `threading.Event` the waiting thread holds the lock for moments: a signal handler that flushes in such a moment
    would wait for the I/O thread, and that for the lock.
    """

    def __init__(self, timeout_s: float | None) -> None:
        """`timeout_s`: for how long all waits together may take; None: without end."""
        self._come: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s

    def come(self) -> None:
        """There is something to look at. From any thread."""
        self._come.put(None)

    def wait(self) -> bool:
        """Wait for it. False when time ran out."""
        left_s = None if self._until_s is None else max(self._until_s - time.monotonic(), 0.0)
        try:
            self._come.get(timeout=left_s)
        except queue.Empty:
            return False
        return True


class Delivery(tuple[Chunk, int]):
    """A record on its way (blocking producer). Safe to drop; `result()` waits."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self[0].fate(self[1]) is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises ProduceFailedError, or KafkaTimeoutError after `timeout_s` (it goes on)."""
        fate = self._wait(timeout_s)
        if isinstance(fate, KafkaError):
            raise fate.with_traceback(None)  # kept: it would grow with each call
        return fate

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Why it was not delivered, None when it was. Raises KafkaTimeoutError after `timeout_s`."""
        fate = self._wait(timeout_s)
        return fate if isinstance(fate, KafkaError) else None

    def _wait(self, timeout_s: float | None) -> RecordMetadata | KafkaError:
        if timeout_s is not None:
            NUMBER.of("timeout_s", timeout_s)
        chunk, index = self
        unhandled = chunk.unhandled
        fate = chunk.fate(index)
        if fate is None:
            unhandled.before_waiting()
            news = News(timeout_s)
            try:
                chunk.watch(news.come)
                unhandled.claim(chunk, index)
                while (fate := chunk.fate(index)) is None:
                    if not news.wait():
                        raise KafkaTimeoutError(
                            f"the record was not delivered within {timeout_s} s", outcome_unknown=True
                        )
            finally:
                if fate is None:
                    unhandled.release(chunk, index)
        if isinstance(fate, KafkaError):
            unhandled.claim(chunk, index)
        return fate


class BulkDelivery:
    """Arrow data on its way (blocking producer)."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return all(chunk.done for chunk in self._chunks)

    @checked
    def result(self, timeout_s: float | None = None) -> list[Appended]:
        """Where the rows are. Raises ProduceFailedError (the first), KafkaTimeoutError."""
        for chunk in self._chunks if not self.done() else ():
            chunk.unhandled.before_waiting()
        news = News(timeout_s)
        try:
            for chunk in self._chunks:
                chunk.watch(news.come)
                chunk.unhandled.claim(chunk, EVERY_ROW)
            while not self.done():
                if not news.wait():
                    raise KafkaTimeoutError(f"not every row was delivered within {timeout_s} s", outcome_unknown=True)
        finally:
            release_undone(self._chunks)
        return bulk_result(self._chunks)


class Producer(BlockingClient[ProducerCore]):
    """A blocking producer, idempotent by default; may be shared between threads (one transaction at a time).

    Settings are Kafka's, in snake_case (`fencepost.config.ProducerConfig`).
    """

    _config_type = ProducerConfig

    @configured_by(ProducerConfig)
    def __init__(self, config: ProducerConfig) -> None:
        """`bootstrap_servers`: "host:port,...", or a list of these; the settings are Kafka's, in snake_case."""
        wake = io_thread().call_soon
        self._callbacks = callbacks = OwnThread(wake)
        super().__init__(
            lambda: ProducerCore(Cluster(runtime_for(config), config), config, wake=wake, caller=callbacks)
        )
        self._accumulator = self._core.accumulator
        self._accumulator.unhandled.before_waiting = callbacks.refuse_to_wait
        self._accumulator.check = self._check_sending
        self._open = self._accumulator.open
        self._append = self._accumulator.append
        if config.interceptors:
            self._open, self._append = {}, self._core.append

    def _forked(self) -> None:
        """In a forked child: nothing may be taken without looking."""
        self._accumulator.refuse()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record; `value=None` is a tombstone. Waits only when buffer_memory is full.

        Without a partition, the key decides as in Java's client, else the partition is sticky. `on_delivery(error,
        metadata)` runs in the producer's own thread. Nobody has to look at either: what failed unseen is raised by
        flush, close and the end of `with`, in a transaction by the next transactional call. Raises BufferFullError (the
        record was not taken: call again; in a transaction it is a TransactionAbortableError), RecordRejectedError (too
        large, or an interceptor failed: in a transaction, abort), TransactionAbortableError (abort), UsageError,
        TypeError, ConfigurationError (a value that cannot be), fatal errors.
        """
        chunk = self._open.get(topic) if topic.__class__ is str else None
        if self._accumulator.slow:
            self._before_send()  # behind the look-up: what forbids to send closes all chunks, this one included
        # A plain record needs no further call where its topic has an open chunk with room: half of the time of all
        # this. See Chunk for how it stays whole.
        is_plain = partition is None and headers is None and timestamp_ms is None and on_delivery is None
        if is_plain and chunk is not None and value.__class__ is bytes and (key is None or key.__class__ is bytes):
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

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Kafka's names in snake_case (see client.metrics)."""
        return self._core.metrics()

    def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None = None
    ) -> BulkDelivery:
        """Send every row of Arrow data: columns value, [key], [partition], [headers], [timestamp], [topic].

        Without a partition, keys decide as in `send`; rows without a key go to sticky partitions. Raises as `send`.
        """
        if self._accumulator.slow:
            self._before_send()
        return BulkDelivery(self._core.append_table(topic, data, partition))

    def _check_sending(self) -> None:
        self._check()
        self._core.check_sending()

    def _before_send(self) -> None:
        self._check_sending()
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

    def _before_waiting(self) -> None:
        self._callbacks.refuse_to_wait()

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    init_transactions = blocking(ProducerCore.init_transactions)
    commit_transaction = blocking(ProducerCore.commit_transaction)
    abort_transaction = blocking(ProducerCore.abort_transaction)
    send_offsets_to_transaction = blocking(ProducerCore.send_offsets_to_transaction)
    prepare_transaction = blocking(ProducerCore.prepare_transaction)
    complete_transaction = blocking(ProducerCore.complete_transaction)

    def begin_transaction(self) -> None:
        """Open a transaction. Raises UsageError, or what broke the producer for good."""
        self._check()
        self._core.begin_transaction()

    @checked
    def transaction(self, consumer: clients.Consumer | None = None) -> Transaction[Self]:
        """Begin; commit at the end of the block, abort when it raises (the two-phase template of KIP-691).

        With a `consumer`, its positions are committed in the transaction. However the block fails, the consumer goes
        back to what its group has committed (else to where it began to read): poll again, use no record polled before.
        Until the block ends, another thread's calls of the consumer raise UsageError.
        After an AbortableError or RetriableError the next block may begin on the same producer, also when the abort was
        not answered yet; after an ApplicationRecoverableError on a new producer; after a FatalError a person has to
        look. A rebalance that took partitions away raises GroupFencedError instead of committing. Raises
        ConfigurationError for a consumer with enable_auto_commit.
        """
        return Transaction(self, self._check_waiting, self._core, self._io, None if consumer is None else consumer.core)

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before the first."""
        return self._core.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before the first."""
        return self._core.producer_epoch

    @checked
    def close(self, timeout_ms: Milliseconds | None = 30_000) -> None:
        """Deliver what was sent (within `timeout_ms`), abort an open (not prepared) transaction, release everything.

        Raises ProduceFailedError for what failed and nobody has looked at (see `flush`). May be called again.
        """
        self._end(lambda core: core.close(timeout_ms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(lambda core: core.close() if error is None else core.close_after(error))
