"""Places of the last batches of a log, which readers ask for most often."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

__all__ = ["RecentBatches"]

_FIRST_ROOM: Final = 8
_MOST: Final = 128


class RecentBatches:
    """Last offset and position of the last batches of one segment. Lists would take five times the memory."""

    __slots__ = ("_count", "_ends", "_positions", "_room")

    def __init__(self) -> None:
        self._ends, self._positions = array("q"), array("q")
        self._count = self._room = 0  # entries in use, and entries that have memory

    def add(self, last_offset: int, position: int) -> None:
        """Add the batch that was appended last."""
        if self._count == self._room:
            self._make_room()
        self._ends[self._count], self._positions[self._count] = last_offset, position
        self._count += 1

    def _make_room(self) -> None:
        """Double the memory, or drop the first half of the entries."""
        if self._count == _MOST:
            del self._ends[: _MOST // 2], self._positions[: _MOST // 2]
            self._count //= 2
        added = bytes(8 * max(_FIRST_ROOM, self._count))
        self._ends.frombytes(added)
        self._positions.frombytes(added)
        self._room = len(self._ends)

    def locate(self, offset: int, size: int, next_offset: int) -> tuple[int, int, int] | None:
        """Return the result of `Segment.locate` for a segment with that size and next offset; None if unknown."""
        count = self._count
        if count == 0 or offset <= self._ends[0]:
            return None
        slot = bisect_left(self._ends, offset, 0, count)
        if slot == count:
            return size, next_offset, 0
        position = self._positions[slot]
        end = self._positions[slot + 1] if slot + 1 < count else size
        return position, self._ends[slot - 1] + 1, end - position
