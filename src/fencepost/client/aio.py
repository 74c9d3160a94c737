"""The clients for asyncio: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`.

Make them inside a running event loop. They are the cores themselves, over the asyncio runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from fencepost.client.accumulator import Chunk, Header, OnDelivery
from fencepost.client.admin import AdminCore
from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import runtime_for
from fencepost.client.consumer_aio import AsyncConsumer
from fencepost.client.delivery import Appended, bulk_result
from fencepost.client.producer import ProducerCore
from fencepost.client.rebalance import refuse_after_revocation
from fencepost.client.types import RecordMetadata
from fencepost.config import (
    AdminConfig,
    CommonSettings,
    ProducerConfig,
    ProducerSettings,
)
from fencepost.errors import AbortableError, KafkaError

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncDelivery(tuple[Chunk, int]):
    """A record on its way (asyncio). Safe to drop; `await` it for its RecordMetadata or ProduceFailedError."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self[0].fate(self[1]) is not None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        chunk, index = self
        fate = chunk.fate(index)
        if fate is None:
            something = asyncio.Event()
            chunk.watch(something.set)
            while (fate := chunk.fate(index)) is None:
                await something.wait()
                something.clear()
        if isinstance(fate, KafkaError):
            raise fate
        return fate


class AsyncBulkDelivery:
    """Arrow data on its way (asyncio): await it."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return all(chunk.done for chunk in self._chunks)

    def __await__(self) -> Generator[Any, None, list[Appended]]:
        return self._wait().__await__()

    async def _wait(self) -> list[Appended]:
        something = asyncio.Event()
        for chunk in self._chunks:
            chunk.watch(something.set)
        while not self.done():
            await something.wait()
            something.clear()
        return bulk_result(self._chunks)


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
            self, cluster_for(runtime_for(config), config), config, lock=contextlib.nullcontext(), wake=_run_now
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
    async def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncIterator[Self]:
        """As Producer.transaction."""
        self.begin_transaction()
        revocations = 0 if consumer is None else consumer.revocations
        try:
            yield self
            if consumer is not None:
                refuse_after_revocation(revocations, consumer.revocations)
                await self.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            await self.commit_transaction()
        except BaseException as error:
            over = self.transactions is not None and self.transactions.error is error
            if isinstance(error, AbortableError) or not over:
                await self.abort_after(error)
                if consumer is not None and isinstance(error, Exception):
                    await consumer.reset_to_committed()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncAdmin(AdminCore):
    """Admin calls for asyncio. Make it inside a running loop; `await close()` or `async with`."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[CommonSettings]) -> None:
        self._open(AdminConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._open(AdminConfig.from_dotted(settings))
        return self

    def _open(self, config: AdminConfig) -> None:
        AdminCore.__init__(self, cluster_for(runtime_for(config), config), config.default_api_timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
