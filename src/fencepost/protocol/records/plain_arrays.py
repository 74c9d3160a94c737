"""Columns of numpy arrays, and the twins in plain Python of the native loops that arrays.py uses. Same results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import HEADER_BYTES
from fencepost.protocol.records.native_loops import EXPLANATIONS
from fencepost.protocol.records.plain import time_delta, write_records
from fencepost.protocol.records.spans import headers_of
from fencepost.protocol.varint import encode_varint

__all__ = [
    "ALL_NULL",
    "Bytes",
    "Int32s",
    "Int64s",
    "Plain",
    "SourceColumns",
    "Spans",
    "decode_headers",
    "encode_headers",
    "gather",
]

_MAX_BODY_BYTES = 2**31 - 1
_BAD_HEADERS, _OUTSIDE_BLOB, _TOO_LARGE = 4, 6, 7


Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


class Spans(NamedTuple):
    """A column of byte strings.

    Empty `lengths` mean that all strings are null. Empty `starts` mean that the strings follow each other from 0 on.
    """

    blob: Bytes
    starts: Int64s
    lengths: Int32s


ALL_NULL: Final = Spans(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))


class SourceColumns(NamedTuple):
    """Columns of `rows` records to encode. `timestamps` has one entry per record, or one for all."""

    rows: int
    keys: Spans
    values: Spans
    headers: Spans
    timestamps: Int64s


class Plain:
    """Batches of a source. `arrays._Native` is its twin."""

    def __init__(self, source: SourceColumns) -> None:
        self._keys, self._values, self._headers = map(_strings, (source.keys, source.values, source.headers))
        self._times = source.timestamps.tolist()
        self._rows = source.rows

    def plan(self, most_bytes: int) -> list[tuple[int, int]]:
        """Return the row after the last, and the size of the records section, of each batch."""
        batches: list[tuple[int, int]] = []
        first = section = 0
        for row in range(self._rows):
            record = self._size(row, first)
            if row > first and HEADER_BYTES + section + record > most_bytes:
                batches.append((row, section))
                first, section = row, 0
                record = self._size(row, first)
            if record > _MAX_BODY_BYTES:
                raise ValueError(f"record {row}: {EXPLANATIONS[_TOO_LARGE]}")
            section += record
        return [*batches, (self._rows, section)]

    def write(self, first: int, end: int, size: int) -> bytearray:
        """Return an unsealed batch of these rows: room for the header, then the records."""
        rows = slice(first, end)
        keys, values, headers = (
            None if column is None else column[rows] for column in (self._keys, self._values, self._headers)
        )
        times = self._times[0] if len(self._times) == 1 else self._times[rows]
        return write_records(end - first, keys, values, times, headers)

    def _size(self, row: int, first: int) -> int:
        """Return the size of a record, its length included, in a batch that begins with the row `first`."""
        delta = 0 if len(self._times) == 1 else time_delta(self._times[row], self._times[first])
        headers = None if self._headers is None else self._headers[row]
        body = 1 + _varint_bytes(delta) + _varint_bytes(row - first) + (len(headers or b"") or 1)
        for column in (self._keys, self._values):
            field = None if column is None else column[row]
            body += 1 if field is None else _whole(len(field))
        return _whole(body)


def encode_headers(firsts: Int64s, counts: Int32s, keys: Spans, values: Spans) -> tuple[Bytes, Int64s, Int32s]:
    """Encode like `arrays.encode_headers`; return the fields of a `Spans`."""
    names, contents = _strings(keys) or [], _strings(values) or []
    sections: list[bytes] = []
    for row, (first, count) in enumerate(zip(firsts.tolist(), counts.tolist(), strict=True)):
        section = encode_varint(count) if count > 0 else b""
        for index in range(first, first + count):
            name, content = names[index], contents[index]
            if name is None:
                raise ValueError(f"record {row}: a header's key is null")
            section += encode_varint(len(name)) + name
            section += encode_varint(-1) if content is None else encode_varint(len(content)) + content
        sections.append(section)
    lengths = np.fromiter(map(len, sections), np.int32, len(sections))
    return np.frombuffer(b"".join(sections), np.uint8), np.empty(0, np.int64), lengths


def gather(columns: Sequence[Spans]) -> tuple[Int64s, Bytes]:
    """Copy like `arrays.gather`."""
    strings: list[bytes] = []
    for spans in columns:
        strings += [each or b"" for each in _strings(spans, CorruptBatch, len(strings)) or []]
    bounds = np.fromiter(accumulate(map(len, strings), initial=0), np.int64, len(strings) + 1)
    return bounds, np.frombuffer(b"".join(strings), np.uint8)


def decode_headers(sections: Spans) -> tuple[Any, ...]:
    """Find like `arrays.decode_headers`; return bounds, then starts and lengths of keys and of values."""
    blob = sections.blob.tobytes()
    found: list[tuple[int, int, int, int]] = []
    bounds = [0]
    for row, (start, length) in enumerate(zip(sections.starts.tolist(), sections.lengths.tolist(), strict=True)):
        if length > 0 and not 0 <= start <= len(blob) - length:
            raise CorruptBatch(f"record {row}: {EXPLANATIONS[_OUTSIDE_BLOB]}")
        if length > 1:
            found += headers_of(blob, start, start + length, row)
        bounds.append(len(found))
    columns = zip(*found, strict=True) if found else ((), (), (), ())
    kinds = (np.int64, np.int32, np.int64, np.int32)
    named = zip(columns, kinds, strict=True)
    return (np.array(bounds, np.int64), *(np.array(numbers, kind) for numbers, kind in named))


def _strings(spans: Spans, error: type[Exception] = ValueError, first_row: int = 0) -> list[bytes | None] | None:
    """Return the strings of a column; None if all are null. `first_row` is the number of its first row in errors."""
    if not len(spans.lengths):
        return None
    blob, lengths = spans.blob.tobytes(), spans.lengths.tolist()
    starts = spans.starts.tolist() or list(accumulate((max(length, 0) for length in lengths), initial=0))[:-1]
    strings: list[bytes | None] = []
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True), first_row):
        if length > 0 and not 0 <= start <= len(blob) - length:
            raise error(f"record {row}: {EXPLANATIONS[_OUTSIDE_BLOB]}")
        strings.append(None if length < 0 else blob[start : start + length] if length else b"")
    return strings


def _varint_bytes(value: int) -> int:
    """Return the size of a zigzag varint."""
    return max((((value << 1) ^ (value >> 63)).bit_length() + 6) // 7, 1)


def _whole(size: int) -> int:
    return size + _varint_bytes(size)
