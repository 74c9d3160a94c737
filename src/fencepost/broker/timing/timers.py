"""Actions at given times, for a core that is called with the current time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from fencepost.broker.timing.deadline_signal import DeadlineSignal

__all__ = ["Timer", "Timers"]


_SLACK = 64


class Timer:
    """A scheduled action; `cancel` removes it."""

    __slots__ = ("_timers", "action", "due_ms")

    def __init__(self, timers: Timers, due_ms: int, action: Callable[[int], None]) -> None:
        self._timers = timers
        self.due_ms = due_ms
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        """Cancel the action."""
        if self.action is not None:
            self.action = None
            self._timers.cancelled()


class Timers:
    """A heap of timers, in order of time and then of creation.

    It holds no more cancelled timers than others: clients choose how far away their timers are.
    """

    def __init__(
        self,
        failed: Callable[[Exception, Callable[[int], None]], None] | None = None,
        deadline_signal: DeadlineSignal | None = None,
    ) -> None:
        """Create it. `failed` gets an action's exception and the action, and the other actions continue.

        Without it the exception leaves `run`. `deadline_signal` is set when the next action is an earlier one.
        """
        self._deadline_signal = DeadlineSignal() if deadline_signal is None else deadline_signal
        self._failed = failed
        self._heap: list[tuple[int, int, Timer]] = []
        self._entered = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, due_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` once `due_ms` has been reached."""
        timer = Timer(self, due_ms, action)
        self._entered += 1
        heapq.heappush(self._heap, (due_ms, self._entered, timer))
        if self._heap[0][2] is timer:
            self._deadline_signal.is_set = True
        return timer

    def cancelled(self) -> None:
        """Count a cancelled timer."""
        self._cancelled += 1
        if self._cancelled > len(self._heap) // 2 + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, now_ms: int) -> None:
        """Run the due actions.

        Timers that they add run at the next call, so that no action can block the caller forever.
        """
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(self._pop())
        for timer in due:
            action = timer.action
            if action is not None:
                timer.action = None
                try:
                    action(now_ms)
                except Exception as error:
                    if self._failed is None:
                        raise
                    self._failed(error, action)

    def next_ms(self) -> int | None:
        """Return the time of the next action, or None."""
        while self._heap and self._heap[0][2].action is None:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def _pop(self) -> Timer:
        timer = heapq.heappop(self._heap)[2]
        if timer.action is None:
            self._cancelled -= 1
        return timer
