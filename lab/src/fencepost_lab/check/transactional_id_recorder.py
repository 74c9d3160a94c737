"""Record the operations on transactional ids while they happen.

The rest of a simulated history has no times (`history.summary`). The checks of fencing need the times of these
operations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fencepost.errors import (
    FencedOrTimedOutError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionTimedOutError,
)
from fencepost_lab.check.history.operations import Begin, Init, Operation
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["TransactionalIdRecorder", "reports_fencing"]

T = TypeVar("T")

SENT_ONCE_MS: Final = 15
"""Limit in ms. An answer within it proves that the request was sent once: a client repeats after 20 ms +- 20 %."""
TELL_OF_FENCING: Final = (
    ProducerFencedError,
    FencedOrTimedOutError,
    InvalidProducerEpochError,
    TransactionTimedOutError,
)


def reports_fencing(error: BaseException | None) -> bool:
    """Return true if an error says that the producer's epoch is old, or that its transaction timed out."""
    while error is not None:
        if isinstance(error, TELL_OF_FENCING):
            return True
        error = error.__cause__
    return False


class TransactionalIdRecorder:
    """The recorded operations of one world, whose clock is `now_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._recorder = Recorder(now_ms)

    @property
    def operations(self) -> list[Operation]:
        return self._recorder.operations

    def begin(self, process: str, transactional_id: str, number: int) -> str:
        """Record the beginning of a transaction and return its name."""
        name = f"{process}/{number}"
        self._recorder.at_once(Begin(process=process, transaction=name, transactional_id=transactional_id))
        return name

    async def ask(self, operation: Operation, work: Callable[[], Awaitable[T]]) -> T:
        """Record the operation and do its work. Raises the work's exception."""
        self._recorder.invoke(operation)
        try:
            answer = await work()
        except (KafkaError, TaskCancelled) as error:
            self._recorder.unknown(operation, error, fenced=reports_fencing(error))
            raise
        self._recorder.ok(operation)
        if isinstance(operation, Init):
            operation.repeated = operation.completed_ms - operation.invoked_ms > SENT_ONCE_MS
        return answer

    def invoke(self, operation: Operation) -> Operation:
        """Record the invocation of an operation."""
        return self._recorder.invoke(operation)

    def ended(self, operation: Operation, error: BaseException | None = None, *, done: bool = True) -> None:
        """Record the end of an operation. `done` is false if its outcome is unknown."""
        words, fenced = "" if error is None else str(error), reports_fencing(error)
        if done:
            self._recorder.ok(operation, error=words, fenced=fenced)
        else:
            self._recorder.unknown(operation, words, fenced=fenced)
