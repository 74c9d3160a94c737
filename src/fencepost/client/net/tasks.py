"""Waits for coroutines, with a timeout or several at once, over any Runtime."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar

from fencepost.client.net.runtime import Runtime
from fencepost.errors import KafkaTimeoutError
from fencepost.values import MutableValue

T = TypeVar("T")


class _Box(MutableValue, kw_only=False):
    """The result of a task."""

    value: Any = None
    error: Exception | None = None
    late: bool = False

    def drop(self) -> None:
        """Close a stream that was opened for a caller that stopped waiting."""
        if hasattr(self.value, "close"):
            self.value.close()


async def within(
    runtime: Runtime, coroutine: Coroutine[Any, Any, T], timeout_ms: float, operation: str, *, limit: str = ""
) -> T:
    """Await `coroutine` in a task of its own. After `timeout_ms` cancel it and raise KafkaTimeoutError.

    `limit` is the name of the setting that `timeout_ms` comes from, for the message of the error.
    """
    box = _Box()
    done = runtime.event()

    async def run() -> None:
        try:
            box.value = await coroutine
        except Exception as error:  # noqa: BLE001 (handed to the caller below)
            box.error = error
        if box.late:
            box.drop()
        done.set()

    task = runtime.spawn(run())
    finished = False
    try:
        finished = await done.wait(timeout_ms)
    finally:
        if not finished:
            box.late = True
            task.cancel()
            _drop_unstarted(coroutine)
            box.drop()
    if not finished:
        waited = f"{limit}={timeout_ms:.0f}" if limit else f"{timeout_ms:.0f} ms"
        raise KafkaTimeoutError(f"{operation}: no result within {waited}")
    if box.error is not None:
        raise box.error
    result: T = box.value
    return result


async def gather(runtime: Runtime, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T | Exception]:
    """Run all coroutines at once.

    Return their results or exceptions, in order. If the caller is cancelled, cancel all.
    """
    if not coroutines:
        return []
    if len(coroutines) == 1:
        try:
            return [await coroutines[0]]
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            return [error]
    boxes = [_Box() for _ in coroutines]
    finished = [runtime.event() for _ in coroutines]

    async def run(position: int, coroutine: Coroutine[Any, Any, T]) -> None:
        try:
            boxes[position].value = await coroutine
        except Exception as error:  # noqa: BLE001 (handed to the caller)
            boxes[position].error = error
        finished[position].set()

    tasks = [runtime.spawn(run(position, coroutine)) for position, coroutine in enumerate(coroutines)]
    try:
        for event in finished:
            await event.wait()
    finally:
        for task, event, coroutine in zip(tasks, finished, coroutines, strict=True):
            if not event.is_set():
                task.cancel()
                _drop_unstarted(coroutine)
    return [box.error if box.error is not None else box.value for box in boxes]


def _drop_unstarted(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine whose task was cancelled before its first step. Python would warn that it was never awaited."""
    if getcoroutinestate(coroutine) == CORO_CREATED:
        coroutine.close()


def first_error(results: Sequence[object]) -> Exception | None:
    """Return the first exception among the results of `gather`, or None."""
    return next((result for result in results if isinstance(result, Exception)), None)
