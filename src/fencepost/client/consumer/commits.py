"""Sends a consumer's commits one after another, in the order of their requests.

A commit without a waiting caller is retried like any other. No later commit overtakes it, so an older position never
overwrites a newer one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from fencepost.client.calling import UserCall
from fencepost.client.group.committed_offsets import GROUP_LANE, commit
from fencepost.client.interceptors import ConsumerInterceptors
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.runtime import Event
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import GroupFencedError, KafkaError, KafkaTimeoutError, RetriableError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.values import MutableValue

log = logging.getLogger("fencepost.client.consumer")

NEW_EPOCH_PAUSE_MS: Final = 50

Committed = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[KafkaError | None, Committed], object]


def _unexpected(cause: Exception) -> KafkaError:
    error = KafkaError(f"commit: {cause!r}")
    error.__cause__ = cause
    return error


class _Order(MutableValue, kw_only=False):
    positions: Committed
    held: Mapping[TopicPartition, object]  # the partitions' state when the commit was requested
    deadline_ms: int
    done: Event
    callback: OnCommit | None = None
    automatic: bool = False
    error: KafkaError | None = None


class Commits:
    """The queue of commits of one consumer.

    Args:
        cluster: The cluster's metadata and connections.
        config: The settings.
        metrics: The consumer's counters.
        arrived: Set when a callback is ready to be called.
        identity: Returns the current identity in the group.
        held: Returns an object for each assigned partition, another one after each assignment.
        interceptors: Called after each successful commit.
        committed: Called with the positions of each successful commit.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        metrics: ConsumerMetrics,
        arrived: Event,
        identity: Callable[[], GroupMetadata],
        held: Callable[[], Mapping[TopicPartition, object]],
        interceptors: ConsumerInterceptors,
        committed: Callable[[Committed], object],
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._metrics = metrics
        self._arrived = arrived
        self._identity = identity
        self._held = held
        self._interceptors = interceptors
        self._committed = committed
        self._orders: deque[_Order] = deque()
        self._working = False
        self._current: _Order | None = None
        self.finished: deque[UserCall] = deque()
        """Callbacks and interceptors to call in the application's own thread, in the order of the commits."""
        self._last_ms = self._runtime.now_ms()

    def start(
        self, positions: Committed, deadline_ms: int, callback: OnCommit | None = None, *, automatic: bool = False
    ) -> _Order:
        """Queue a commit."""
        held = self._held()
        order = _Order(
            positions,
            {partition: held[partition] for partition in positions if partition in held},
            deadline_ms,
            self._runtime.event(),
            callback,
            automatic,
        )
        self._last_ms = self._runtime.now_ms()
        self._orders.append(order)
        if not self._working:
            self._working = True
            self._runtime.spawn(self._work())
        return order

    async def perform(self, positions: Committed, deadline_ms: int) -> None:
        """Queue a commit, and wait for it and all earlier ones. Raises the commit's error."""
        order = self.start(positions, deadline_ms)
        await order.done.wait(deadline_ms - self._runtime.now_ms())
        if self._current is order:
            await order.done.wait()  # it has the same deadline, and sets the error
        if not order.done.is_set():
            raise KafkaTimeoutError("commit: earlier commits are still on their way", outcome_unknown=True)
        if order.error is not None:
            raise order.error

    def due(self) -> bool:
        """Return true if the auto-commit interval has passed."""
        due_ms = self._last_ms + self._config.auto_commit_interval_ms
        return self._config.enable_auto_commit and self._runtime.now_ms() >= due_ms

    async def quietly(self, positions: Committed, deadline_ms: int) -> None:
        """Commit automatically and wait, before partitions are given up and on close. Log failures."""
        if not positions:
            return
        try:
            interval_ms = self._runtime.now_ms() + self._config.auto_commit_interval_ms
            await self.perform(positions, min(deadline_ms, interval_ms))
        except (RetriableError, GroupFencedError) as error:
            log.warning("auto commit failed: %s", error)

    async def revoked(
        self, gone: Iterable[TopicPartition], held: Committed, committed: Committed, deadline_ms: int
    ) -> Committed:
        """Commit the positions of partitions that a rebalance takes away, without those in `committed`. Return them."""
        positions = {each: held[each] for each in gone if each in held and held[each] != committed.get(each)}
        await self.quietly(positions, deadline_ms)
        return positions

    async def drain(self, deadline_ms: int) -> None:
        """Wait for the commits in flight, for up to auto_commit_interval_ms."""
        last = self._orders[-1] if self._orders else self._current
        if last is not None:
            left_ms = max(deadline_ms - self._runtime.now_ms(), 0)
            await last.done.wait(min(self._config.auto_commit_interval_ms, left_ms))

    def _finish(self, order: _Order) -> None:
        order.done.set()
        if order.error is None and self._interceptors:
            self.finished.append(UserCall(partial(self._interceptors.committed, order.positions)))
        if order.callback is not None:
            called = partial(order.callback, order.error, order.positions)
            self.finished.append(UserCall(called, "commit callback"))
        if self.finished:
            self._arrived.set()

    async def _work(self) -> None:
        while self._orders:
            order = self._current = self._orders.popleft()
            begun_ms = self._runtime.now_ms()
            try:
                await self._send(order)
                self._committed(order.positions)
                self._metrics.committed(self._runtime.now_ms() - begun_ms)
            except Exception as error:  # noqa: BLE001 (the waiting caller raises it)
                self._metrics.commit_failed_total += 1
                order.error = error if isinstance(error, KafkaError) else _unexpected(error)
                if order.automatic:
                    log.warning("auto commit failed: %s", error)
            self._finish(order)
        self._working, self._current = False, None

    async def _send(self, order: _Order) -> None:
        """Send one commit. After a stale member epoch (KIP-848), retry with the epoch of the next heartbeat."""
        while True:
            self._check_held(order)
            group = self._identity()
            try:
                await commit(self._cluster, group, order.positions, order.deadline_ms, lane=GROUP_LANE)
                return
            except GroupFencedError as error:
                if error.code != E.STALE_MEMBER_EPOCH or self._runtime.now_ms() >= order.deadline_ms:
                    raise
                while self._identity() == group and self._runtime.now_ms() < order.deadline_ms:
                    await self._cluster.links.pause(NEW_EPOCH_PAUSE_MS)

    def _check_held(self, order: _Order) -> None:
        """Raise GroupFencedError if the group has taken a partition away since the commit was requested.

        The broker would accept the commit under the current membership, and overwrite the position of the new owner.
        """
        now = self._held()
        gone = [f"{at.topic}-{at.partition}" for at, was in order.held.items() if now.get(at) is not was]
        if gone:
            raise GroupFencedError(
                f"nothing of this commit is sent: the group took {', '.join(gone)} away since it was asked for"
            )
