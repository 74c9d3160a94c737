"""Record batches as columns, without a Python object per record between the wire and numpy or Arrow.

`Columns` holds offsets, timestamps, and spans of keys, values and headers in one blob. Decoding (decoding.py) makes the
spans point into the fetched buffer itself, or into the decompressed bytes. Encoding (encoding.py) writes each record
once, directly into the batch. The numbers are memoryviews, of which numpy makes arrays without a copy. This module does
not import numpy.

Lengths are int32 with -1 for null, timestamps are milliseconds since 1970, offsets are absolute.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Self

from fencepost.protocol.records import engine
from fencepost.protocol.records.headers import Header, parse_headers

__all__ = ["COLUMN_BYTES", "FEW", "Columns", "Description", "Header", "Numbers", "Record"]

# Offset, timestamp, key, value, headers. A plain tuple costs a tenth of a named one.
Record = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]

COLUMN_KINDS: Final = "qqqiqiqi"
"""Type codes of the arrays, in the order of the constructor: int32 for lengths, int64 for the others."""

_NO_HEADERS: Final[tuple[Header, ...]] = ()

FEW: Final = 4  # up to this number, plain Python is as fast

COLUMN_BYTES: Final = 52
"""Size of one record in the arrays of its columns, in bytes."""


Numbers = memoryview
"""A column of integers of 4 or 8 bytes."""


class Description(NamedTuple):
    """A batch to decode: the position of its records in a blob, and the header fields that decoding needs.

    `append_time` is the timestamp of all records in a batch with LogAppendTime, otherwise None.
    """

    start: int
    end: int
    records: int
    base_offset: int
    base_timestamp: int
    last_delta: int
    append_time: int | None


class Columns:
    """n records as arrays of length n over `blob`.

    `next_offset` is the offset of the next fetch, or -1 if no batch was read. `header_start` and `header_length` span a
    record's encoded headers section, count included; a length of 1 means no headers.
    """

    __slots__ = (
        "blob",
        "header_length",
        "header_start",
        "key_length",
        "key_start",
        "next_offset",
        "offsets",
        "timestamps",
        "value_length",
        "value_start",
    )

    def __init__(
        self,
        blob: memoryview,
        offsets: Numbers,
        timestamps: Numbers,
        key_start: Numbers,
        key_length: Numbers,
        value_start: Numbers,
        value_length: Numbers,
        header_start: Numbers,
        header_length: Numbers,
        next_offset: int = -1,
    ) -> None:
        self.blob = blob
        self.offsets = offsets
        self.timestamps = timestamps
        self.key_start = key_start
        self.key_length = key_length
        self.value_start = value_start
        self.value_length = value_length
        self.header_start = header_start
        self.header_length = header_length
        self.next_offset = next_offset

    @classmethod
    def empty(cls, next_offset: int = -1) -> Self:
        none: list[Any] = [memoryview(array(kind)) for kind in COLUMN_KINDS]
        columns = cls(memoryview(b""), *none)
        columns.next_offset = next_offset
        return columns

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """Size of the blob and of the arrays, in bytes."""
        return len(self.blob) + len(self) * COLUMN_BYTES

    def __repr__(self) -> str:
        return f"Columns({len(self)} records, blob of {len(self.blob)} bytes, next_offset={self.next_offset})"

    def key(self, index: int) -> bytes | None:
        return self._bytes(self.key_start[index], self.key_length[index])

    def value(self, index: int) -> bytes | None:
        return self._bytes(self.value_start[index], self.value_length[index])

    def headers(self, index: int) -> list[Header]:
        """Return the headers of one record, in order."""
        length = int(self.header_length[index])
        if length <= 1:
            return []
        start = int(self.header_start[index])
        return parse_headers(bytes(self.blob[start : start + length]))

    def keys(self) -> list[bytes | None]:
        return self._all_bytes(self.key_start, self.key_length)

    def values(self) -> list[bytes | None]:
        return self._all_bytes(self.value_start, self.value_length)

    @property
    def has_headers(self) -> bool:
        """True if any record has a header."""
        return bool(len(self)) and self._largest(self.header_length) > 1

    def all_headers(self) -> list[Sequence[Header]]:
        """Return the headers of every record. Records without headers share one empty tuple."""
        if not self.has_headers:
            return [_NO_HEADERS] * len(self)
        lengths = self.header_length.tolist()
        return [self.headers(index) if length > 1 else _NO_HEADERS for index, length in enumerate(lengths)]

    def records(self) -> Iterator[Record]:
        """Return (offset, timestamp, key, value, headers) of each record."""
        headers: Iterable[Sequence[Header]] = self.all_headers() if self.has_headers else repeat(_NO_HEADERS, len(self))
        return zip(self.offsets.tolist(), self.timestamps.tolist(), self.keys(), self.values(), headers, strict=True)

    def header_sections(self) -> list[bytes | None]:
        """Return the encoded headers section of every record."""
        return self._all_bytes(self.header_start, self.header_length)

    def select(self, rows: slice) -> Self:
        """Return these rows without copying them. The blob and `next_offset` stay the same."""
        return type(self)(
            self.blob,
            self.offsets[rows],
            self.timestamps[rows],
            self.key_start[rows],
            self.key_length[rows],
            self.value_start[rows],
            self.value_length[rows],
            self.header_start[rows],
            self.header_length[rows],
            self.next_offset,
        )

    def _bytes(self, start: int, length: int) -> bytes | None:
        return None if length < 0 else bytes(self.blob[start : start + length])

    def _all_bytes(self, starts: Numbers, lengths: Numbers) -> list[bytes | None]:
        view = self.blob
        if len(lengths) > FEW and engine.is_native and starts.contiguous:
            return engine.native.cut(view, starts, lengths)
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        return [None if length < 0 else bytes(view[start : start + length]) for start, length in spans]

    def _largest(self, numbers: Numbers) -> int:
        return int(max(numbers.tolist()))
