"""The two sparse indexes of a segment, in Kafka's format: offset -> position, and timestamp -> offset.

The indexes only speed up searches. Both can be rebuilt from the log, which takes precedence. Entries are kept in memory
and written in groups (`flush`), always after the part of the log that they point into.

* An entry of .index has a relative offset (int32) and a position (int32): the last offset of a batch, and the position
  at which the batch begins.
* An entry of .timeindex has a timestamp (int64) and a relative offset (int32): the largest timestamp so far, and the
  last offset of the first batch that has it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import ClassVar, Final

from fencepost.broker.disk.files import File, Files

__all__ = ["IndexFile", "OffsetIndex", "RecentBatches", "TimeIndex"]

_TIME_ENTRY = struct.Struct(">qi")
_ENTRY_BYTES = 8
_FIRST_ROOM: Final = 8
_MOST_RECENT: Final = 128


def _strictly_increasing(values: array[int]) -> bool:
    return all(map(int.__lt__, values, values[1:]))


class IndexFile:
    """The file of an index. It is opened at the first write.

    `stem` and `ending` are its path. Partitions that are not in use keep no path of their own for each index.
    """

    __slots__ = ("_ending", "_file", "_files", "_stem")

    def __init__(self, files: Files, stem: str, ending: str) -> None:
        self._files = files
        self._stem = stem
        self._ending = ending
        self._file: File | None = None

    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._stem + self._ending)
        return self._file

    def store(self, position: int, data: bytes) -> None:
        """Keep the first `position` bytes of the file, and replace the rest by `data`."""
        file = self.file()
        if file.size() != position:
            file.truncate(position)
        if data:
            file.append(data)

    def opened(self) -> list[File]:
        """Return the file if it is open."""
        return [] if self._file is None else [self._file]

    def exists(self) -> bool:
        return self._file is not None or self._files.exists(self._stem + self._ending)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Index:
    """Base of both indexes: a column of relative offsets, and a column of positions or timestamps."""

    __slots__ = ("_base", "_file", "_flushed", "_values", "ends")
    VALUES: ClassVar[str]
    """The type of the second column, as `array` calls it."""

    def __init__(self, files: Files, stem: str, ending: str, base_offset: int) -> None:
        self._file = IndexFile(files, stem, ending)
        self._base = base_offset
        self.ends: array[int]
        """Last offset of each indexed batch, relative to the base offset."""
        self._forget()

    def _forget(self) -> None:
        self._take(array("i"), array(self.VALUES))

    def _take(self, offsets: array[int], values: array[int]) -> None:
        """Load the entries of the file."""
        self.ends, self._values = offsets, values
        self._flushed = len(offsets)  # number of entries in the file

    def __len__(self) -> int:
        return len(self.ends)

    def truncate(self, offset: int) -> None:
        """Drop entries of batches that end at or after `offset`."""
        slot = bisect_right(self.ends, min(offset - 1 - self._base, 2**31 - 1))
        del self.ends[slot:]
        del self._values[slot:]
        self._flushed = min(self._flushed, slot)

    def file(self) -> File:
        return self._file.file()

    def opened(self) -> list[File]:
        return self._file.opened()

    @property
    def is_flushed(self) -> bool:
        """True if the file has every entry."""
        return self._flushed == len(self.ends)

    def unload(self) -> None:
        """Drop the entries from memory. All of them are in the file."""
        self._forget()
        self.close()

    def close(self) -> None:
        self._file.close()


class OffsetIndex(_Index):
    """Positions by offset of one segment."""

    __slots__ = ()
    VALUES = "i"

    def load(self, data: bytes, log_size: int) -> bool:
        """Load the bytes of a file. Return false, and stay empty, if they cannot be an index of a log of that size."""
        entries: array[int] = array("i")
        entries.frombytes(data[: len(data) - len(data) % _ENTRY_BYTES])
        if sys.byteorder == "little":
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        sane = not offsets or (offsets[0] >= 0 and positions[0] >= 0 and positions[-1] < log_size)
        if (
            len(data) % _ENTRY_BYTES
            or not sane
            or not _strictly_increasing(offsets)
            or not _strictly_increasing(positions)
        ):
            self._forget()
            return False
        self._take(offsets, positions)
        return True

    def add(self, last_offset: int, position: int) -> None:
        self.ends.append(last_offset - self._base)
        self._values.append(position)

    def entry(self, offset: int) -> tuple[int, int] | None:
        """Return (last offset, position) of the last indexed batch whose last offset is not above `offset`."""
        slot = bisect_right(self.ends, min(offset - self._base, 2**31 - 1)) - 1
        return (self._base + self.ends[slot], self._values[slot]) if slot >= 0 else None

    def positions(self) -> list[int]:
        return list(self._values)

    def last(self) -> tuple[int, int] | None:
        """Return (last offset, position) of the last entry."""
        return (self._base + self.ends[-1], self._values[-1]) if self.ends else None

    def flush(self) -> None:
        """Write the entries that the file lacks. Raises OSError; another call then writes them again."""
        pairs: array[int] = array("i", bytes(_ENTRY_BYTES * (len(self.ends) - self._flushed)))
        pairs[0::2], pairs[1::2] = self.ends[self._flushed :], self._values[self._flushed :]
        if sys.byteorder == "little":
            pairs.byteswap()
        self._file.store(self._flushed * _ENTRY_BYTES, pairs.tobytes())
        self._flushed = len(self.ends)


class TimeIndex(_Index):
    """Offsets by timestamp of one segment."""

    __slots__ = ()
    VALUES = "q"

    def load(self, data: bytes) -> bool:
        """Load the bytes of a file. Return false, and stay empty, if they cannot be a time index."""
        whole = len(data) % _TIME_ENTRY.size == 0
        timestamps: array[int] = array("q")
        offsets: array[int] = array("i")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data if whole else b""):
            timestamps.append(timestamp)
            offsets.append(offset)
        sane = whole and _strictly_increasing(timestamps) and _strictly_increasing(offsets)
        if not sane or (timestamps and (timestamps[0] < 0 or offsets[0] < 0)):
            self._forget()
            return False
        self._take(offsets, timestamps)
        return True

    def add(self, timestamp: int, last_offset: int) -> None:
        """Add an entry, unless its timestamp is not larger than the last one's, as in Kafka."""
        if timestamp >= 0 and (not self._values or timestamp > self._values[-1]):
            self._values.append(timestamp)
            self.ends.append(last_offset - self._base)

    def entry(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry older than `timestamp`.

        All records up to that offset are older, too.
        """
        slot = bisect_right(self._values, timestamp - 1) - 1
        return (self._values[slot], self._base + self.ends[slot]) if slot >= 0 else None

    def newest_up_to(self, offset: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry whose offset is not above `offset`."""
        slot = bisect_right(self.ends, min(offset - self._base, 2**31 - 1)) - 1
        return (self._values[slot], self._base + self.ends[slot]) if slot >= 0 else None

    def last(self) -> tuple[int, int]:
        """Return (largest timestamp, last offset of its batch); (-1, base offset) if empty."""
        return (self._values[-1], self._base + self.ends[-1]) if self.ends else (-1, self._base)

    def flush(self) -> None:
        """Write the entries that the file lacks. Raises OSError; another call then writes them again."""
        data = b"".join(map(_TIME_ENTRY.pack, self._values[self._flushed :], self.ends[self._flushed :]))
        self._file.store(self._flushed * _TIME_ENTRY.size, data)
        self._flushed = len(self.ends)


class RecentBatches:
    """Last offset and position of the last batches of one segment. Lists would take ten times the memory."""

    __slots__ = ("_base", "_count", "_ends", "_positions", "_room")

    def __init__(self) -> None:
        self._ends, self._positions = array("i"), array("i")
        self._base = 0  # the first last offset, to which the others are relative; `Segment.must_end` bounds them
        self._count = self._room = 0  # entries in use, and entries that have memory

    def add(self, last_offset: int, position: int) -> None:
        """Add the batch that was appended last."""
        if self._count == self._room:
            self._make_room(last_offset)
        self._ends[self._count], self._positions[self._count] = last_offset - self._base, position
        self._count += 1

    def _make_room(self, last_offset: int) -> None:
        """Double the memory, or drop the first half of the entries."""
        if self._count == 0:
            self._base = last_offset
        if self._count == _MOST_RECENT:
            del self._ends[: _MOST_RECENT // 2], self._positions[: _MOST_RECENT // 2]
            self._count //= 2
        added = bytes(self._ends.itemsize * max(_FIRST_ROOM, self._count))
        self._ends.frombytes(added)
        self._positions.frombytes(added)
        self._room = len(self._ends)

    def locate(self, offset: int, size: int, next_offset: int) -> tuple[int, int, int] | None:
        """Return the result of `Segment.locate` for a segment with that size and next offset; None if unknown."""
        count = self._count
        relative = offset - self._base
        if count == 0 or relative <= self._ends[0]:
            return None
        slot = bisect_left(self._ends, relative, 0, count)
        if slot == count:
            return size, next_offset, 0
        position = self._positions[slot]
        end = self._positions[slot + 1] if slot + 1 < count else size
        return position, self._base + self._ends[slot - 1] + 1, end - position
