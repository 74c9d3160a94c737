"""How a core calls the application's functions: where they run is the face's business."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

log = logging.getLogger("fencepost.client")

SLOW_MS: Final = 100
SLOW_PROVIDER_MS: Final = 1_000  # of what asks another server, in a thread of its own
CONSUMER_WAITS: Final = "its poll, commit or close waits meanwhile, and its group in a rebalance"
MOST_NAMED: Final = 100  # functions; an application that makes a new one for each record does not fill the log

T = TypeVar("T")

CallUser = Callable[[Callable[[], Any]], Awaitable[None]]


async def call_here(function: Callable[[], Any]) -> None:
    """In the core's own task; what is awaitable is awaited."""
    outcome = function()
    if inspect.isawaitable(outcome):
        await outcome


class Caller(Protocol):
    """Where a producer's functions of the application run."""

    waits: str  # for the log: what waits while one of them runs

    def call(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """Run `job`, which raises nothing, behind all jobs before it; then `then` in the runtime."""
        ...

    def end(self) -> None:
        """Nothing more is to be called."""
        ...


class CallHere:
    """In the runtime itself, at once."""

    waits = "the event loop stands still while it runs"

    def call(self, job: Callable[[], None], then: Callable[[], None]) -> None:
        """See Caller."""
        job()
        then()

    def end(self) -> None:
        """See Caller."""


class SlowCalls:
    """Names each function of the application that takes long, once."""

    def __init__(self, client: str, waits: str, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.running: tuple[str, Callable[..., object], int] | None = None  # kind, function, and since when
        self._client = client
        self._waits = waits
        self._named: set[str] = set()

    def took(self, kind: str, function: Callable[..., object], ms: int, least_ms: int = SLOW_MS) -> None:
        """Name `function`, which has just taken `ms`, if that is `least_ms` or more."""
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
        """The function that runs now and since when, in words; "" when none does."""
        running = self.running
        if running is None:
            return ""
        kind, function, since_ms = running
        return f"the {kind} {name_of(function)} has been running for {(self.now_ms() - since_ms) / 1000:.1f} s"


def name_of(function: Callable[..., object]) -> str:
    """A function's name, and the file and line where it is defined if it has these."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    code = getattr(inspect.unwrap(function), "__code__", None)
    at = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{module}.{name}{at}"


async def call_first(waiting: deque[T], function_of: Callable[[T], Callable[[], Any]], call_user: CallUser) -> None:
    """Take the first that waits and call its function. Raises what it raises.

    When the client's call is cut short before the function has begun, it stays first for the next call.
    """
    first = waiting.popleft()
    function, begun = function_of(first), False

    def run() -> Any:
        nonlocal begun
        begun = True
        return function()

    try:
        await call_user(run)
    finally:
        if not begun:
            waiting.appendleft(first)
