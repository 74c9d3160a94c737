"""The asyncio consumer: a ConsumerCore in the running event loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Self

from fencepost.arguments import Milliseconds, checked
from fencepost.client.aio.base import in_loop
from fencepost.client.aio.holding import HeldClient, changing, holding
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.turn import POLL, Inside
from fencepost.client.records import Record
from fencepost.client.types import RebalanceListener
from fencepost.config import ConsumerConfig


class AsyncConsumer(HeldClient[ConsumerCore]):
    """A consumer for asyncio. Create it in a running loop. `async for record in consumer` reads until close.

    `anext(consumer)` may be cancelled, for example by a timeout. The next call then continues with the same record.

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
        self._rest: Iterator[Record] = iter(())  # records of an iteration that were polled and not returned yet

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
            with Inside(hold):
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

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while True:
            for record in self._rest:
                return record
            if self._closed:
                raise StopAsyncIteration
            core = self._here()
            hold = core.turn.take(POLL)
            try:
                with Inside(hold):
                    handed = await core.hand_out(1000)
                    records = await core.records.awaited(handed)
                self._rest = handed.one_by_one(records)
            finally:
                hold.ended = True

    @checked
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS, *, commit: bool | None = None) -> None:
        """Leave the group and release all resources, like Consumer.close. Any task may call it, also repeatedly."""
        if commit:
            self._core.check_group()
        await self._close(lambda: self._core.close(timeout_ms, commit=commit))

    poll = holding(ConsumerCore.poll)
    poll_columns = holding(ConsumerCore.poll_columns)
    poll_arrow = holding(ConsumerCore.poll_arrow)
    commit = holding(ConsumerCore.commit)
    unsubscribe = holding(ConsumerCore.unsubscribe)
    assign = holding(ConsumerCore.assign)
    incremental_assign = holding(ConsumerCore.incremental_assign)
    incremental_unassign = holding(ConsumerCore.incremental_unassign)
    seek_to_beginning = holding(ConsumerCore.seek_to_beginning)
    seek_to_end = holding(ConsumerCore.seek_to_end)
    seek_to_timestamp = holding(ConsumerCore.seek_to_timestamp)
    offsets_for = holding(ConsumerCore.offsets_for)
    beginning_offsets = holding(ConsumerCore.beginning_offsets)
    end_offsets = holding(ConsumerCore.end_offsets)
    position = holding(ConsumerCore.position)
    reset_to_committed = holding(ConsumerCore.reset_to_committed)
    committed = holding(ConsumerCore.committed)
    partitions_for = holding(ConsumerCore.partitions_for)
    client_instance_id = holding(ConsumerCore.client_instance_id)
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
    store_offsets = changing(ConsumerCore.store_offsets)
    group_metadata = in_loop(ConsumerCore.group_metadata)
    state = in_loop(ConsumerCore.state)
    fetch_range = in_loop(ConsumerCore.fetch_range)

    @property
    def core(self) -> ConsumerCore:
        """The core, for transaction blocks."""
        return self._core
