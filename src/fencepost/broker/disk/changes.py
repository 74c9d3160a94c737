"""Changes of small files that are replaced as a whole, one after the other, written outside of the event loop.

A change is a generator. When its turn comes, it decides on the current state, and yields steps that write to the disk.
After a step has succeeded, the change updates the state in memory. A step runs in another thread. During the step the
broker serves requests from the state before the change. An exception of a step is raised in its change at the yield,
and affects no other change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from fencepost.values import Value

__all__ = ["Begin", "Change", "Changes", "Done", "Step", "Write", "carry_out"]

Outcome = TypeVar("Outcome")

Step = Callable[[], None]
Change = Generator[Step, None, Outcome]
Done = Callable[[Callable[[], Any]], None]
Begin = Callable[[Change[None]], None]
"""A function that carries out a change, now or later, such as `carry_out`."""


class Write(Value):
    """Run `step` in another thread, then call `BrokerCore.written` with the token and its exception or None.

    The next `Write` is requested after that. A `Write` that is never carried out has no effect.
    """

    token: int
    step: Step


def carry_out(change: Change[Outcome]) -> Outcome:
    """Carry out a whole change synchronously, while no request is served. Raises the exception of the change."""
    error: Exception | None = None
    while True:
        try:
            step = next(change) if error is None else change.throw(error)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        error = None
        try:
            step()
        except Exception as failure:  # noqa: BLE001 - it is raised in the change
            error = failure


class Changes:
    """The changes of one broker, one at a time, in order of request.

    A background change begins when no other change waits.
    """

    def __init__(self, failed: Callable[[object, Exception], None]) -> None:
        """Start without changes. `failed` is called with a change and the exception of its `done`."""
        self._failed = failed
        self._waiting: deque[tuple[Change[Any], Done]] = deque()
        self._in_background: deque[tuple[Change[Any], Done]] = deque()
        self._current: tuple[Change[Any], Done] | None = None
        self._step: Step | None = None  # the current change's step, to be returned by next_write
        self._token = 0

    def begin(self, change: Change[Any], done: Done, *, in_background: bool = False) -> None:
        """Carry out the change after earlier changes, or at once if there are none.

        Args:
            change: The generator that yields the steps.
            done: Called with a function that returns the change's result, or raises its exception.
            in_background: Carry it out after all changes for which a client waits.
        """
        (self._in_background if in_background else self._waiting).append((change, done))
        if self._current is None:
            self._start_next()

    def next_write(self) -> Write | None:
        """Return the next write, or None."""
        if self._step is None:
            return None
        step, self._step = self._step, None
        self._token += 1
        return Write(self._token, step)

    def written(self, token: int, error: Exception | None) -> None:
        """Report that a `Write` was carried out. Raises ValueError for an unknown token."""
        if self._current is None or self._step is not None or token != self._token:
            raise ValueError(f"write {token} was not asked for")
        self._take(error)
        if self._step is None:
            self._start_next()

    def _start_next(self) -> None:
        while self._current is None and (waiting := self._waiting or self._in_background):
            self._current = waiting.popleft()
            self._take(None)

    def _take(self, error: Exception | None) -> None:
        """Run the current change to its next step or its end."""
        if self._current is None:
            return
        change, done = self._current
        result: Callable[[], Any]
        try:
            self._step = next(change) if error is None else change.throw(error)
            return
        except StopIteration as stop:
            result = _returns(stop.value)
        except Exception as failure:  # noqa: BLE001 - raised to the requester of the change
            result = _raises(failure)
        self._current = None
        try:
            done(result)
        except Exception as failure:  # noqa: BLE001 - later changes must go on
            self._failed(change, failure)


def _returns(value: Any) -> Callable[[], Any]:
    return lambda: value


def _raises(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
