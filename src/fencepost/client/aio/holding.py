"""Base of asyncio clients for one task at a time, like `blocking.listening` for threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from fencepost.arguments import Milliseconds, checked, prepared
from fencepost.client.aio.base import AsyncClient
from fencepost.client.net.open_clients import CLOSE_MS, PollingCore
from fencepost.client.net.turn import HOLD_CHECK_MS, POLL, Hold, Inside

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=PollingCore)
C_co = TypeVar("C_co", bound=PollingCore, covariant=True)


def holding(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[HeldClient[C], P], Coroutine[Any, Any, R]]:
    """Return the client's variant of a core's async method, with exclusive use of the client."""
    ready = prepared(method)
    name = POLL if method.__name__.startswith(POLL) else method.__name__

    async def call(self: HeldClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        core = self._here()
        hold = core.turn.take(name)
        try:
            with Inside(hold):
                return await ready(core, *args, **kwargs)()
        finally:
            hold.ended = True

    functools.update_wrapper(call, method)
    return call


def changing(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[HeldClient[C], P], R]:
    """Return the client's variant of a plain method that changes state, with exclusive use of the client."""
    inner = checked(method)

    def call(self: HeldClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        core = self._here()
        hold = core.turn.take(method.__name__)
        try:
            return inner(core, *args, **kwargs)
        finally:
            hold.ended = True

    functools.update_wrapper(call, method)
    return call


class HeldClient(AsyncClient[C_co]):
    """A client for one task at a time. A call during another task's call raises UsageError."""

    def wakeup(self) -> None:
        """Make the current or the next poll raise WakeupError. Any task, thread or signal handler may call it."""
        self._check_open()
        try:
            self._core.wakeup(self._runtime.loop.call_soon_threadsafe)
        except RuntimeError as error:  # the loop is closed
            raise self._refusal() from error

    @checked
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Leave the group and release all resources. Any task may call it, also repeatedly.

        Another task's poll raises ClosedError at once. The call waits for any other call, and for a transaction()
        block.

        Args:
            timeout_ms: Maximum wait for brokers, in ms; None: the limit of each request.
        """
        await self._close(lambda: self._core.close(timeout_ms))

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the core once, after the calls of other tasks have ended."""
        if self._closed or os.getpid() != self._pid:
            return

        async def run(_core: object) -> None:
            await close()

        core = self._here()
        hold = core.turn.take_last()
        try:
            await self._wait_for_others(hold)
            with Inside(hold):
                await self._end(run)
        finally:
            hold.ended = True

    async def _wait_for_others(self, hold: Hold) -> None:
        core = self._core
        if not core.turn.others(hold):
            return
        core.poll_ends.close()
        try:
            while core.turn.others(hold):  # the end of a hold is a plain store, see `turn`
                await self._runtime.sleep_ms(HOLD_CHECK_MS)
        except BaseException:
            core.poll_ends.close(closing=False)
            raise
