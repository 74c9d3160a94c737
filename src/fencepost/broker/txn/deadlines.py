"""When which transactional id is due: a heap with about one entry per id, whatever its traffic.

Setting a later time than the queued one costs a dictionary write: the queued entry is moved when it comes up. So ten
thousand open transactions, or a million short ones under a long timeout, neither slow a request down nor pile up.
"""

from __future__ import annotations

import heapq

_SLACK = 64
_RETRY_MS = 1_000
"""A due id whose record was never replayed (its append failed) is offered again after this time."""


class Deadlines:
    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._due: dict[str, int] = {}
        self._queued: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, name: str, due_ms: int | None) -> None:
        """From now on this is the one time of the name; None: it has none."""
        if due_ms is None:
            self._due.pop(name, None)
            return
        self._due[name] = due_ms
        queued = self._queued.get(name)
        if queued is None or due_ms < queued:
            self._queued[name] = due_ms
            heapq.heappush(self._heap, (due_ms, name))
            if len(self._heap) > 2 * len(self._due) + _SLACK:
                self._rebuild()

    def forget(self, name: str) -> None:
        self.set(name, None)

    def next_ms(self) -> int | None:
        """No later than the next due time; drops entries that no longer say anything."""
        while self._heap:
            queued_ms, name = self._heap[0]
            if self._queued.get(name) != queued_ms:
                heapq.heappop(self._heap)
                continue
            due_ms = self._due.get(name)
            if due_ms == queued_ms:
                return queued_ms
            self._requeue(name, due_ms)
        return None

    def take_due(self, now_ms: int, limit: int) -> list[str]:
        """Names whose time has come, at most ``limit``; each comes again after a second unless it is set anew."""
        due: list[str] = []
        while len(due) < limit:
            next_ms = self.next_ms()
            if next_ms is None or next_ms > now_ms:
                break
            name = self._heap[0][1]
            self._due[name] = now_ms + _RETRY_MS
            self._requeue(name, now_ms + _RETRY_MS)
            due.append(name)
        return due

    def _requeue(self, name: str, due_ms: int | None) -> None:
        """Replace the entry on top of the heap, which is this name's."""
        heapq.heappop(self._heap)
        if due_ms is None:
            del self._queued[name]
            return
        self._queued[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))

    def _rebuild(self) -> None:
        """Entries that an earlier time has overtaken are most of the heap: make it anew from the times that count."""
        self._queued = dict(self._due)
        self._heap = [(due_ms, name) for name, due_ms in self._due.items()]
        heapq.heapify(self._heap)
