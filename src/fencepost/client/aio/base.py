"""How a client for asyncio is made from a core: every call belongs into the event loop that it was made in."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

from fencepost.arguments import checked
from fencepost.at_exit import Turn, at_exit, patience_ms
from fencepost.client.configured import Configured
from fencepost.client.net.asyncio_runtime import AsyncioRuntime
from fencepost.client.net.io_thread import GRACE_S
from fencepost.client.net.open_clients import (
    LEAVING_MS,
    Leaving,
    leave_quietly,
    tell_lost,
    tell_of_close,
    warn_unclosed,
)
from fencepost.errors import ClosedError, ForkedError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Leaving)
C_co = TypeVar("C_co", bound=Leaving, covariant=True)

_open: dict[int, tuple[AsyncioRuntime, Leaving]] = {}
_leaving: set[asyncio.Task[None]] = set()
os.register_at_fork(after_in_child=_open.clear)


class AsyncClient(Configured, Generic[C_co]):
    """Holds a core that lives in the running event loop.

    Use in another loop raises UsageError, after close ClosedError, in a forked child ForkedError; closing it there
    does nothing: it is the parent's.
    """

    def __init__(self, runtime: AsyncioRuntime, core: C_co) -> None:
        self._core = core
        self._runtime = runtime
        self._closed = self._ending = False
        self._pid = os.getpid()
        _open[id(core)] = (runtime, core)
        at_exit(Turn.CLIENTS, _end)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled; make it where it is used")

    def __del__(self) -> None:
        if not hasattr(self, "_pid") or self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        _open.pop(id(self._core), None)
        warn_unclosed(self)
        runtime, core = self._runtime, self._core
        if runtime.loop.is_running():
            runtime.loop.call_soon_threadsafe(_leave_in_background, core)
        else:
            tell_lost(core)
            runtime.silence()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _here(self) -> C_co:
        """The core, for a call that is made where it belongs."""
        if _running_loop() is not self._runtime.loop or self._closed:
            raise self._refusal()
        return self._core

    def _check_open(self) -> None:
        """Raise ForkedError, ClosedError; for calls that may come from outside of the loop."""
        if self._closed or os.getpid() != self._pid:
            raise self._refusal()

    def _refusal(self) -> UsageError:
        name = type(self).__name__
        if os.getpid() != self._pid:
            return ForkedError(f"this {name} was made before fork(); make a new {name} in this process")
        if self._closed:
            return ClosedError(f"this {name} is closed")
        return UsageError(
            f"this {name} belongs to the event loop it was made in, and is used in another loop (or in none); "
            "make one in each loop"
        )

    async def _end(self, close: Callable[[C_co], Coroutine[Any, Any, None]]) -> None:
        """Close once, and never from a forked child. Callbacks during it may still ask the client."""
        if self._closed or self._ending or os.getpid() != self._pid:
            return
        core = self._here()
        self._ending = True
        try:
            await close(core)
        finally:
            self._closed = True
            _open.pop(id(core), None)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Release everything. May be called again. `timeout_ms`: for how long brokers are waited for."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            tell_of_close(error, failure)


def in_loop(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[AsyncClient[C], P], R]:
    """The client's twin of a core's method, plain or async."""

    method = checked(method)

    def call(self: AsyncClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._here(), *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _leave_in_background(core: Leaving) -> None:
    task = asyncio.ensure_future(leave_quietly(core, LEAVING_MS))
    _leaving.add(task)
    task.add_done_callback(_leaving.discard)


def _end() -> None:
    """At the end of the program: loops that still run, in other threads, can still deliver."""
    for runtime, core in list(_open.values()):
        if runtime.loop.is_running():
            timeout_ms = patience_ms()
            left = asyncio.run_coroutine_threadsafe(leave_quietly(core, timeout_ms), runtime.loop)
            concurrent.futures.wait([left], timeout=timeout_ms / 1000 + GRACE_S)
    for runtime, core in list(_open.values()):
        tell_lost(core)
        runtime.silence()
