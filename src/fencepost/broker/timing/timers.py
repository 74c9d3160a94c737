"""Things that are to happen at a given time, for a core that is told what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timer", "Timers"]


_SLACK = 64


class Timer:
    """One appointment; `cancel` makes it never happen."""

    __slots__ = ("_timers", "action", "due_ms")

    def __init__(self, timers: Timers, due_ms: int, action: Callable[[int], None]) -> None:
        self._timers = timers
        self.due_ms = due_ms
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        """Forget the action."""
        if self.action is not None:
            self.action = None
            self._timers.cancelled()


class Timers:
    """A heap of appointments, in order of time and then of entry.

    It holds no more cancelled ones than others, however far away they are: clients choose how long they would wait.
    """

    def __init__(self, failed: Callable[[Exception, Callable[[int], None]], None] | None = None) -> None:
        """`failed` is told what an action raises, and which; the other actions are done all the same. Without it the
        exception leaves `run`."""
        self._failed = failed
        self._heap: list[tuple[int, int, Timer]] = []
        self._entered = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, due_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` once `due_ms` has come."""
        timer = Timer(self, due_ms, action)
        self._entered += 1
        heapq.heappush(self._heap, (due_ms, self._entered, timer))
        return timer

    def cancelled(self) -> None:
        """One of the appointments was cancelled."""
        self._cancelled += 1
        if self._cancelled > len(self._heap) // 2 + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def run(self, now_ms: int) -> None:
        """Do what is due.

        What the actions add is done at the next call, so that no action can hold the caller for ever.
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
        """When something is due next."""
        while self._heap and self._heap[0][2].action is None:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def _pop(self) -> Timer:
        timer = heapq.heappop(self._heap)[2]
        if timer.action is None:
            self._cancelled -= 1
        return timer
