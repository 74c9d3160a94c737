"""`Producer` (blocking, threads) and `AsyncProducer` (asyncio): two thin faces of ProducerCore."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from fencepost.client.accumulator import Header, OnDelivery
from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import AsyncioRuntime
from fencepost.client.blocking_base import BlockingClient, blocking
from fencepost.client.delivery import AsyncBulkDelivery, AsyncDelivery, BulkDelivery, Delivery
from fencepost.client.io_thread import io_thread
from fencepost.client.producer import ProducerCore
from fencepost.config import ProducerConfig, ProducerSettings
from fencepost.errors import AbortableError, BufferFullError, KafkaError

if TYPE_CHECKING:
    import pyarrow as pa


class Producer(BlockingClient[ProducerCore]):
    """A blocking producer, idempotent by default; may be shared between threads (one transaction at a time).

    Settings are Kafka's, in snake_case (`fencepost.config.ProducerConfig`).
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ProducerSettings]) -> None:
        self._make(ProducerConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._make(ProducerConfig.from_dotted(settings))
        return self

    def _make(self, config: ProducerConfig) -> None:
        io = io_thread()

        def make() -> ProducerCore:
            return ProducerCore(cluster_for(AsyncioRuntime(), config), config, lock=threading.Lock(), wake=io.call_soon)

        BlockingClient.__init__(self, make)
        self._append = self._core.append
        self._accumulator = self._core.accumulator
        self._buffer_memory = config.buffer_memory

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send one record; `value=None` is a tombstone. Waits only when buffer_memory is full.

        Without a partition, the key decides as in Java's client, else a sticky one. `on_delivery(error, metadata)` runs
        in the I/O thread. In a transaction nobody has to look at either: the next transactional call tells. Raises
        BufferFullError, RecordRejectedError (too large), TransactionAbortableError (abort), UsageError, fatal errors.
        """
        if self._accumulator.waiting_bytes >= self._buffer_memory or self._closed or not self._io.alive():
            self._wait_for_room()
        return Delivery(self._append(topic, value, key, partition, headers, timestamp_ms, on_delivery))

    def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None = None
    ) -> BulkDelivery:
        """Send every row of Arrow data: columns value, [key], [partition], [headers], [timestamp], [topic].

        Without a partition, keys decide as in `send`; rows without a key go to sticky partitions. Raises as `send`.
        """
        if self._accumulator.waiting_bytes >= self._buffer_memory or self._closed or not self._io.alive():
            self._wait_for_room()
        return BulkDelivery(self._core.append_table(topic, data, partition))

    def _wait_for_room(self) -> None:
        self._check()
        if self._io.is_current():
            raise BufferFullError("the buffer is full, and a delivery callback cannot wait for room")
        self._io.run(self._core.wait_for_room())

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

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin; commit at the end of the block, abort when it raises.

        A CommitFailedError is raised after the transaction was aborted: go back to the last committed positions and go
        on with the same producer. After a fatal error nothing is left to abort.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except AbortableError:
            self.abort_transaction()
            raise
        except KafkaError as error:
            self._abort_unless_over(error)
            raise
        except BaseException:
            self.abort_transaction()
            raise

    def _abort_unless_over(self, error: KafkaError) -> None:
        transactions = self._core.transactions
        if transactions is not None and transactions.error is not error:
            self.abort_transaction()

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before there is one."""
        return self._core.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before there is one."""
        return self._core.producer_epoch

    def close(self, timeout_ms: float | None = 30_000) -> None:
        """Deliver what was sent, abort an open (not prepared) transaction, release everything. May be called again."""
        self._io.check_process()
        if not self._closed:
            self._closed = True
            self._io.run(self._core.close(timeout_ms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(30_000 if error is None or isinstance(error, Exception) else 0)


def _run_now(function: Callable[[], object]) -> object:
    return function()


class AsyncProducer(ProducerCore):
    """The producer for asyncio: make it inside a running loop. Transactional calls are those of ProducerCore."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ProducerSettings]) -> None:
        self._make(ProducerConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._make(ProducerConfig.from_dotted(settings))
        return self

    def _make(self, config: ProducerConfig) -> None:
        ProducerCore.__init__(
            self, cluster_for(AsyncioRuntime(), config), config, lock=contextlib.nullcontext(), wake=_run_now
        )

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Take one record (see Producer.send); await the result for its RecordMetadata."""
        if self.full:
            await self.wait_for_room()
        return AsyncDelivery(self.append(topic, value, key, partition, headers, timestamp_ms, on_delivery))

    async def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: int | None = None
    ) -> AsyncBulkDelivery:
        """Take every row of Arrow data (see Producer.send_arrow); await the result."""
        if self.full:
            await self.wait_for_room()
        return AsyncBulkDelivery(self.append_table(topic, data, partition))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """As Producer.transaction."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            over = self.transactions is not None and self.transactions.error is error
            if isinstance(error, AbortableError) or not over:
                await self.abort_transaction()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
