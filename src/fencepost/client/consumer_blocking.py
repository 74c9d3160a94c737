"""The blocking consumer: ConsumerCore in the I/O thread, its application's callbacks in the thread that calls."""

from __future__ import annotations

import asyncio
import functools
import queue
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from fencepost.client.assembly import cluster_for
from fencepost.client.asyncio_runtime import runtime_for
from fencepost.client.blocking_base import BlockingClient, blocking
from fencepost.client.consumer import ConsumerCore
from fencepost.client.rebalance import RebalanceListener, listener_method
from fencepost.client.records import Fetched, Record
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig, ConsumerSettings
from fencepost.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


class _Telling:
    """Carries calls of the application's functions from the I/O thread to the thread that polls."""

    def __init__(self) -> None:
        self.listener: RebalanceListener | None = None
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[None]] | None] = queue.SimpleQueue()

    async def tell(self, kind: str, partitions: list[TopicPartition]) -> None:
        """Runs in the I/O thread: rebalance news for the listener."""
        method = listener_method(self.listener, kind)
        if method is not None:
            await self.call(functools.partial(method, partitions))

    async def call(self, function: Callable[[], Any]) -> None:
        """Runs in the I/O thread: hand over, wait until the polling thread has called it. Raises what it raises."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls.put((function, told))
        await told

    @staticmethod
    def serve(function: Callable[[], Any], told: asyncio.Future[None]) -> None:
        """Runs in the polling thread."""
        error: Exception | None = None
        try:
            function()
        except Exception as raised:  # noqa: BLE001 (raised where the core awaits it, and so by the poll)
            error = raised
        finally:
            told.get_loop().call_soon_threadsafe(_done, told, error)


def _done(told: asyncio.Future[None], error: Exception | None) -> None:
    if told.done():
        return
    if error is None:
        told.set_result(None)
    else:
        told.set_exception(error)


def _listening(
    method: Callable[Concatenate[ConsumerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """The blocking twin of a core's async method in which the application's functions may be called."""

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run_listening(lambda: method(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _plain(method: Callable[Concatenate[ConsumerCore, P], R]) -> Callable[Concatenate[Consumer, P], R]:
    """The twin of a core's plain method: run in the I/O thread, between other things."""

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def run() -> R:
            return method(self._core, *args, **kwargs)

        self._check()
        return self._io.run(run())

    functools.update_wrapper(call, method)
    return call


class Consumer(BlockingClient[ConsumerCore]):
    """A blocking consumer for one thread (`wakeup` may come from any). Reads committed records by default."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerSettings]) -> None:
        self._make(ConsumerConfig.make({"bootstrap_servers": bootstrap_servers, **settings}))

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> Self:
        """From Kafka's dotted names."""
        self = cls.__new__(cls)
        self._make(ConsumerConfig.from_dotted(settings))
        return self

    def _make(self, config: ConsumerConfig) -> None:
        BlockingClient.__init__(self, lambda: ConsumerCore(cluster_for(runtime_for(config), config), config))
        self._telling = _Telling()
        self._core.listener = self._telling.tell
        self._core.call_user = self._telling.call

    def _run_listening(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a core call while serving the application's functions in this thread."""
        self._check()
        if self._io.is_current():
            raise UsageError("a blocking call from a callback would wait for itself")
        future = asyncio.run_coroutine_threadsafe(call(), self._io.loop)
        future.add_done_callback(lambda _: self._telling.calls.put(None))
        try:
            while (wanted := self._telling.calls.get()) is not None or not future.done():
                if wanted is not None:
                    self._telling.serve(*wanted)
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
    ) -> None:
        """Read what the group assigns of these topics, or of all that match `pattern` whole.

        `listener` is told of rebalances inside poll. Raises ConfigurationError, UsageError.
        """
        self._telling.listener = listener
        self._run(lambda core: core.subscribe(topics, pattern=pattern))

    def __iter__(self) -> Iterator[Record]:
        while not self._closed:
            yield from self.poll(1000)

    def fetch_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_ms: float | None = None
    ) -> Iterator[Fetched]:
        """All visible records of [start, end) of one partition as columns, whatever is assigned.

        The next piece is fetched while the caller works on the one before. Raises as `fetching.fetch_range`.
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

    poll = _listening(ConsumerCore.poll)
    poll_columns = _listening(ConsumerCore.poll_columns)
    poll_arrow = _listening(ConsumerCore.poll_arrow)
    commit = _listening(ConsumerCore.commit)
    unsubscribe = _listening(ConsumerCore.unsubscribe)

    assign = blocking(ConsumerCore.assign)
    seek_to_beginning = blocking(ConsumerCore.seek_to_beginning)
    seek_to_end = blocking(ConsumerCore.seek_to_end)
    seek_to_timestamp = blocking(ConsumerCore.seek_to_timestamp)
    offsets_for = blocking(ConsumerCore.offsets_for)
    position = blocking(ConsumerCore.position)
    reset_to_committed = blocking(ConsumerCore.reset_to_committed)
    committed = blocking(ConsumerCore.committed)
    partitions_for = blocking(ConsumerCore.partitions_for)

    seek = _plain(ConsumerCore.seek)
    pause = _plain(ConsumerCore.pause)
    resume = _plain(ConsumerCore.resume)
    paused = _plain(ConsumerCore.paused)
    assignment = _plain(ConsumerCore.assignment)
    subscription = _plain(ConsumerCore.subscription)
    positions = _plain(ConsumerCore.positions)
    lag = _plain(ConsumerCore.lag)
    commit_async = _plain(ConsumerCore.commit_async)
    group_metadata = _plain(ConsumerCore.group_metadata)
    metrics = _plain(ConsumerCore.metrics)
    state = _plain(ConsumerCore.state)

    @property
    def revocations(self) -> int:
        """How often the group has taken partitions away."""
        return self._core.revocations

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next one, raise WakeupError. From any thread."""
        self._check()
        self._io.call_soon(self._core.wakeup)

    def close(self) -> None:
        """Commit if enable_auto_commit, leave the group, release everything. May be called again."""
        self._io.check_process()
        if not self._closed:
            try:
                self._run_listening(self._core.close)
            finally:
                self._closed = True


async def _next_of(pieces: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(pieces, None)
