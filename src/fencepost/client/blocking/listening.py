"""Base of blocking clients whose core calls functions of the application, which run in the calling thread.

See `io_thread.IoCall`. One thread at a time may use such a client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fencepost.arguments import Milliseconds, checked, prepared
from fencepost.client.blocking.base import BlockingClient
from fencepost.client.calling import CallUser
from fencepost.client.net.io_thread import call_in_waiting_thread
from fencepost.client.net.open_clients import CLOSE_MS, PollingCore
from fencepost.client.net.turn import POLL, Hold, pause_for_holder


class Undelivered(Protocol):
    """Records of a poll. `delivered` becomes true when they have reached the application."""

    delivered: bool


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=PollingCore)
H = TypeVar("H", bound=Undelivered)
C_co = TypeVar("C_co", bound=PollingCore, covariant=True)


def polling(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
    hand_out: Callable[Concatenate[C, P], Coroutine[Any, Any, H]],
    make: Callable[[C, H], R],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """Return the blocking variant of a poll method.

    `make` creates the result from the records, in the calling thread.
    """
    ready = prepared(hand_out)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        begin = ready(self._core, *args, **kwargs)
        return self._polled(begin, lambda handed: make(self._core, handed))

    functools.update_wrapper(call, method)
    return call


def alone(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """Return the blocking variant of a core's async method, with exclusive use of the client."""
    ready = prepared(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._held(method.__name__, lambda: self._io.call(ready(self._core, *args, **kwargs)))

    functools.update_wrapper(call, method)
    return call


def changing(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """Return the blocking variant of a plain method that changes state, with exclusive use of the client."""
    inner = plain(method)

    def call(self: ListeningClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._held(method.__name__, lambda: inner(self, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def plain(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ListeningClient[C], P], R]:
    """Return the blocking variant of a core's plain method. Any thread may call it."""
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
    """A client for one thread at a time. A call during another thread's call raises UsageError."""

    def __init__(self, make: Callable[[CallUser], C_co]) -> None:
        """Create the core with `make`, which runs in the I/O thread. Its argument calls the application's functions."""
        super().__init__(lambda: make(call_in_waiting_thread))

    def _take(self, method: str) -> Hold:
        self._check()  # first, because in a forked child the holds belong to the parent's threads
        return self._core.turn.take(method)

    def _held(self, method: str, run: Callable[[], R]) -> R:
        hold = self._take(method)
        try:
            return run()
        finally:
            hold.ended = True

    def _polled(self, hand_out: Callable[[], Coroutine[Any, Any, H]], make: Callable[[H], R]) -> R:
        """Return the result that `make` creates from the records of a poll, in this thread.

        A call that raises at any moment has delivered nothing. No function is called between setting `delivered` and
        the return, so no signal handler runs there.
        """
        hold = self._take(POLL)
        try:
            handed = self._io.call(hand_out)
            result = make(handed)
            handed.delivered = hold.ended = True
            return result
        finally:
            hold.ended = True

    def wakeup(self) -> None:
        """Make the current or the next poll raise WakeupError. Any thread may call it."""
        self._check()
        self._core.wakeup(self._io.call_soon)

    @checked
    def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Leave the group and release all resources. Any thread may call it, also repeatedly.

        Another thread's poll raises ClosedError at once. The call waits for any other call, and for a transaction()
        block.

        Args:
            timeout_ms: Maximum wait for brokers, in ms; None: the limit of each request.
        """
        self._close(lambda: self._core.close(timeout_ms))

    def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the core once, after the calls of other threads have ended."""
        if self._closed or not self._io.is_this_process():
            return
        hold = self._core.turn.take_last()
        try:
            self._wait_for_others(hold)
            if self._ending is None:  # otherwise another thread has closed it, or this is a listener called by close()
                self._close_core(close)
        finally:
            hold.ended = True

    def _wait_for_others(self, hold: Hold) -> None:
        if not self._core.turn.others(hold):
            return
        core = self._core
        self._io.call_soon(core.poll_ends.close)
        try:
            while self._core.turn.others(hold):
                pause_for_holder()
        except BaseException:
            self._io.call_soon(lambda: core.poll_ends.close(closing=False))
            raise
