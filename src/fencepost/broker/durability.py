"""Group commit: who waits for which appended bytes, and which files are to be synced next.

One sync is under way at a time; everything that is appended meanwhile shares the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fencepost.broker.effects import Sync
from fencepost.broker.topics import Partition

__all__ = ["Durability"]


class Durability:
    """`waits`: whether promises wait for a sync (fsync=commit).

    Otherwise everything counts as durable once it is appended.
    """

    def __init__(self, waits: bool, advanced: Callable[[Partition], None]) -> None:
        self._waits = waits
        self._advanced = advanced
        self._appended = 0
        self._synced = 0
        self._token = 0
        self._dirty: dict[Partition, None] = {}
        self._under_way: tuple[int, list[tuple[Partition, int]]] | None = None
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()

    def appended(self, partition: Partition) -> None:
        """Something was appended to the partition."""
        self._appended += 1
        self._dirty[partition] = None
        if not self._waits:
            self._advanced(partition)

    def when_durable(self, now_ms: int, action: Callable[[int], None]) -> None:
        """Call `action(now_ms)` when all that has been appended so far is durable, at once where nothing is to be
        waited for."""
        if not self._waits or self._synced == self._appended:
            action(now_ms)
        else:
            self._waiting.append((self._appended, action))

    def next_sync(self, *, forced: bool = False) -> Sync | None:
        """The sync to begin now; `forced` begins one although nobody waits (fsync=interval)."""
        if self._under_way is not None or not self._dirty or not (forced or self._is_wanted()):
            return None
        covered, files = [], []
        for partition in self._dirty:
            log = partition.opened
            if log is not None:
                covered.append((partition, log.log_end_offset))
                files.extend(log.unsynced())
        self._dirty = {}
        self._token += 1
        self._under_way = (self._appended, covered)
        return Sync(self._token, files)

    def _is_wanted(self) -> bool:
        """Whether somebody waits, or readers of a topic do. A record of the broker's own that nobody waits for (that a
        transaction is complete) goes with the next sync: what is lost of it, the next start does again."""
        return self._waits and (bool(self._waiting) or not all(partition.topic.internal for partition in self._dirty))

    def synced(self, now_ms: int, token: int) -> None:
        """The sync with that token is done: move the high watermarks and let those go who waited for it."""
        if self._under_way is None or token != self._token:
            raise ValueError(f"sync {token} was not under way")
        self._synced, covered = self._under_way
        self._under_way = None
        for partition, end_offset in covered:
            if partition.opened is not None:
                partition.opened.mark_synced(end_offset)
                self._advanced(partition)
        while self._waiting and self._waiting[0][0] <= self._synced:
            self._waiting.popleft()[1](now_ms)
