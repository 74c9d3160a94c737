"""The blocking consumer: ConsumerCore in the I/O thread, its application's callbacks in the thread that calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from fencepost.arguments import Milliseconds, checked
from fencepost.client.blocking.listening import ListeningClient, alone, changing, plain, polling
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import EVERY_ROW, ConsumerCore
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.turn import POLL
from fencepost.client.rebalance import RebalanceListener
from fencepost.client.records import Fetched, Record, to_table
from fencepost.config import ConsumerConfig
from fencepost.extras import require

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(ListeningClient[ConsumerCore]):
    """A blocking consumer for one thread at a time. Reads committed records by default.

    A call while another thread's goes on, or while it is in a `transaction(consumer)` block, raises UsageError.
    `wakeup`, `close` (the other's poll then raises ClosedError) and what only looks (assignment, positions, lag,
    metrics, state, ...) may come from any thread.
    """

    _config_type = ConsumerConfig

    @configured_by(ConsumerConfig)
    def __init__(self, config: ConsumerConfig) -> None:
        """`bootstrap_servers`: "host:port,...", or a list of these; the settings are Kafka's, in snake_case."""
        super().__init__(lambda call_user: ConsumerCore(Cluster(runtime_for(config), config), config, call_user))

    @checked
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """Read what the group assigns of these topics, or of all that match `pattern` whole.

        `listener`, or None: the listener that was set before, is told of rebalances inside poll. Raises
        ConfigurationError, UsageError.
        """

        def run() -> None:
            if listener is not None:
                self._core.listener = listener
            self._io.call(lambda: self._core.subscribe(topics, pattern=pattern))

        self._held("subscribe", run)

    @checked
    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Who is told of rebalances."""
        self._held("set_rebalance_listener", lambda: setattr(self._core, "listener", listener))

    def __iter__(self) -> Iterator[Record]:
        while not self._closed:
            hold = self._take(POLL)
            try:
                handed = self._io.call(lambda: self._core.hand_out(1000))
                records = handed.one_by_one(self._core.records_of(handed.pieces))
            finally:
                hold.ended = True
            yield from records

    poll = polling(ConsumerCore.poll, ConsumerCore.hand_out, lambda core, handed: core.records_of(handed.pieces))
    poll_columns = polling(ConsumerCore.poll_columns, ConsumerCore.hand_out, lambda core, handed: handed.pieces)

    def poll_arrow(
        self, timeout_ms: Milliseconds = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pa.Table:
        """As `poll`, as an Arrow table with the columns of Spark's Kafka source (`records.arrow_schema`)."""
        require("arrow", "poll_arrow")
        _check_poll_arrow(timeout_ms, max_records, headers=headers)  # no `checked` around it: see `_polled`
        most = EVERY_ROW if max_records is None else max_records
        return self._polled(
            lambda: self._core.hand_out(timeout_ms, most), lambda handed: to_table(handed.pieces, headers=headers)
        )

    @checked
    def fetch_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_ms: Milliseconds | None = None
    ) -> Iterator[Fetched]:
        """All visible records of [start, end) of one partition as columns, whatever is assigned.

        The next piece is fetched while the caller works on the piece before. Raises as `fetch_requests.fetch_range`.
        """
        self._check()
        pieces = self._core.fetch_range(topic, partition, start, end, timeout_ms=timeout_ms)
        following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
        try:
            while (piece := following.result()) is not None:
                following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
                yield piece
        finally:
            following.cancel()

    commit = alone(ConsumerCore.commit)
    unsubscribe = alone(ConsumerCore.unsubscribe)

    assign = alone(ConsumerCore.assign)
    seek_to_beginning = alone(ConsumerCore.seek_to_beginning)
    seek_to_end = alone(ConsumerCore.seek_to_end)
    seek_to_timestamp = alone(ConsumerCore.seek_to_timestamp)
    offsets_for = alone(ConsumerCore.offsets_for)
    position = alone(ConsumerCore.position)
    reset_to_committed = alone(ConsumerCore.reset_to_committed)
    committed = alone(ConsumerCore.committed)
    partitions_for = alone(ConsumerCore.partitions_for)

    seek = changing(ConsumerCore.seek)
    pause = changing(ConsumerCore.pause)
    resume = changing(ConsumerCore.resume)
    paused = plain(ConsumerCore.paused)
    assignment = plain(ConsumerCore.assignment)
    subscription = plain(ConsumerCore.subscription)
    positions = plain(ConsumerCore.positions)
    forget_positions = changing(ConsumerCore.forget_positions)
    lag = plain(ConsumerCore.lag)
    commit_async = changing(ConsumerCore.commit_async)
    group_metadata = plain(ConsumerCore.group_metadata)
    metrics = plain(ConsumerCore.metrics)
    state = plain(ConsumerCore.state)

    @property
    def core(self) -> ConsumerCore:
        """What a transaction block works with."""
        return self._core


@checked
def _check_poll_arrow(timeout_ms: Milliseconds, max_records: int | None, *, headers: bool) -> None:
    """Raise as `checked` does."""


async def _next_of(pieces: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(pieces, None)
