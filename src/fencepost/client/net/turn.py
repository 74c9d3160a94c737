"""Restricts the use of a client to one task or thread at a time.

A hold lasts from the beginning to the end of a call, or of a `transaction(consumer)` block. Signal handlers may raise
at any bytecode. Therefore a hold ends without a function call: by the attribute `ended`, or with the frame that refers
to it. For the same reason there is no lock: each change of the holds is one call of a C function. Collecting a hold
runs no code, because Python 3.11's garbage collector runs inside C functions that create containers: a list that
shrinks while `tuple` copies it crashes the process.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import Any, Final, Protocol

from fencepost.errors import ClosedError, UsageError, WakeupError

CLOSE: Final = "close"
POLL: Final = "poll"
TRANSACTION: Final = "transaction"

HOLD_CHECK_MS: Final = 10  # interval in which a waiting close() checks, because the end of a hold sends no notification


def pause_for_holder() -> None:
    """Pause in a thread that waits for the end of another thread's hold."""
    time.sleep(HOLD_CHECK_MS / 1000)


Soon = Callable[[Callable[[], object]], object]
"""Runs a function in the client's event loop. Any thread or signal handler may call it."""


def at_once(function: Callable[[], object]) -> object:
    """Call the function in this thread, which runs the event loop."""
    return function()


class Polls:
    """The events that end a poll early: wakeup(), close() by another task or thread, a later poll."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """Create the events. `wake` makes waiting polls check for them; it runs only in the event loop."""
        self._wake = wake
        self._woken = False
        self._closing = False
        self._last = 0

    def begin(self) -> int:
        """Begin a poll and return its number. An interrupted earlier poll then returns no records."""
        self._last += 1
        return self._last

    def check(self, number: int) -> None:
        """Raise the error that ends the poll with this number: ClosedError, WakeupError, UsageError."""
        if self._closing:
            raise ClosedError("the consumer was closed during this poll")
        if number != self._last:
            raise UsageError("a later poll has taken the place of this one, whose caller was interrupted")
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")

    def wakeup(self, soon: Soon) -> None:
        """End the current or the next poll."""
        self._woken = True
        soon(self._wake)

    def close(self, closing: bool = True) -> None:
        """End the current polls and all later ones. With `closing` false, allow polls again."""
        self._closing = closing
        self._wake()


_inside: ContextVar[tuple[weakref.ref[Hold], ...]] = ContextVar("calls whose listener or callback runs", default=())


class Inside:
    """Runs a call.

    Tasks created by its listeners and callbacks, as by `asyncio.wait_for`, belong to the call's hold.
    """

    __slots__ = ("_before", "_hold")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._before = hold.around

    def __enter__(self) -> None:
        _inside.set((*self._before, weakref.ref(self._hold)))

    def __exit__(self, *raised: object) -> None:
        _inside.set(self._before)


class Task(Protocol):
    """A task that calls clients."""

    def get_name(self) -> str: ...


class Hold:
    """A use of a client. It counts until `ended` is set, or until nothing refers to it."""

    __slots__ = ("__weakref__", "around", "ended", "method", "task", "thread")

    def __init__(self, method: str, task: Task | None) -> None:
        self.method = method
        self.ended = False
        self.thread = threading.get_ident()
        self.task = task
        self.around = _inside.get()  # weak references, because a long task may begin inside a call

    def admits(self, later: Hold) -> bool:
        """Return true if `later` comes from the same task or thread, or from a listener or callback of this call."""
        if self.thread == later.thread and self.task is later.task:
            return True
        return any(reference() is self for reference in later.around)

    def holder(self) -> str:
        """Return the name of the holding task or thread."""
        if self.task is not None:
            return f"task {self.task.get_name()!r}"
        names = [thread.name for thread in threading.enumerate() if thread.ident == self.thread]
        return f"thread {names[0]!r}" if names else f"thread {self.thread}"


class Turn:
    """The holds of one client, in the order of their beginning. The first hold decides who may use the client."""

    def __init__(self, current_task: Callable[[], Task | None] | None = None) -> None:
        """Create the holds. `current_task` returns the running task, None outside of tasks; default: asyncio's."""
        self._current_task = current_task or _current_task
        self._numbers = count()
        self._holds: dict[int, weakref.ref[Hold]] = {}  # by number; ended holds stay until the next call

    def take(self, method: str) -> Hold:
        """Hold the client for a call of `method`.

        Raises:
            UsageError: Another task or thread holds the client, or a poll was called inside a poll.
            ClosedError: Another task or thread is closing the client.
        """
        hold = Hold(method, self._current_task())
        try:
            self._enter(hold)
            refusal = _refusal(hold, self._before(hold))
        except BaseException:  # raised by a signal handler
            hold.ended = True
            raise
        if refusal is not None:
            hold.ended = True
            raise refusal
        return hold

    def take_last(self) -> Hold:
        """Hold the client for `close`.

        No other task or thread may begin a call. Running calls continue (see `others`).
        """
        hold = Hold(CLOSE, self._current_task())
        try:
            self._enter(hold)
        except BaseException:
            hold.ended = True
            raise
        return hold

    def others(self, hold: Hold) -> bool:
        """Return true if another task or thread that came before `hold` still uses the client."""
        return any(not other.admits(hold) for other in self._before(hold))

    def _enter(self, hold: Hold) -> None:
        self._holds[next(self._numbers)] = weakref.ref(hold)

    def _before(self, hold: Hold) -> list[Hold]:
        found: list[Hold] = []
        for number in list(self._holds):
            reference = self._holds.get(number)
            other = None if reference is None else reference()
            if other is hold:
                break
            if other is None or other.ended:
                self._holds.pop(number, None)
            else:
                found.append(other)
        return found


def _refusal(hold: Hold, before: list[Hold]) -> UsageError | None:
    """Return the refusal of `hold`, if the first hold before it belongs to another task or thread."""
    if not before:
        return None
    first = before[0]
    if first.admits(hold):
        if hold.method in (POLL, TRANSACTION) and any(other.method == hold.method for other in before):
            return UsageError(
                f"{hold.method}() inside of {hold.method}() of the same consumer: a rebalance listener, a callback or "
                f"a signal handler called it; call it when the outer {hold.method}() is over"
            )
        return None
    for other in before:
        if other.method == CLOSE:
            return ClosedError(f"{hold.method}(): {other.holder()} is closing this client")
    kind = "task" if hold.task is not None and hold.thread == first.thread else "thread"
    use = "in a transaction() block with it" if first.method == TRANSACTION else f"in {first.method}()"
    return UsageError(
        f"{hold.method}(): another {kind} is using this consumer: {first.holder()} is {use}. A consumer is for one "
        "thread or task at a time; give each a consumer of its own (one group_id shares the partitions among them). "
        "wakeup(), close() and methods that only look may come from any"
    )


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
