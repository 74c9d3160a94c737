"""Blocking clients whose core calls the application: callbacks run in the thread that calls.

(See `io_thread.IoCall`.) One thread at a time uses such a client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fencepost.arguments import Milliseconds, checked, prepared
from fencepost.client.blocking.base import BlockingClient
from fencepost.client.calling import CallUser
from fencepost.client.net.io_thread import call_in_waiting_thread
from fencepost.client.net.open_clients import CLOSE_MS, Leaving
from fencepost.client.net.turn import POLL, Hold, Polls, Soon, Turn, at_once, look_again


class Polled(Leaving, Protocol):
    """A core that is polled."""

    turn: Turn
    poll_ends: Polls

    def wakeup(self, soon: Soon = at_once) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError."""
        ...

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Release everything."""
        ...


class Undelivered(Protocol):
    """What a poll hands out, until it has reached the application."""

    delivered: bool


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Polled)
H = TypeVar("H", bound=Undelivered)
C_co = TypeVar("C_co", bound=Polled, covariant=True)


def polling(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
    hand_out: Callable[Concatenate[C, P], Coroutine[Any, Any, H]],
    make: Callable[[C, H], R],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The twin of a core's `method` that hands out records: `make`, run in the calling thread, gives its result."""
    ready = prepared(hand_out)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        begin = ready(self._core, *args, **kwargs)
        return self._polled(begin, lambda handed: make(self._core, handed))

    functools.update_wrapper(call, method)
    return call


def alone(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The blocking twin of a core's async method; other threads are kept out meanwhile."""
    ready = prepared(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._held(method.__name__, lambda: self._io.call(ready(self._core, *args, **kwargs)))

    functools.update_wrapper(call, method)
    return call


def changing(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """As `plain`, for what changes what is read: other threads are kept out."""
    inner = plain(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._held(method.__name__, lambda: inner(self, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def plain(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """The twin of a core's plain method: run in the I/O thread, between other calls. From any thread."""
    ready = prepared(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        inner = ready(self._core, *args, **kwargs)

        async def run() -> R:
            return inner()

        self._check()
        return self._io.call(run)

    functools.update_wrapper(call, method)
    return call


class ListeningClient(BlockingClient[C_co]):
    """For one thread at a time: a call while another thread's goes on raises UsageError."""

    def __init__(self, make: Callable[[CallUser], C_co]) -> None:
        """`make` runs in the I/O thread and returns the core, which calls the application with what it is given."""
        super().__init__(lambda: make(call_in_waiting_thread))

    def _take(self, method: str) -> Hold:
        self._check()  # first: in a forked child the holds are those of the parent's threads
        return self._core.turn.take(method)

    def _held(self, method: str, run: Callable[[], R]) -> R:
        hold = self._take(method)
        try:
            return run()
        finally:
            hold.ended = True

    def _polled(self, hand_out: Callable[[], Coroutine[Any, Any, H]], make: Callable[[H], R]) -> R:
        """What is made, in this thread, of what a poll hands out.

        A call that raises, for whatever reason and at whatever moment, has handed out nothing: no function is called
        between the mark that it is delivered and the return, so no signal handler runs there.
        """
        hold = self._take(POLL)
        try:
            handed = self._io.call(hand_out)
            made = make(handed)
            handed.delivered = hold.ended = True
            return made
        finally:
            hold.ended = True

    def wakeup(self) -> None:
        """Make the poll that runs now, or the next poll, raise WakeupError. From any thread."""
        self._check()
        self._core.wakeup(self._io.call_soon)

    @checked
    def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Leave the group, release everything, as the core does. May be called again, from any thread.

        Brokers that do not answer are waited for at most `timeout_ms`. A poll of another thread ends at once, with
        ClosedError; any other call, or a transaction(), is waited for.
        """
        if self._closed or not self._io.is_this_process():
            return
        hold = self._core.turn.take_last()
        try:
            self._wait_for_others(hold)
            if not self._ending:  # else another thread has closed it meanwhile, or this is a listener of close()
                self._ending = True
                try:
                    self._io.call(lambda: self._core.close(timeout_ms))
                finally:
                    self._closed = True
                    self._io.forget(self._core)
        finally:
            hold.ended = True

    def _wait_for_others(self, hold: Hold) -> None:
        if not self._core.turn.others(hold):
            return
        core = self._core
        self._io.call_soon(core.poll_ends.close)
        try:
            while self._core.turn.others(hold):
                look_again()
        except BaseException:
            self._io.call_soon(lambda: core.poll_ends.close(closing=False))
            raise
