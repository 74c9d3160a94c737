"""The asyncio producer: a ProducerCore in the running event loop.

Create and use it in the same loop. Calls from another loop raise UsageError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import fencepost.client.aio as clients  # loads the consumer when a call names it
from fencepost.arguments import Int32, Milliseconds, checked
from fencepost.client.aio.base import AsyncClient, in_loop
from fencepost.client.coding import Parts, listed, serializers
from fencepost.client.configured import configured_by
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.turn import TRANSACTION, Hold
from fencepost.client.producer.arrow_results import AppendedRun, bulk_result, bulk_text, release_undone
from fencepost.client.producer.chunks import EVERY_ROW, Chunk, Headers, OnDelivery
from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_block import ENTERED_TWICE, TransactionBlock
from fencepost.client.types import RecordMetadata
from fencepost.config import ProducerConfig
from fencepost.errors import KafkaError, RecordRejectedError, UsageError, without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

P = TypeVar("P", bound="AsyncProducer")


class AsyncDelivery(tuple[Chunk, int]):
    """A record in delivery. It may be dropped. Awaiting it returns RecordMetadata or raises ProduceFailedError."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self[0].text("AsyncDelivery", self[1])

    def done(self) -> bool:
        """Return true if the record has been acknowledged or has failed."""
        return self[0].outcome(self[1]) is not None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        chunk, index = self
        unhandled = chunk.unhandled
        outcome = chunk.outcome(index)
        if outcome is None:
            something = asyncio.Event()
            chunk.watch(something.set)
            unhandled.claim(chunk, index)
            try:
                while (outcome := chunk.outcome(index)) is None:
                    await something.wait()
                    something.clear()
            finally:
                chunk.unwatch(something.set)
                if outcome is None:
                    unhandled.release(chunk, index)
        if isinstance(outcome, KafkaError):
            unhandled.claim(chunk, index)
            raise without_traceback(outcome)
        return outcome


class AsyncBulkDelivery:
    """Arrow data in delivery. Awaiting it returns the partitions and offsets of the rows."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def __repr__(self) -> str:
        return bulk_text("AsyncBulkDelivery", self._chunks)

    def done(self) -> bool:
        """Return true if every row has been acknowledged or has failed."""
        return all(chunk.done for chunk in self._chunks)

    def __await__(self) -> Generator[Any, None, list[AppendedRun]]:
        return self._wait().__await__()

    async def _wait(self) -> list[AppendedRun]:
        something = asyncio.Event()
        for chunk in self._chunks:
            chunk.watch(something.set)
            chunk.unhandled.claim(chunk, EVERY_ROW)
        try:
            while not self.done():
                await something.wait()
                something.clear()
        finally:
            for chunk in self._chunks:
                chunk.unwatch(something.set)
            release_undone(self._chunks)
        return bulk_result(self._chunks)


class AsyncTransaction(AsyncContextDecorator, AbstractAsyncContextManager[P], Generic[P]):
    """Begins a transaction, then commits or aborts it."""

    def __init__(self, producer: P, consumer: clients.AsyncConsumer | None) -> None:
        self._producer = producer
        self._consumer = None if consumer is None else consumer.core
        self._hold: Hold | None = None
        self._block: TransactionBlock | None = None  # the block, until it has ended

    async def __aenter__(self) -> P:
        core = self._producer._here()
        if self._block is not None:
            raise UsageError(ENTERED_TWICE)
        self._hold = None if self._consumer is None else self._consumer.turn.take(TRANSACTION)
        self._block = TransactionBlock(core, self._consumer)
        try:
            await self._block.__aenter__()
        except BaseException:
            self._release()
            raise
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._block is not None:
                await self._block.__aexit__(kind, error, traceback)
        finally:
            self._release()

    def _release(self) -> None:
        self._block = None
        if self._hold is not None:
            self._hold.ended = True


def _run_now(function: Callable[[], object]) -> object:
    return function()


class AsyncProducer(AsyncClient[ProducerCore]):
    """A producer for asyncio. Create and use it in the same running loop."""

    _config_type = ProducerConfig

    @configured_by(ProducerConfig)
    def __init__(self, config: ProducerConfig) -> None:
        """Create a producer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        runtime = runtime_for(config)
        cluster = Cluster(runtime, config)
        self._codec = serializers(config, may_wait=True)
        super().__init__(runtime, ProducerCore(cluster, config, wake=_run_now))

    def _failure(self) -> KafkaError | None:
        return self._core.failure

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: Int32 | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Accept one record like Producer.send. Await the returned delivery for its RecordMetadata.

        Serializers may be coroutine functions. Records are ordered as their serializers finish.
        """
        core = self._here()
        if self._codec:
            pairs = listed(headers)
            value, key = await self._codec.both_awaited(Parts(topic, value, key, pairs))
            headers = pairs or None
            core = self._here()
        if core.full:
            await core.wait_for_room()
        try:
            return AsyncDelivery(core.append(topic, value, key, partition, headers, timestamp_ms, on_delivery))
        except RecordRejectedError as error:
            core.not_taken(error)
            raise

    async def send_arrow(
        self, topic: str | None, data: pa.RecordBatch | pa.Table, partition: Int32 | None = None
    ) -> AsyncBulkDelivery:
        """Accept every row of Arrow data like Producer.send_arrow. Await the returned delivery."""
        core = self._here()
        if core.full:
            await core.wait_for_room()
        return AsyncBulkDelivery(core.append_table(topic, data, partition))

    flush = in_loop(ProducerCore.flush)
    purge = in_loop(ProducerCore.purge)
    partitions_for = in_loop(ProducerCore.partitions_for)
    client_instance_id = in_loop(ProducerCore.client_instance_id)
    init_transactions = in_loop(ProducerCore.init_transactions)
    begin_transaction = in_loop(ProducerCore.begin_transaction)
    commit_transaction = in_loop(ProducerCore.commit_transaction)
    abort_transaction = in_loop(ProducerCore.abort_transaction)
    send_offsets_to_transaction = in_loop(ProducerCore.send_offsets_to_transaction)
    prepare_transaction = in_loop(ProducerCore.prepare_transaction)
    complete_transaction = in_loop(ProducerCore.complete_transaction)

    @checked
    def transaction(self, consumer: clients.AsyncConsumer | None = None) -> AsyncTransaction[Self]:
        """Run a block in a transaction like Producer.transaction."""
        return AsyncTransaction(self, consumer)

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 before the first."""
        return self._core.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current producer epoch, -1 before the first."""
        return self._core.producer_epoch

    @checked
    async def close(self, timeout_ms: Milliseconds | None = 30_000) -> None:
        """Close like Producer.close."""
        await self._end(lambda core: core.close(timeout_ms))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end(lambda core: core.close() if error is None else core.close_after(error))
