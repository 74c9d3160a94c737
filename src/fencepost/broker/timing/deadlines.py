"""Deadlines by key, at a cost that does not depend on the number of their changes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from fencepost.broker.timing.deadline_signal import DeadlineSignal

__all__ = ["RETRY_MS", "Deadlines"]

_SLACK = 64
RETRY_MS: Final = 1_000
"""Pause before another attempt: of a due key without a new deadline, and of a write that the disk refused."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


Key = TypeVar("Key", bound=_Ordered)


class Deadlines(Generic[Key]):
    """A heap with about one entry per key, independent of the traffic.

    A later deadline only replaces the time; the entry is requeued at its old time. So a heartbeat costs one dictionary
    write. Ten thousand open transactions, or a million short ones with a long timeout, neither slow down requests nor
    accumulate.
    """

    __slots__ = ("_deadline_signal", "_due", "_heap", "_queued")

    def __init__(self, deadline_signal: DeadlineSignal | None = None) -> None:
        """Create it. `deadline_signal` is set when the earliest deadline may be an earlier one."""
        self._deadline_signal = DeadlineSignal() if deadline_signal is None else deadline_signal
        self._due: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, key: Key, due_ms: int | None) -> None:
        """Set the key's only deadline; None removes it."""
        if due_ms is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or due_ms < queued_ms:
            self._queued[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
            if due_ms <= self._heap[0][0]:
                self._deadline_signal.is_set = True
            if len(self._heap) > 2 * len(self._due) + _SLACK:
                self._rebuild()

    def set_if_absent(self, key: Key, due_ms: int) -> None:
        """Set the key's deadline if it has none."""
        if key not in self._due:
            self.set(key, due_ms)

    def due_ms(self, key: Key) -> int | None:
        """Return the key's deadline, or None."""
        return self._due.get(key)

    def cancel(self, key: Key) -> None:
        """Remove the key's deadline."""
        self.set(key, None)

    def put_off(self, by_ms: int) -> None:
        """Move all deadlines later by `by_ms`."""
        self._due = {key: due_ms + by_ms for key, due_ms in self._due.items()}
        self._rebuild()

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            queued_ms, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(key) == queued_ms:  # otherwise it is from before the deadline was moved earlier
                del self._queued[key]
                self.set(key, due_ms)
        return None

    def pop_due(self, now_ms: int) -> Iterator[Key]:
        """Yield and remove due keys, earliest first. Deadlines set meanwhile count too."""
        while True:
            due_ms = self.next_ms()
            if due_ms is None or due_ms > now_ms:
                return
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._queued.pop(key, None)
            yield key

    def take_due(self, now_ms: int, limit: int) -> list[Key]:
        """Return at most `limit` due keys. Each is due again after a second unless it gets a new deadline."""
        due: list[Key] = []
        for key in self.pop_due(now_ms):
            due.append(key)
            if len(due) == limit:
                break
        for key in due:
            self.set(key, now_ms + RETRY_MS)
        return due

    def _rebuild(self) -> None:
        """Rebuild the heap from the current deadlines."""
        self._queued = dict(self._due)
        self._heap = [(due_ms, key) for key, due_ms in self._due.items()]
        heapq.heapify(self._heap)
