"""Calls of the application's functions by a client's core. The client decides in which thread or task they run."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from fencepost.counted import duration_words

log = logging.getLogger("fencepost.client")

SLOW_MS: Final = 100
SLOW_PROVIDER_MS: Final = 1_000  # for functions that contact another server, in a thread of their own
CONSUMER_WAITS: Final = "its poll, commit or close waits meanwhile, and its group in a rebalance"
SHARES_WAIT: Final = "its poll, commit or close waits meanwhile, and the locks of its records run out"
MOST_NAMED: Final = 100  # number of functions; an application that creates a function per record must not fill the log

T = TypeVar("T")

CallUser = Callable[[Callable[[], Any]], Awaitable[None]]


def is_asynchronous(function: object) -> bool:
    """Return true for a coroutine function, and for an object that is called as one."""
    return callable(function) and (
        inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    )


async def call_here(function: Callable[[], Any]) -> None:
    """Call a function in the core's own task, and await its result if it is awaitable."""
    outcome = function()
    if inspect.isawaitable(outcome):
        await outcome


def raise_first(failures: list[Exception]) -> None:
    """Raise the first exception of a list, if there is one, with a note about each later one. Empties the list."""
    raised, failures[:] = failures[:], []
    for later in raised[1:]:
        raised[0].add_note(f"then {type(later).__name__}: {later}")
    if raised:
        raise raised[0]


class Caller(Protocol):
    """Runs the application's functions for a producer."""

    waits: str  # the effect of a running function, for the log
    awaits: bool  # true if the runtime's event loop is the application's own, and may run its coroutines

    def call(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """Run `job`, which raises nothing, after all jobs before it; then run `then` in the runtime."""
        ...

    def end(self) -> None:
        """Accept no more jobs."""
        ...


class InlineCaller:
    """Runs jobs at once, in the runtime."""

    waits = "the event loop stands still while it runs"
    awaits = True

    def call(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """Run a job; see Caller."""
        job()
        then()

    def end(self) -> None:
        """Do nothing; see Caller."""


class SlowCalls:
    """Logs each slow function of the application, once."""

    def __init__(self, client: str, waits: str, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.running: tuple[str, Callable[..., object], int] | None = None  # kind, function, and start time
        self._client = client
        self._waits = waits
        self._named: set[str] = set()

    def record_call(self, kind: str, function: Callable[..., object], ms: int, least_ms: int = SLOW_MS) -> None:
        """Record that `function` took `ms`. It is logged if that is `least_ms` or more."""
        if ms < least_ms or len(self._named) >= MOST_NAMED:
            return
        name = f"{kind} {name_of(function)}"
        if name not in self._named:
            self._named.add(name)
            log.warning(
                "%s: the %s took %d ms; %s. Hand slow work to a thread or a queue (each function is named once)",
                self._client,
                name,
                ms,
                self._waits,
            )

    def in_progress(self) -> str:
        """Return a description of the running function and its duration, or ""."""
        running = self.running
        if running is None:
            return ""
        kind, function, since_ms = running
        return f"the {kind} {name_of(function)} has been running for {duration_words(self.now_ms() - since_ms)}"


def name_of(function: Callable[..., object]) -> str:
    """Return a function's name, with the file and line of its definition if known."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    code = getattr(inspect.unwrap(function), "__code__", None)
    at = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{module}.{name}{at}"


class UserCall(NamedTuple):
    """A call of the application's function.

    `kind` is its name in the log if it is slow; None: the time is taken elsewhere.
    """

    function: Callable[[], Any]
    kind: str | None = None


async def call_first(waiting: deque[T], call_of: Callable[[T], UserCall], call_user: CallUser, slow: SlowCalls) -> None:
    """Remove the first waiting item and call its function. Raises the function's errors.

    If the client's call is interrupted before the function begins, the item stays first for the next call.
    """
    first = waiting.popleft()
    (function, kind), begun = call_of(first), False
    begun_ms = slow.now_ms()

    def run() -> Any:
        nonlocal begun
        begun = True
        return function()

    try:
        await call_user(run)
    finally:
        if not begun:
            waiting.appendleft(first)
        elif kind is not None:
            slow.record_call(kind, function, slow.now_ms() - begun_ms)
