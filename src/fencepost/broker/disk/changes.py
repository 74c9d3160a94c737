"""Changes of the small files that are replaced as a whole: one after the other, and written away from the event loop.

A change is a generator. It decides on the state of the moment when its turn comes, yields steps that write to the
disk, and changes the state in memory after a step has succeeded. A step runs in another thread, where it may take as
long as the disk does; others are served meanwhile, on the state before the change. An OSError of a step is raised in
the change where it was yielded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from fencepost.values import Value

__all__ = ["Change", "Changes", "Step", "Write", "carry_out"]

Outcome = TypeVar("Outcome")

Step = Callable[[], None]
Change = Generator[Step, None, Outcome]
Done = Callable[[Callable[[], Any]], None]


class Write(Value):
    """Run `step` in another thread, then call `BrokerCore.written` with the token and the OSError that it raised.

    The next `Write` is asked for after that. One that is never carried out has not happened.
    """

    token: int
    step: Step


def carry_out(change: Change[Outcome]) -> Outcome:
    """Carry out a whole change here and now, where nobody is served meanwhile. Raises what the change raises."""
    error: OSError | None = None
    while True:
        try:
            step = next(change) if error is None else change.throw(error)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome
        error = None
        try:
            step()
        except OSError as failure:
            error = failure


class Changes:
    """The changes of one broker, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Change[Any], Done]] = deque()
        self._present: tuple[Change[Any], Done] | None = None
        self._step: Step | None = None  # of the present change, to be handed out
        self._token = 0

    def begin(self, change: Change[Any], done: Done) -> None:
        """Carry out the change when those before it are done, at once where there are none.

        `done` is given a function that returns the change's result, or raises what the change raised.
        """
        self._waiting.append((change, done))
        if self._present is None:
            self._go_on()

    def next_write(self) -> Write | None:
        """Return what is to be written now."""
        if self._step is None:
            return None
        step, self._step = self._step, None
        self._token += 1
        return Write(self._token, step)

    def written(self, token: int, error: OSError | None) -> None:
        """That `Write` was carried out. Raises ValueError when it was not asked for."""
        if self._present is None or self._step is not None or token != self._token:
            raise ValueError(f"write {token} was not asked for")
        self._take(error)
        if self._step is None:
            self._go_on()

    def _go_on(self) -> None:
        while self._present is None and self._waiting:
            self._present = self._waiting.popleft()
            self._take(None)

    def _take(self, error: OSError | None) -> None:
        """Let the present change go on to its next step or its end."""
        if self._present is None:
            return
        change, done = self._present
        result: Callable[[], Any]
        try:
            self._step = next(change) if error is None else change.throw(error)
            return
        except StopIteration as stop:
            result = _returns(stop.value)
        except Exception as failure:  # noqa: BLE001 - whoever asked for the change is told
            result = _raises(failure)
        self._present = None
        done(result)


def _returns(value: Any) -> Callable[[], Any]:
    return lambda: value


def _raises(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
