"""The blocking consumer: ConsumerCore in the I/O thread, its application's callbacks in the thread that calls."""

from __future__ import annotations

import asyncio
import functools
import queue
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from fencepost.arguments import Milliseconds, checked
from fencepost.client.blocking.base import BlockingClient
from fencepost.client.configured import configured_by
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.rebalance import RebalanceListener, listener_method
from fencepost.client.records import Fetched, Record
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import ClosedError, UsageError, WakeupError

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


class _Turn:
    """Whose turn it is: one thread's at a time, the callbacks that it serves included."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._depth = 0
        self.ending = False

    def __enter__(self) -> None:
        """Raises UsageError in a second thread, ClosedError when the consumer is being closed."""
        me = threading.get_ident()
        with self._changed:
            if self._owner not in (None, me):
                raise UsageError(
                    "another thread is using this consumer; a consumer is for one thread at a time. Give each thread a "
                    "consumer of its own (one group_id shares the partitions among them); wakeup(), close() and what "
                    "only looks may come from any thread"
                )
            if self.ending and self._owner is None:
                raise ClosedError("this Consumer is closed")
            self._owner = me
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._changed.notify_all()

    def last(self, interrupt: Callable[[], None]) -> _Turn:
        """Nobody else gets a turn any more; waits for the end of another thread's. To be entered."""
        me = threading.get_ident()
        with self._changed:
            self.ending = True
            while self._owner not in (None, me):
                interrupt()
                self._changed.wait()
            self._owner = me
        return self


def _listening(
    method: Callable[Concatenate[ConsumerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """The blocking twin of a core's async method in which the application's functions may be called."""
    method = checked(method)

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return self._run_listening(lambda: method(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _polling(
    method: Callable[Concatenate[ConsumerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """As `_listening`, for what hands out records: of a call that is interrupted (Ctrl-C) nothing was handed out."""
    method = checked(method)

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            try:
                return self._run_listening(lambda: method(self._core, *args, **kwargs))
            except WakeupError as error:
                if self._turn.ending:
                    raise ClosedError("this Consumer was closed by another thread") from error
                raise
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._io.call_soon(self._core.take_back)
                raise

    functools.update_wrapper(call, method)
    return call


def _alone(
    method: Callable[Concatenate[ConsumerCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """The blocking twin of a core's async method; other threads are kept out meanwhile."""
    method = checked(method)

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return self._io.run(method(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _changing(method: Callable[Concatenate[ConsumerCore, P], R]) -> Callable[Concatenate[Consumer, P], R]:
    """As `_plain`, for what changes what is read: other threads are kept out."""
    plain = _plain(method)

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return plain(self, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


def _plain(method: Callable[Concatenate[ConsumerCore, P], R]) -> Callable[Concatenate[Consumer, P], R]:
    """The twin of a core's plain method: run in the I/O thread, between other calls. From any thread."""
    method = checked(method)

    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def run() -> R:
            return method(self._core, *args, **kwargs)

        self._check()
        return self._io.run(run())

    functools.update_wrapper(call, method)
    return call


class Consumer(BlockingClient[ConsumerCore]):
    """A blocking consumer for one thread at a time. Reads committed records by default.

    A call while another thread's goes on raises UsageError. `wakeup`, `close` (the other's poll then raises
    ClosedError) and what only looks (assignment, positions, lag, metrics, state, ...) may come from any thread.
    """

    _config_type = ConsumerConfig

    @configured_by(ConsumerConfig)
    def __init__(self, config: ConsumerConfig) -> None:
        """`bootstrap_servers`: "host:port,...", or a list of these; the settings are Kafka's, in snake_case."""
        super().__init__(lambda: ConsumerCore(Cluster(runtime_for(config), config), config))
        self._telling = _Telling()
        self._turn = _Turn()
        self._core.listener = self._telling.tell
        self._core.call_user = self._telling.call

    def _mine(self) -> _Turn:
        """To be entered by whoever uses the consumer."""
        self._check()  # first: in a forked child nothing may be waited for
        return self._turn

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
        with self._mine():
            if listener is not None:
                self.set_rebalance_listener(listener)
            self._run(lambda core: core.subscribe(topics, pattern=pattern))

    @checked
    def set_rebalance_listener(self, listener: RebalanceListener | None) -> None:
        """Who is told of rebalances."""
        with self._mine():
            self._telling.listener = listener

    def __iter__(self) -> Iterator[Record]:
        while not self._closed:
            yield from self._core.one_by_one(self.poll(1000))

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

    poll = _polling(ConsumerCore.poll)
    poll_columns = _polling(ConsumerCore.poll_columns)
    poll_arrow = _polling(ConsumerCore.poll_arrow)
    commit = _listening(ConsumerCore.commit)
    unsubscribe = _listening(ConsumerCore.unsubscribe)

    assign = _alone(ConsumerCore.assign)
    seek_to_beginning = _alone(ConsumerCore.seek_to_beginning)
    seek_to_end = _alone(ConsumerCore.seek_to_end)
    seek_to_timestamp = _alone(ConsumerCore.seek_to_timestamp)
    offsets_for = _alone(ConsumerCore.offsets_for)
    position = _alone(ConsumerCore.position)
    reset_to_committed = _alone(ConsumerCore.reset_to_committed)
    committed = _alone(ConsumerCore.committed)
    partitions_for = _alone(ConsumerCore.partitions_for)

    seek = _changing(ConsumerCore.seek)
    pause = _changing(ConsumerCore.pause)
    resume = _changing(ConsumerCore.resume)
    paused = _plain(ConsumerCore.paused)
    assignment = _plain(ConsumerCore.assignment)
    subscription = _plain(ConsumerCore.subscription)
    positions = _plain(ConsumerCore.positions)
    forget_positions = _plain(ConsumerCore.forget_positions)
    lag = _plain(ConsumerCore.lag)
    commit_async = _changing(ConsumerCore.commit_async)
    group_metadata = _plain(ConsumerCore.group_metadata)
    metrics = _plain(ConsumerCore.metrics)
    state = _plain(ConsumerCore.state)

    @property
    def core(self) -> ConsumerCore:
        """What a transaction block works with."""
        return self._core

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError. From any thread."""
        self._check()
        self._io.call_soon(self._core.wakeup)

    def close(self) -> None:
        """Commit if enable_auto_commit, leave the group, release everything. May be called again, from any thread.

        A call of another thread is waited for; a poll ends at once, with ClosedError.
        """
        if self._closed or not self._io.is_this_process():
            return
        with self._turn.last(lambda: self._io.call_soon(self._core.wakeup)):
            if not self._closed:
                try:
                    self._run_listening(self._core.close)
                finally:
                    self._closed = True
                    self._io.forget(self._core)


async def _next_of(pieces: AsyncIterator[Fetched]) -> Fetched | None:
    return await anext(pieces, None)
