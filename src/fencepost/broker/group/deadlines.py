"""What is due when: one deadline per key, at a cost that does not grow with how often it is moved."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Deadline", "DeadlineKind", "Deadlines"]


class DeadlineKind(IntEnum):
    """What runs out."""

    JOIN = 0  # the join phase of a group
    SYNC = 1  # the sync phase of a group
    SESSION = 2  # a member
    OFFSETS = 3  # the pause between two looks for expired offsets
    CONSUMER_SESSION = 4  # a member of a consumer group
    REVOCATION = 5  # the time such a member has to give partitions back


class Deadline(NamedTuple):
    """Names a deadline; unused parts are empty."""

    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


class Deadlines:
    """A heap with at most one live entry per key.

    A heartbeat moves a deadline later, which only notes the new time: the entry in the heap is looked at when its old
    time comes, and put back. So a heartbeat costs a dictionary write, and the heap stays as large as the number of
    keys.
    """

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[Deadline, int] = {}
        self._queued: dict[Deadline, int] = {}
        self._heap: list[tuple[int, Deadline]] = []

    def set(self, key: Deadline, at_ms: int) -> None:
        """Move the key's deadline to `at_ms`."""
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or queued > at_ms:
            self._queued[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))

    def set_if_absent(self, key: Deadline, at_ms: int) -> None:
        """Set the key's deadline unless it has one."""
        if key not in self._due:
            self.set(key, at_ms)

    def cancel(self, key: Deadline) -> None:
        """Forget the key's deadline, if it has one."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._due.get(key) == at_ms:
                return at_ms
            self._settle()
        return None

    def pop_due(self, now_ms: int) -> Iterator[Deadline]:
        """Take the keys whose time has come, earliest first. Deadlines set meanwhile count as well."""
        while True:
            at_ms = self.next_ms()
            if at_ms is None or at_ms > now_ms:
                return
            _, key = heapq.heappop(self._heap)
            del self._queued[key]
            del self._due[key]
            yield key

    def _settle(self) -> None:
        """The heap's first entry is out of date: drop it, and queue its key again if a later deadline is noted."""
        at_ms, key = heapq.heappop(self._heap)
        if self._queued.get(key) != at_ms:
            return  # an entry from before the deadline was moved earlier
        del self._queued[key]
        due = self._due.get(key)
        if due is not None:
            self.set(key, due)
