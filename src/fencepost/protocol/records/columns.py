"""Record batches as columns: no Python object per record between the wire and numpy or Arrow.

`Columns` holds offsets, timestamps, and spans of keys, values and headers into one blob. Decoding (decoding.py) points
the spans into the fetched buffer itself, into decompressed bytes where there is compression; encoding (encoding.py)
writes each record once, into its place in the batch. The numbers are numpy's where the compiled loops are installed
(arrays.py), else the standard library's (spans.py). This module imports neither numpy nor numba.

Lengths are int32 with -1 for null, timestamps are milliseconds since 1970, offsets are absolute.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol, Self

from fencepost.protocol.records.headers import Header, parse_headers

__all__ = ["COLUMN_BYTES", "Columns", "Description", "Header", "Numbers", "Record"]

# Offset, timestamp, key, value, headers. A plain tuple: it costs a tenth of a named one.
Record = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]

COLUMN_KINDS: Final = "qqqiqiqi"
"""Of the arrays, in the order of the constructor: int64 but for the lengths."""

_NO_HEADERS: Final[tuple[Header, ...]] = ()

COLUMN_BYTES: Final = 52
"""What a record takes in the arrays of its columns."""


class Numbers(Protocol):
    """A column of whole numbers: a memoryview of an `array`, or a numpy array."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...

    def tolist(self) -> Any: ...


class Description(NamedTuple):
    """A batch to decode: where its records lie in a blob, and what its header says of them. `append_time`: the
    timestamp of all of them, where they have one."""

    start: int
    end: int
    records: int
    base_offset: int
    base_timestamp: int
    last_delta: int
    append_time: int | None


class Columns:
    """n records as arrays of length n over `blob`. `next_offset` is where the next fetch starts (-1: nothing was seen).

    `header_start`/`header_length` span a record's encoded headers section, count included; length 1 means no headers.
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
        """Of the records and of the arrays."""
        return len(self.blob) + len(self) * COLUMN_BYTES

    def __repr__(self) -> str:
        return f"Columns({len(self)} records, blob of {len(self.blob)} bytes, next_offset={self.next_offset})"

    def key(self, index: int) -> bytes | None:
        return self._bytes(self.key_start[index], self.key_length[index])

    def value(self, index: int) -> bytes | None:
        return self._bytes(self.value_start[index], self.value_length[index])

    def headers(self, index: int) -> list[Header]:
        """The headers of one record, in order."""
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
        """Whether any record has a header."""
        return bool(len(self)) and self._largest(self.header_length) > 1

    def all_headers(self) -> list[Sequence[Header]]:
        """The headers of every record; records without any share one empty tuple."""
        if not self.has_headers:
            return [_NO_HEADERS] * len(self)
        lengths = self.header_length.tolist()
        return [self.headers(index) if length > 1 else _NO_HEADERS for index, length in enumerate(lengths)]

    def records(self) -> Iterator[Record]:
        """(offset, timestamp, key, value, headers) of each record."""
        headers: Iterable[Sequence[Header]] = self.all_headers() if self.has_headers else repeat(_NO_HEADERS, len(self))
        return zip(self.offsets.tolist(), self.timestamps.tolist(), self.keys(), self.values(), headers, strict=True)

    def header_sections(self) -> list[bytes | None]:
        """The headers of every record as they are encoded."""
        return self._all_bytes(self.header_start, self.header_length)

    def select(self, rows: slice) -> Self:
        """These rows, not copied; the blob and `next_offset` stay as they are."""
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
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        return [None if length < 0 else bytes(view[start : start + length]) for start, length in spans]

    def _largest(self, numbers: Numbers) -> int:
        return int(max(numbers.tolist()))
