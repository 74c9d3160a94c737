"""Things that are to happen at a given time, for a core that is told what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timer", "Timers"]


class Timer:
    """One appointment; `cancel` makes it never happen."""

    __slots__ = ("action", "due_ms")

    def __init__(self, due_ms: int, action: Callable[[int], None]) -> None:
        self.due_ms = due_ms
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        """Forget the action."""
        self.action = None


class Timers:
    """A heap of appointments, in order of time and then of entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._entered = 0

    def at(self, due_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` once `due_ms` has come."""
        timer = Timer(due_ms, action)
        self._entered += 1
        heapq.heappush(self._heap, (due_ms, self._entered, timer))
        return timer

    def run(self, now_ms: int) -> None:
        """Do what is due.

        What the actions add is done at the next call, so that no action can hold the caller for ever.
        """
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            action = timer.action
            if action is not None:
                timer.action = None
                action(now_ms)

    def next_ms(self) -> int | None:
        """When something is due next."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
