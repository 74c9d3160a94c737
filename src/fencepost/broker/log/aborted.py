"""The index of aborted transactions of one segment, in Kafka's .txnindex format.

An entry belongs to the segment that holds the abort marker, so entries are in the order of their last offset. 34
bytes: version int16 (0), producer id, first offset, last offset (of the marker), last stable offset right after the
marker (int64 each).
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left
from typing import NamedTuple

from fencepost.broker.disk.files import File, Files
from fencepost.broker.log.index import IndexFile
from fencepost.protocol.crc import crc32c

__all__ = ["Aborted", "AbortedIndex"]

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    __slots__ = ("_entries", "_file", "_flushed", "_last_offsets", "_seal")

    def __init__(self, files: Files, stem: str, ending: str) -> None:
        self._file = IndexFile(files, stem, ending)
        self._entries: list[Aborted] = []
        self._last_offsets: list[int] = []
        self._flushed = 0
        self._seal: tuple[int, int] | None = None  # of the present entries, once computed

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Aborted]:
        return list(self._entries)

    def seal(self) -> tuple[int, int]:
        """Return the number of entries, and the CRC-32C of their bytes."""
        if self._seal is None:
            self._seal = len(self._entries), crc32c(b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries))
        return self._seal

    @staticmethod
    def begins_with(data: bytes, seal: tuple[int, int]) -> bool:
        """Return true if the file's bytes begin with the sealed entries."""
        size = seal[0] * _ENTRY.size
        return len(data) >= size and crc32c(data[:size]) == seal[1]

    def load(self, data: bytes) -> bool:
        """Load the bytes of a file. Return false, and stay empty, if they cannot be such an index."""
        self._seal = None
        whole = len(data) % _ENTRY.size == 0
        rows = list(_ENTRY.iter_unpack(data if whole else b""))
        entries = [Aborted(*row[1:]) for row in rows]
        last = [entry.last_offset for entry in entries]
        sane = all(row[0] == _VERSION for row in rows) and all(a < b for a, b in itertools.pairwise(last))
        if not whole or not sane or any(entry.first_offset >= entry.last_offset for entry in entries):
            self._entries, self._last_offsets, self._flushed = [], [], 0
            return False
        self._entries, self._last_offsets, self._flushed = entries, last, len(entries)
        return True

    def add(self, entry: Aborted) -> None:
        self._seal = None
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)

    def collect(self, from_offset: int, to_offset: int, into: list[Aborted]) -> bool:
        """Add the transactions that overlap from_offset <= offset < to_offset.

        Return true if no later segment can have another.
        """
        for slot in range(bisect_left(self._last_offsets, from_offset), len(self._entries)):
            entry = self._entries[slot]
            if entry.first_offset < to_offset:
                into.append(entry)
            if entry.last_stable_offset >= to_offset:
                return True
        return False

    def truncate(self, offset: int) -> None:
        """Drop entries whose marker is at or after `offset`."""
        self._seal = None
        slot = bisect_left(self._last_offsets, offset)
        del self._entries[slot:]
        del self._last_offsets[slot:]
        self._flushed = min(self._flushed, slot)

    def flush(self) -> None:
        """Write the entries that the file lacks. An index without entries gets no file."""
        if not self._entries and self._flushed == 0 and not self._file.exists():
            return
        data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries[self._flushed :])
        self._file.store(self._flushed * _ENTRY.size, data)
        self._flushed = len(self._entries)

    def create(self) -> None:
        """Create the file, even without entries, because it replaces another one."""
        self._file.file()

    def file(self) -> File | None:
        """Return the file; None if it does not exist."""
        return self._file.file() if self._file.exists() else None

    def opened(self) -> list[File]:
        return self._file.opened()

    @property
    def is_flushed(self) -> bool:
        """True if the file has every entry."""
        return self._flushed == len(self._entries)

    def unload(self) -> None:
        """Drop the entries from memory. All of them are in the file."""
        self._seal = None
        self._entries, self._last_offsets, self._flushed = [], [], 0
        self.close()

    def close(self) -> None:
        self._file.close()
