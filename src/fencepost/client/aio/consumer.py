"""The consumer for asyncio: a ConsumerCore in the running event loop."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Iterable

from fencepost.arguments import Milliseconds, checked
from fencepost.client.aio.base import AsyncClient, in_loop
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.rebalance import RebalanceListener, listener_method
from fencepost.client.records import Record
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig


class AsyncConsumer(AsyncClient[ConsumerCore]):
    """The consumer for asyncio: make it inside a running loop; `async for record in consumer` reads for ever."""

    _config_type = ConsumerConfig

    @configured_by(ConsumerConfig)
    def __init__(self, config: ConsumerConfig) -> None:
        """`bootstrap_servers`: "host:port,...", or a list of these; the settings are Kafka's, in snake_case."""
        runtime = runtime_for(config)
        super().__init__(runtime, ConsumerCore(Cluster(runtime, config), config))

    @checked
    async def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """As Consumer.subscribe; the methods of `listener` may be coroutine functions."""
        core = self._here()
        if listener is not None:
            self.set_rebalance_listener(listener)
        await core.subscribe(topics, pattern=pattern)

    @checked
    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Who is told of rebalances."""

        async def tell(kind: str, partitions: list[TopicPartition]) -> None:
            method = listener_method(listener, kind)
            if method is not None:
                outcome = method(partitions)
                if inspect.isawaitable(outcome):
                    await outcome

        self._here().listener = tell

    async def __aiter__(self) -> AsyncIterator[Record]:
        while not self._closed:
            for record in self._core.one_by_one(await self.poll(1000)):
                yield record

    poll = in_loop(ConsumerCore.poll)
    poll_columns = in_loop(ConsumerCore.poll_columns)
    poll_arrow = in_loop(ConsumerCore.poll_arrow)
    commit = in_loop(ConsumerCore.commit)
    unsubscribe = in_loop(ConsumerCore.unsubscribe)
    assign = in_loop(ConsumerCore.assign)
    seek_to_beginning = in_loop(ConsumerCore.seek_to_beginning)
    seek_to_end = in_loop(ConsumerCore.seek_to_end)
    seek_to_timestamp = in_loop(ConsumerCore.seek_to_timestamp)
    offsets_for = in_loop(ConsumerCore.offsets_for)
    position = in_loop(ConsumerCore.position)
    reset_to_committed = in_loop(ConsumerCore.reset_to_committed)
    committed = in_loop(ConsumerCore.committed)
    partitions_for = in_loop(ConsumerCore.partitions_for)
    seek = in_loop(ConsumerCore.seek)
    pause = in_loop(ConsumerCore.pause)
    resume = in_loop(ConsumerCore.resume)
    paused = in_loop(ConsumerCore.paused)
    assignment = in_loop(ConsumerCore.assignment)
    subscription = in_loop(ConsumerCore.subscription)
    positions = in_loop(ConsumerCore.positions)
    forget_positions = in_loop(ConsumerCore.forget_positions)
    lag = in_loop(ConsumerCore.lag)
    commit_async = in_loop(ConsumerCore.commit_async)
    group_metadata = in_loop(ConsumerCore.group_metadata)
    metrics = in_loop(ConsumerCore.metrics)
    state = in_loop(ConsumerCore.state)
    wakeup = in_loop(ConsumerCore.wakeup)
    fetch_range = in_loop(ConsumerCore.fetch_range)

    @property
    def core(self) -> ConsumerCore:
        """What a transaction block works with."""
        return self._core

    @checked
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """As Consumer.close."""
        await self._end(lambda core: core.close(timeout_ms))
