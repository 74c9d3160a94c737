"""The blocking consumer: a ConsumerCore in the I/O thread, with callbacks in the calling thread."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from fencepost.arguments import Int32, Milliseconds, checked
from fencepost.client.blocking.base import cluster_for
from fencepost.client.blocking.listening import ListeningClient, alone, changing, plain, polling
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import EVERY_ROW, ConsumerCore
from fencepost.client.consumer.deserializing import check_synchronous
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.turn import POLL
from fencepost.client.records import Fetched, Record, to_table
from fencepost.client.types import RebalanceListener
from fencepost.config import ConsumerConfig
from fencepost.extras import require
from fencepost.process.signal_waits import result_of

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(ListeningClient[ConsumerCore]):
    """A blocking consumer for one thread at a time. By default it reads only committed records.

    `for record in consumer` and `next(consumer)` wait for records, at most `consumer_timeout_ms` if that is set.

    A call during another thread's call, or during a `transaction(consumer)` block, raises UsageError. Any thread may
    call `wakeup`, `close` and the methods that only read state (assignment, positions, lag, metrics, state, ...).
    `close` makes another thread's poll raise ClosedError.
    """

    _config_type = ConsumerConfig

    @configured_by(ConsumerConfig)
    def __init__(self, config: ConsumerConfig) -> None:
        """Create a consumer for `bootstrap_servers`: "host:port,...", or a list.

        Settings are keyword arguments with Kafka's names in snake_case.
        """
        check_synchronous(config)
        super().__init__(lambda call_user: ConsumerCore(cluster_for(config), config, call_user))
        self._rest: Iterator[Record] = iter(())  # records of an iteration that were polled and not returned yet

    @checked
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """Subscribe to topics, whose partitions the group assigns. It replaces the previous subscription.

        Args:
            topics: Names of topics, or a pattern.
            listener: Called during poll for each rebalance; None keeps the current listener.
            pattern: Subscribe to all topics whose whole name matches.

        Raises:
            ConfigurationError: There is no group_id, or a name or pattern is invalid.
            UsageError: The consumer has assigned partitions (`assign`).
        """

        def run() -> None:
            if listener is not None:
                self._core.listener = listener
            self._io.call(lambda: self._core.subscribe(topics, pattern=pattern))

        self._held("subscribe", run)

    @checked
    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Set the listener that is called during poll for each rebalance."""
        self._held("set_rebalance_listener", lambda: setattr(self._core, "listener", listener))

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield from self._rest
            if not self._refill():
                return

    def __next__(self) -> Record:
        while True:
            for record in self._rest:  # a signal handler may raise after next() took the record, and lose it
                return record
            if not self._refill():
                raise StopIteration

    def _refill(self) -> bool:
        """Poll for an iteration. Return false after close, or after `consumer_timeout_ms` without a record."""
        limit_ms = self._core.config.consumer_timeout_ms
        deadline_s = math.inf if limit_ms is None else self._io.loop.time() + limit_ms / 1000
        while not self._closed:
            left_ms = 1000.0 if limit_ms is None else (deadline_s - self._io.loop.time()) * 1000
            wait_ms = max(0, min(1000, math.ceil(left_ms)))
            hold = self._take(POLL)
            try:
                handed = self._io.call(lambda: self._core.hand_out(wait_ms))  # noqa: B023 (called at once)
                records = self._core.records.of(handed)
                self._rest = handed.one_by_one(records)
            finally:
                hold.ended = True
            if records:
                return True
            if left_ms <= wait_ms and limit_ms is not None:
                return False
        return False

    @checked
    def close(self, timeout_ms: Milliseconds | None = CLOSE_MS, *, commit: bool | None = None) -> None:
        """Leave the group and release all resources. Any thread may call it, also repeatedly.

        Another thread's poll raises ClosedError at once. The call waits for any other call, and for a transaction()
        block.

        Args:
            timeout_ms: Maximum wait for brokers, in ms; None: the limit of each request.
            commit: Commit the positions first; None: if `enable_auto_commit` is set, and a failure is only logged.

        Raises:
            UsageError: `commit` is True, and there is no group_id. The consumer stays open.
            KafkaError: The commit of `commit=True` failed. The consumer is closed.
        """
        if commit:
            self._core.check_group()
        self._close(lambda: self._core.close(timeout_ms, commit=commit))

    poll = polling(ConsumerCore.poll, ConsumerCore.hand_out, lambda core, handed: core.records.of(handed))
    poll_columns = polling(ConsumerCore.poll_columns, ConsumerCore.hand_out, lambda core, handed: handed.pieces)

    def poll_arrow(
        self, timeout_ms: Milliseconds = 0, max_records: int | None = None, *, headers: bool = False
    ) -> pa.Table:
        """Poll records as an Arrow table of bytes, with the columns of Spark's Kafka source.

        Args:
            timeout_ms: Maximum wait for the first record, in ms.
            max_records: Maximum number of records; None: all that have been fetched.
            headers: Include the headers.

        Raises:
            KafkaError: As `poll` raises.
        """
        require("arrow", "poll_arrow")
        _check_poll_arrow(timeout_ms, max_records, headers=headers)  # no `checked` around it: see `_polled`
        most = EVERY_ROW if max_records is None else max_records
        return self._polled(
            lambda: self._core.hand_out(timeout_ms, most), lambda handed: to_table(handed.pieces, headers=headers)
        )

    @checked
    def fetch_range(
        self, topic: str, partition: Int32, start: int, end: int, *, timeout_ms: Milliseconds | None = None
    ) -> Iterator[Fetched]:
        """Iterate over all visible records of a partition with start <= offset < end, as columns.

        The partition need not be assigned. The next piece is fetched while the caller processes the current one.

        Args:
            topic: The topic.
            partition: The partition.
            start: First offset.
            end: Offset after the last one.
            timeout_ms: Maximum wait for further records, in ms; default: default_api_timeout_ms.

        Raises:
            OffsetOutOfRangeError: `start` is below the log start or after its end.
            KafkaTimeoutError: No further records arrived in time, for example because of an open transaction.
            CorruptRecordError: A batch cannot be read. All records before it have been returned.
        """
        self._check()
        pieces = self._core.fetch_range(topic, partition, start, end, timeout_ms=timeout_ms)
        following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
        try:
            while (piece := result_of(following)) is not None:
                following = asyncio.run_coroutine_threadsafe(_next_of(pieces), self._io.loop)
                yield piece
        finally:
            following.cancel()

    commit = alone(ConsumerCore.commit)
    unsubscribe = alone(ConsumerCore.unsubscribe)

    assign = alone(ConsumerCore.assign)
    incremental_assign = alone(ConsumerCore.incremental_assign)
    incremental_unassign = alone(ConsumerCore.incremental_unassign)
    seek_to_beginning = alone(ConsumerCore.seek_to_beginning)
    seek_to_end = alone(ConsumerCore.seek_to_end)
    seek_to_timestamp = alone(ConsumerCore.seek_to_timestamp)
    offsets_for = alone(ConsumerCore.offsets_for)
    beginning_offsets = alone(ConsumerCore.beginning_offsets)
    end_offsets = alone(ConsumerCore.end_offsets)
    position = alone(ConsumerCore.position)
    reset_to_committed = alone(ConsumerCore.reset_to_committed)
    committed = alone(ConsumerCore.committed)
    partitions_for = alone(ConsumerCore.partitions_for)
    client_instance_id = alone(ConsumerCore.client_instance_id)

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
    store_offsets = changing(ConsumerCore.store_offsets)
    group_metadata = plain(ConsumerCore.group_metadata)
    state = plain(ConsumerCore.state)

    @property
    def core(self) -> ConsumerCore:
        """The core, for transaction blocks."""
        return self._core


@checked
def _check_poll_arrow(timeout_ms: Milliseconds, max_records: int | None, *, headers: bool) -> None:
    """Validate the arguments like `checked`."""


async def _next_of(pieces: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(pieces, None)
