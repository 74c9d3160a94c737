"""Takes operations down as they happen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from fencepost.check.history.file import ended_line, instant_line, invoked_line
from fencepost.check.history.operations import Operation, Result

__all__ = ["Recorder"]

Kind = TypeVar("Kind", bound=Operation)


class Recorder:
    """`now_ms` is the clock, `first` the number of the first event. Given `write`, each event is a line for it as it
    happens, and nothing is kept; without, `operations` keeps all.

    The invocation has to be taken down before anything is sent: whoever is killed in between has perhaps done it.
    """

    def __init__(
        self, now_ms: Callable[[], float], write: Callable[[str], object] | None = None, *, first: int = 1
    ) -> None:
        self.operations: list[Operation] = []
        self._now_ms = now_ms
        self._write = write
        self._events = count(first)  # threads may share a recorder

    def invoke(self, operation: Kind) -> Kind:
        """It begins now."""
        operation.invoked, operation.invoked_ms = self._next()
        if self._write is None:
            self.operations.append(operation)
        else:
            self._write(invoked_line(operation))
        return operation

    def ok(self, operation: Operation, **answer: Any) -> None:
        """It is done. `answer`: what was told, by the names of fields."""
        self._end(operation, Result.OK, answer)

    def fail(self, operation: Operation, error: object, **answer: Any) -> None:
        """It is certainly not done."""
        self._end(operation, Result.FAIL, {"error": str(error), **answer})

    def unknown(self, operation: Operation, error: object, **answer: Any) -> None:
        """Nobody knows whether it is done."""
        self._end(operation, Result.UNKNOWN, {"error": str(error), **answer})

    def at_once(self, operation: Operation) -> None:
        """It begins and ends now."""
        operation.invoked, operation.invoked_ms = self._next()
        operation.completed, operation.completed_ms = operation.invoked, operation.invoked_ms
        operation.result = Result.OK
        if self._write is None:
            self.operations.append(operation)
        else:
            self._write(instant_line(operation))

    def _end(self, operation: Operation, result: Result, answer: dict[str, Any]) -> None:
        for name, value in answer.items():
            setattr(operation, name, value)
        operation.completed, operation.completed_ms = self._next()
        operation.result = result
        if self._write is not None:
            self._write(ended_line(operation))

    def _next(self) -> tuple[int, float]:
        return next(self._events), self._now_ms()
