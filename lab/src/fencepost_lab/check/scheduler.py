"""The simulator's clock and task executor: one heap of (time, sequence number, action), without threads or asyncio.

Time stands still while code runs and jumps to the next action, so that minutes pass in milliseconds. The same seed
gives the same order of events.
"""

from __future__ import annotations

import contextvars
import heapq
import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Scheduler", "SimEvent", "SimFuture", "SimTask", "SimulationStuck", "TaskCancelled"]

T = TypeVar("T")

FAREWELLS_AT_MOST = 1_000


class SimulationStuck(RuntimeError):
    """No action is left, or the limit was exceeded, before the awaited condition came true."""


class TaskCancelled(BaseException):
    """Thrown into a cancelled task, as asyncio throws CancelledError."""


class SimFuture(Generic[T]):
    """A value that becomes available later."""

    __slots__ = ("_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._done = False
        self._error: BaseException | None = None
        self._value: Any = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: T) -> None:
        self._finish(value, None)

    def set_error(self, error: BaseException) -> None:
        self._finish(None, error)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self._done:
            return
        self._done, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[SimFuture[T], None, T]:
        if not self._done:
            yield self
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value


class SimTask:
    """A coroutine in progress. `error` has the exception that ended it."""

    def __init__(self, scheduler: Scheduler, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._scheduler = scheduler
        self._coroutine = coroutine
        self._context = contextvars.copy_context()  # of its own, as in asyncio
        self._finished: SimFuture[Any] = SimFuture()
        self._cancelled = False
        self._cancel_at = 0
        self._waiting_for: SimFuture[Any] | None = None
        self.error: BaseException | None = None
        self._unfinished = scheduler.unfinished
        self._unfinished[self] = None
        scheduler.call_soon(self._step)

    def done(self) -> bool:
        return self._finished.done()

    def get_name(self) -> str:
        """Return the name for messages."""
        return "of the simulated world"

    def cancel_at(self, suspension: int) -> None:
        """Cancel the task at its n-th suspension, counted from 1, if it gets there."""
        self._cancel_at = suspension

    def cancel(self) -> None:
        """Throw TaskCancelled into the coroutine at its suspension point."""
        if not self.done() and not self._cancelled:
            self._cancelled = True
            self._scheduler.call_soon(self._deliver_cancellation)

    def result(self) -> Any:
        """Return the coroutine's result, or raise its exception. Raises SimulationStuck if it has not ended."""
        if not self.done():
            raise SimulationStuck("the task has not ended")
        if self.error is not None:
            raise self.error
        return self._finished._value

    def close(self) -> None:
        """Close the coroutine now, because nothing will resume it.

        Otherwise garbage collection would close it at an arbitrary time.
        """
        for _ in range(FAREWELLS_AT_MOST):
            try:
                self._coroutine.close()
                return
            except BaseException as error:  # noqa: BLE001 (the run is over, so errors while closing do not count)
                self.error = error

    def _deliver_cancellation(self) -> None:
        """Throw the cancellation, unless an earlier resumption has thrown it.

        A coroutine that has not begun is cancelled at its first suspension, because a coroutine that never runs cannot
        report its cancellation to its waiter.
        """
        if self._cancelled and inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self._cancelled, self._cancel_at = False, 1
        elif self._cancelled:
            self._step()

    def _step(self) -> None:
        if self.done():
            return
        self._waiting_for = None
        before, self._scheduler.running = self._scheduler.running, self
        try:
            coroutine = self._coroutine
            if self._cancelled:
                awaited = self._context.run(coroutine.throw, TaskCancelled())
            else:
                awaited = self._context.run(coroutine.send, None)
        except StopIteration as stop:
            self._finish(stop.value)
        except TaskCancelled as error:
            self.error = error
            self._finish(None)
        except Exception as error:  # noqa: BLE001 (kept for `result` and in the scheduler's `failures`)
            self.error = error
            self._scheduler.failures.append(error)
            self._finish(None)
        else:
            self._cancelled = False
            self._waiting_for = awaited
            if self._cancel_at:
                self._cancel_at -= 1
                if not self._cancel_at:
                    self._scheduler.call_soon(self.cancel)
            awaited.when_done(lambda: self._scheduler.call_soon(lambda: self._resume(awaited)))
        finally:
            self._scheduler.running = before

    def _finish(self, value: Any) -> None:
        self._unfinished.pop(self, None)
        self._finished.set_result(value)

    def _resume(self, awaited: SimFuture[Any]) -> None:
        """Continue the task, unless a cancellation already moved it past this suspension."""
        if self._waiting_for is awaited:
            self._step()


class SimEvent:
    """A level-triggered flag whose wait has a timeout."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._flag = False
        self._waiters: list[SimFuture[bool]] = []

    def set(self) -> None:
        self._flag = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set_result(True)

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    async def wait(self, timeout_ms: float | None = None) -> bool:
        if self._flag:
            return True
        waiter: SimFuture[bool] = SimFuture()
        self._waiters.append(waiter)
        if timeout_ms is not None:
            self._scheduler.call_later(timeout_ms, lambda: waiter.set_result(False))
        try:
            return await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


class Scheduler:
    """Virtual time in milliseconds and the heap of scheduled actions."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(start_ms)
        self._sequence = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self.failures: list[Exception] = []
        self.unfinished: dict[SimTask, None] = {}
        self.running: SimTask | None = None

    def now_ms(self) -> int:
        return int(self._now_ms)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run the action at the current time, after the actions that are already due."""
        self.call_at(self._now_ms, action)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.call_at(self._now_ms + max(delay_ms, 0.0), action)

    def call_at(self, time_ms: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(time_ms, self._now_ms), self._sequence, action))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> SimTask:
        return SimTask(self, coroutine)

    def close(self) -> None:
        """End the world: close all its tasks."""
        while self.unfinished:
            task, _ = self.unfinished.popitem()
            task.close()

    async def sleep_ms(self, ms: float) -> None:
        woken: SimFuture[None] = SimFuture()
        self.call_later(ms, lambda: woken.set_result(None))
        await woken

    def run_until(self, finished: Callable[[], bool], *, within_ms: float, actions: int = 5_000_000) -> None:
        """Run actions until `finished()`.

        Raises SimulationStuck after `within_ms` of virtual time or `actions` actions.
        """
        limit_ms = self._now_ms + within_ms
        for _ in range(actions):
            if finished():
                return
            if not self._heap:
                raise SimulationStuck("nothing is left to happen")
            time_ms, _, action = heapq.heappop(self._heap)
            if time_ms > limit_ms:
                raise SimulationStuck(f"not finished after {within_ms:.0f} ms of simulated time")
            self._now_ms = time_ms
            action()
        raise SimulationStuck(f"not finished after {actions} actions")
