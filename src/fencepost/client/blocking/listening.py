"""How a blocking client is made whose core calls the application: its callbacks run in the thread that calls."""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fencepost.arguments import Milliseconds, checked
from fencepost.client.blocking.base import BlockingClient
from fencepost.client.calling import CallUser
from fencepost.client.net.open_clients import CLOSE_MS, Leaving
from fencepost.errors import ClosedError, UsageError, WakeupError


class Polled(Leaving, Protocol):
    """A core that is polled."""

    def take_back(self) -> None:
        """What the last poll gave did not reach the application."""
        ...

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError."""
        ...

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Release everything."""
        ...


P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
C = TypeVar("C", bound=Polled)
C_co = TypeVar("C_co", bound=Polled, covariant=True)


class Telling:
    """Carries calls of the application's functions from the I/O thread to the thread that polls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[None]] | None] = queue.SimpleQueue()

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


class Turn:
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
                raise ClosedError("this client is closed")
            self._owner = me
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._changed.notify_all()

    def last(self, interrupt: Callable[[], None]) -> Turn:
        """Nobody else gets a turn any more; waits for the end of another thread's. To be entered."""
        me = threading.get_ident()
        with self._changed:
            self.ending = True
            while self._owner not in (None, me):
                interrupt()
                self._changed.wait()
            self._owner = me
        return self


def listening(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The blocking twin of a core's async method in which the application's functions may be called."""
    method = checked(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return self._run_listening(lambda: method(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def polling(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """As `listening`, for what hands out records: of a call that is interrupted (Ctrl-C) nothing was handed out."""
    method = checked(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            try:
                return self._run_listening(lambda: method(self._core, *args, **kwargs))
            except WakeupError as error:
                if self._turn.ending:
                    raise ClosedError(f"this {type(self).__name__} was closed by another thread") from error
                raise
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._io.call_soon(self._core.take_back)
                raise

    functools.update_wrapper(call, method)
    return call


def alone(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The blocking twin of a core's async method; other threads are kept out meanwhile."""
    method = checked(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return self._io.run(method(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def changing(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """As `plain`, for what changes what is read: other threads are kept out."""
    inner = plain(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mine():
            return inner(self, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


def plain(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The twin of a core's plain method: run in the I/O thread, between other calls. From any thread."""
    method = checked(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def run() -> R:
            return method(self._core, *args, **kwargs)

        self._check()
        return self._io.run(run())

    functools.update_wrapper(call, method)
    return call


class ListeningClient(BlockingClient[C_co]):
    """For one thread at a time: a call while another thread's goes on raises UsageError."""

    def __init__(self, make: Callable[[CallUser], C_co]) -> None:
        """`make` runs in the I/O thread and returns the core, which calls the application with what it is given."""
        self._telling = telling = Telling()
        self._turn = Turn()
        super().__init__(lambda: make(telling.call))

    def _mine(self) -> Turn:
        """To be entered by whoever uses the client."""
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

    def _made(self, poll: Callable[[], F], make: Callable[[F], R]) -> R:
        """What is made of what `poll` gives, in this thread: the I/O thread goes on with the next fetch meanwhile."""
        with self._mine():
            polled = poll()
            try:
                return make(polled)
            except BaseException:  # Ctrl-C, say: nothing was handed out
                self._io.call_soon(self._core.take_back)
                raise

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError. From any thread."""
        self._check()
        self._io.call_soon(self._core.wakeup)

    @checked
    def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Leave the group, release everything, as the core does. May be called again, from any thread.

        Brokers that do not answer are waited for at most `timeout_ms`. A call of another thread is waited for; a poll
        ends at once, with ClosedError.
        """
        if self._closed or not self._io.is_this_process():
            return
        with self._turn.last(lambda: self._io.call_soon(self._core.wakeup)):
            if not self._closed:
                try:
                    self._run_listening(lambda: self._core.close(timeout_ms))
                finally:
                    self._closed = True
                    self._io.forget(self._core)
