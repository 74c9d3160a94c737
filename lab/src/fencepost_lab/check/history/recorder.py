"""Record operations while they happen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from fencepost_lab.check.history.file import ended_line, instant_line, invoked_line
from fencepost_lab.check.history.operations import Operation, OperationResult

__all__ = ["Recorder"]

Kind = TypeVar("Kind", bound=Operation)


class Recorder:
    """Records operations.

    With `write`, each event becomes a line at once; without it, `operations` collects all.

    `now_ms` is the clock, and `first` the number of the first event. Record an invocation before sending the request: a
    process that is killed in between may have sent it.
    """

    def __init__(
        self, now_ms: Callable[[], float], write: Callable[[str], object] | None = None, *, first: int = 1
    ) -> None:
        self.operations: list[Operation] = []
        self._now_ms = now_ms
        self._write = write
        self._events = count(first)  # threads may share a recorder

    def invoke(self, operation: Kind) -> Kind:
        """Record the beginning of an operation."""
        operation.invoked, operation.invoked_ms = self._next()
        if self._write is None:
            self.operations.append(operation)
        else:
            self._write(invoked_line(operation))
        return operation

    def ok(self, operation: Operation, **answer: Any) -> None:
        """Record success. `answer`: the answered values by field name."""
        self._end(operation, OperationResult.OK, answer)

    def fail(self, operation: Operation, error: object, **answer: Any) -> None:
        """Record that the operation certainly did not take effect."""
        self._end(operation, OperationResult.FAIL, {"error": str(error), **answer})

    def unknown(self, operation: Operation, error: object, **answer: Any) -> None:
        """Record an unknown outcome."""
        self._end(operation, OperationResult.UNKNOWN, {"error": str(error), **answer})

    def at_once(self, operation: Operation) -> None:
        """Record an operation that begins and ends now."""
        operation.invoked, operation.invoked_ms = self._next()
        operation.completed, operation.completed_ms = operation.invoked, operation.invoked_ms
        operation.result = OperationResult.OK
        if self._write is None:
            self.operations.append(operation)
        else:
            self._write(instant_line(operation))

    def _end(self, operation: Operation, result: OperationResult, answer: dict[str, Any]) -> None:
        for name, value in answer.items():
            setattr(operation, name, value)
        operation.completed, operation.completed_ms = self._next()
        operation.result = result
        if self._write is not None:
            self._write(ended_line(operation))

    def _next(self) -> tuple[int, float]:
        return next(self._events), self._now_ms()
