"""What is due when: one deadline per key, at a cost that does not grow with how often it is moved."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["RETRY_MS", "Deadlines"]

_SLACK = 64
RETRY_MS = 1_000
"""A key that was due and is not set anew is offered again after this time."""


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...
    def __hash__(self) -> int: ...


Key = TypeVar("Key", bound=_Ordered)


class Deadlines(Generic[Key]):
    """A heap with about one entry per key, whatever its traffic.

    Moving a deadline later only notes the new time: the queued entry is put back when its old time comes. So a
    heartbeat costs a dictionary write, and ten thousand open transactions, or a million short ones under a long
    timeout, neither slow a request down nor pile up.
    """

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, key: Key, due_ms: int | None) -> None:
        """From now on this is the one deadline of the key; None: it has none."""
        if due_ms is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or due_ms < queued_ms:
            self._queued[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
            if len(self._heap) > 2 * len(self._due) + _SLACK:
                self._rebuild()

    def set_if_absent(self, key: Key, due_ms: int) -> None:
        """Set the key's deadline unless it has a deadline."""
        if key not in self._due:
            self.set(key, due_ms)

    def due_ms(self, key: Key) -> int | None:
        """The key's deadline, if it has one."""
        return self._due.get(key)

    def cancel(self, key: Key) -> None:
        """Forget the key's deadline, if it has one."""
        self.set(key, None)

    def put_off(self, by_ms: int) -> None:
        """Move all deadlines later by so much."""
        self._due = {key: due_ms + by_ms for key, due_ms in self._due.items()}
        self._rebuild()

    def next_ms(self) -> int | None:
        """The earliest deadline."""
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
        """Take the keys whose time has come, earliest first. Deadlines set meanwhile count as well."""
        while True:
            due_ms = self.next_ms()
            if due_ms is None or due_ms > now_ms:
                return
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._queued.pop(key, None)
            yield key

    def take_due(self, now_ms: int, limit: int) -> list[Key]:
        """Keys whose time has come, at most `limit`; each comes again after a second unless it is set anew."""
        due: list[Key] = []
        for key in self.pop_due(now_ms):
            due.append(key)
            if len(due) == limit:
                break
        for key in due:
            self.set(key, now_ms + RETRY_MS)
        return due

    def _rebuild(self) -> None:
        """Make the heap anew from the deadlines that count."""
        self._queued = dict(self._due)
        self._heap = [(due_ms, key) for key, due_ms in self._due.items()]
        heapq.heapify(self._heap)
