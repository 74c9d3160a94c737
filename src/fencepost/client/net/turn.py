"""The use of a client by one task or thread at a time.

A hold lasts from the beginning of a call, or of a `transaction(consumer)` block, to its end. Signal handlers may raise
at any bytecode, so a hold ends without a function call: by the attribute `ended`, or with the frame that keeps it. For
the same reason there is no lock here: each change of the holds is one call of C. Nothing happens when a hold is
collected, because the garbage collector of Python 3.11 runs inside of calls of C that make containers: a list that
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

LOOK_AGAIN_MS: Final = 10  # until a waiting close() looks again: the end of a hold notifies nobody


def look_again() -> None:
    """Pause in a thread that waits for the end of another's hold."""
    time.sleep(LOOK_AGAIN_MS / 1000)


Soon = Callable[[Callable[[], object]], object]
"""Has a function run in the client's event loop, from any thread or signal handler."""


def at_once(function: Callable[[], object]) -> object:
    """Run it here, in the event loop."""
    return function()


class Polls:
    """The events that end a poll at once: wakeup(), close() by another task or thread, a later poll."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` lets the polls that wait look again; in the event loop only."""
        self._wake = wake
        self._woken = False
        self._closing = False
        self._last = 0

    def begin(self) -> int:
        """A poll begins: its number. One before it that was cut short unseen hands out nothing any more."""
        self._last += 1
        return self._last

    def check(self, number: int) -> None:
        """Raise what ends the poll with this number: ClosedError, WakeupError, UsageError."""
        if self._closing:
            raise ClosedError("the consumer was closed during this poll")
        if number != self._last:
            raise UsageError("a later poll has taken the place of this one, whose caller was interrupted")
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")

    def wakeup(self, soon: Soon) -> None:
        """End the poll that runs now, or the next."""
        self._woken = True
        soon(self._wake)

    def close(self, closing: bool = True) -> None:
        """End the polls that run, and those to come; False: no more."""
        self._closing = closing
        self._wake()


_inside: ContextVar[tuple[weakref.ref[Hold], ...]] = ContextVar("calls whose listener or callback runs", default=())


class Inside:
    """Run a call: the tasks that its listeners and callbacks create, as `asyncio.wait_for` does, belong to its hold."""

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
    """One use of a client. It counts until `ended` is set, or until nothing refers to it."""

    __slots__ = ("__weakref__", "around", "ended", "method", "task", "thread")

    def __init__(self, method: str, task: Task | None) -> None:
        self.method = method
        self.ended = False
        self.thread = threading.get_ident()
        self.task = task
        self.around = _inside.get()  # weak, because a long task may begin inside of a call

    def admits(self, later: Hold) -> bool:
        """Return true if `later` comes from the same task or thread, or from a listener or callback of this call."""
        if self.thread == later.thread and self.task is later.task:
            return True
        return any(reference() is self for reference in later.around)

    def holder(self) -> str:
        """The holding task or thread, by name."""
        if self.task is not None:
            return f"task {self.task.get_name()!r}"
        names = [thread.name for thread in threading.enumerate() if thread.ident == self.thread]
        return f"thread {names[0]!r}" if names else f"thread {self.thread}"


class Turn:
    """The holds of one client, in the order of their beginning. The first hold decides who may use the client."""

    def __init__(self, current_task: Callable[[], Task | None] | None = None) -> None:
        """`current_task`: the task that runs, None outside of tasks; by default asyncio's."""
        self._current_task = current_task or _current_task
        self._numbers = count()
        self._holds: dict[int, weakref.ref[Hold]] = {}  # by number; those that are over until the next call looks

    def take(self, method: str) -> Hold:
        """Hold the client for a call of `method`.

        Raises UsageError when another task or thread holds it, or for a poll inside of a poll; ClosedError when the
        other one is closing it.
        """
        hold = Hold(method, self._current_task())
        try:
            self._enter(hold)
            refusal = _refusal(hold, self._before(hold))
        except BaseException:  # of a signal handler
            hold.ended = True
            raise
        if refusal is not None:
            hold.ended = True
            raise refusal
        return hold

    def take_last(self) -> Hold:
        """Hold the client for `close`: nobody else may begin a call. Calls under way go on (see `others`)."""
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
