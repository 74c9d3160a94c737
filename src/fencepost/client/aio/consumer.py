"""The asyncio consumer: a ConsumerCore in the running event loop."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable

from fencepost.arguments import checked
from fencepost.client.aio.base import in_loop
from fencepost.client.aio.holding import HeldClient, changing, holding
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.turn import POLL
from fencepost.client.rebalance import RebalanceListener
from fencepost.client.records import Record
from fencepost.config import ConsumerConfig


class AsyncConsumer(HeldClient[ConsumerCore]):
    """A consumer for asyncio. Create it in a running loop; `async for record in consumer` reads forever.

    One task at a time may use it. A call during another task's call, or during a `transaction(consumer)` block, raises
    UsageError. Any task may call `wakeup`, `close` and the methods that only read state.
    """

    _config_type = ConsumerConfig

    @configured_by(ConsumerConfig)
    def __init__(self, config: ConsumerConfig) -> None:
        """Create a consumer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
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
        """Subscribe like Consumer.subscribe. The methods of `listener` may be coroutine functions."""
        core = self._here()
        hold = core.turn.take("subscribe")
        try:
            if listener is not None:
                core.listener = listener
            await core.subscribe(topics, pattern=pattern)
        finally:
            hold.ended = True

    @checked
    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Set the listener that is called during poll for each rebalance."""
        core = self._here()
        hold = core.turn.take("set_rebalance_listener")
        core.listener = listener
        hold.ended = True

    async def __aiter__(self) -> AsyncIterator[Record]:
        while not self._closed:
            core = self._here()
            hold = core.turn.take(POLL)
            try:
                handed = await core.hand_out(1000)
                records = handed.one_by_one(core.records_of(handed.pieces))
            finally:
                hold.ended = True
            for record in records:
                yield record

    poll = holding(ConsumerCore.poll)
    poll_columns = holding(ConsumerCore.poll_columns)
    poll_arrow = holding(ConsumerCore.poll_arrow)
    commit = holding(ConsumerCore.commit)
    unsubscribe = holding(ConsumerCore.unsubscribe)
    assign = holding(ConsumerCore.assign)
    seek_to_beginning = holding(ConsumerCore.seek_to_beginning)
    seek_to_end = holding(ConsumerCore.seek_to_end)
    seek_to_timestamp = holding(ConsumerCore.seek_to_timestamp)
    offsets_for = holding(ConsumerCore.offsets_for)
    position = holding(ConsumerCore.position)
    reset_to_committed = holding(ConsumerCore.reset_to_committed)
    committed = holding(ConsumerCore.committed)
    partitions_for = holding(ConsumerCore.partitions_for)
    seek = changing(ConsumerCore.seek)
    pause = changing(ConsumerCore.pause)
    resume = changing(ConsumerCore.resume)
    paused = in_loop(ConsumerCore.paused)
    assignment = in_loop(ConsumerCore.assignment)
    subscription = in_loop(ConsumerCore.subscription)
    positions = in_loop(ConsumerCore.positions)
    forget_positions = changing(ConsumerCore.forget_positions)
    lag = in_loop(ConsumerCore.lag)
    commit_async = changing(ConsumerCore.commit_async)
    group_metadata = in_loop(ConsumerCore.group_metadata)
    metrics = in_loop(ConsumerCore.metrics)
    state = in_loop(ConsumerCore.state)
    fetch_range = in_loop(ConsumerCore.fetch_range)

    @property
    def core(self) -> ConsumerCore:
        """The core, for transaction blocks."""
        return self._core
