"""The consumer for asyncio: ConsumerCore itself, over the asyncio runtime."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import runtime_for
from fencepost.client.consumer import ConsumerCore
from fencepost.client.rebalance import RebalanceListener, listener_method
from fencepost.client.records import Record
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig, ConsumerSettings


class AsyncConsumer(ConsumerCore):
    """The consumer for asyncio: make it inside a running loop; `async for record in consumer` reads for ever."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerSettings]) -> None:
        config = ConsumerConfig.make({"bootstrap_servers": bootstrap_servers, **settings})
        ConsumerCore.__init__(self, cluster_for(runtime_for(config), config), config)

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        config = ConsumerConfig.from_dotted(settings)
        ConsumerCore.__init__(self, cluster_for(runtime_for(config), config), config)
        return self

    async def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """As ConsumerCore.subscribe; `listener` (its methods may be coroutine functions) is told inside poll."""
        if listener is not None:
            self.set_rebalance_listener(listener)
        await super().subscribe(topics, pattern=pattern)

    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Who is told of rebalances."""

        async def tell(kind: str, partitions: list[TopicPartition]) -> None:
            method = listener_method(listener, kind)
            if method is not None:
                outcome = method(partitions)
                if inspect.isawaitable(outcome):
                    await outcome

        self.listener = tell

    async def __aiter__(self) -> AsyncIterator[Record]:
        while not self.closed:
            for record in await self.poll(1000):
                yield record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
