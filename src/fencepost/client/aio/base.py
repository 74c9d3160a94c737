"""Base of the asyncio clients. Every call must come from the event loop in which the client was created."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

from fencepost.arguments import checked, prepared, presented_as
from fencepost.client.configured import Configured
from fencepost.client.net.asyncio_runtime import AsyncioRuntime
from fencepost.client.net.io_thread import GRACE_S
from fencepost.client.net.open_clients import (
    LEAVING_MS,
    Leaving,
    leave_quietly,
    log_lost_work,
    report_close_failure,
    warn_unclosed,
)
from fencepost.errors import ClosedError, ForkedError, UsageError
from fencepost.process.at_exit import CloseOrder, at_exit, patience_ms

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Leaving)
C_co = TypeVar("C_co", bound=Leaving, covariant=True)

_open: dict[int, tuple[AsyncioRuntime, Leaving]] = {}
_leaving: set[asyncio.Task[None]] = set()
os.register_at_fork(after_in_child=_open.clear)


class AsyncClient(Configured, Generic[C_co]):
    """Holds a core that runs in the event loop.

    Calls in another loop raise UsageError, calls after close ClosedError, and calls in a forked child ForkedError.
    Closing it in a forked child does nothing, because the parent owns it.
    """

    def __init__(self, runtime: AsyncioRuntime, core: C_co) -> None:
        self._core = core
        self._begin(runtime)
        _open[id(core)] = (runtime, core)
        at_exit(CloseOrder.CLIENTS, _end)

    def _begin(self, runtime: AsyncioRuntime) -> None:
        """Set the attributes of a client besides its core."""
        self._runtime = runtime
        self._closed = self._ending = False
        self._pid = os.getpid()

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
            log_lost_work(core)
            runtime.silence()

    @property
    def closed(self) -> bool:
        """True after close."""
        return self._closed

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by Kafka's names in snake_case (see client.metrics).

        Any thread may call it, also after close.
        """
        return self._core.metrics()

    def _is_here(self) -> bool:
        return os.getpid() == self._pid

    def _here(self) -> C_co:
        """Return the core if the call is allowed here."""
        if _running_loop() is not self._runtime.loop or self._closed:
            raise self._refusal()
        return self._core

    def _check_open(self) -> None:
        """Raise ForkedError or ClosedError, for calls that may come from outside the loop."""
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
        """Close once. Does nothing in a forked child. Callbacks during it may still use the client."""
        if self._closed or os.getpid() != self._pid:
            return
        core = self._here()
        if self._ending:
            await close(core)
            return
        self._ending = True
        try:
            await close(core)
        finally:
            self._closed = True
            _open.pop(id(core), None)

    @checked
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another user name or password from now on, like Producer.set_sasl_credentials."""
        from fencepost.client.net.sasl_login import change_credentials  # loaded by clients that log in

        change_credentials(self._here().cluster, username, password)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Release all resources. `timeout_ms` limits the wait for brokers. It may be called again."""
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
            report_close_failure(error, failure)


def in_loop(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[AsyncClient[C], P], R]:
    """Return the client's variant of a core's method, plain or async."""
    ready = prepared(method)

    def call(self: AsyncClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return ready(self._here(), *args, **kwargs)()

    return presented_as(method, call)


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
    """Close open clients at the end of the program. Loops that still run in other threads can deliver records."""
    for runtime, core in list(_open.values()):
        if runtime.loop.is_running():
            timeout_ms = patience_ms()
            left = asyncio.run_coroutine_threadsafe(leave_quietly(core, timeout_ms), runtime.loop)
            concurrent.futures.wait([left], timeout=timeout_ms / 1000 + GRACE_S)
    for runtime, core in list(_open.values()):
        log_lost_work(core)
        runtime.silence()
