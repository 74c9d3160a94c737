"""Record batches as columns: no Python object per record between the wire and numpy or Arrow.

`Columns` holds offsets, timestamps, and spans of keys, values and headers into one blob. Decoding points the spans into
the fetched buffer itself (into decompressed bytes where there is compression); encoding writes each record once, into
its place in the sealed batch. Importing this module imports numpy; numba and pyarrow are imported when first used.

Lengths are int32 with -1 for null, timestamps are milliseconds since 1970, offsets are absolute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, add_sequence, seal, seal_in_place
from fencepost.protocol.records.compression import compress
from fencepost.protocol.records.headers import Header, encode_headers, parse_headers
from fencepost.protocol.records.small import FEW, write_few

if TYPE_CHECKING:
    pass

__all__ = [
    "ALL_NULL",
    "COLUMN_BYTES",
    "Columns",
    "Header",
    "Record",
    "Source",
    "Spans",
    "allocate",
    "concat",
    "encode_batch",
    "encode_batches",
]

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

MAX_BATCH_BYTES: Final = 2**31 - 1

# Offset, timestamp, key, value, headers. A plain tuple: it costs a tenth of a named one.
Record = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]

_NO_BYTES: Final[Bytes] = np.empty(0, np.uint8)
_NO_INT64S: Final[Int64s] = np.empty(0, np.int64)
_NO_INT32S: Final[Int32s] = np.empty(0, np.int32)
_NO_HEADERS: Final[tuple[Header, ...]] = ()


class Spans(NamedTuple):
    """A column of byte strings. Empty `lengths`: all null. Empty `starts`: one behind the other from 0 on."""

    blob: Bytes
    starts: Int64s
    lengths: Int32s


ALL_NULL: Final = Spans(_NO_BYTES, _NO_INT64S, _NO_INT32S)


COLUMN_BYTES: Final = 52
"""What a record takes in the arrays of its columns."""


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
        blob: Bytes,
        offsets: Int64s,
        timestamps: Int64s,
        key_start: Int64s,
        key_length: Int32s,
        value_start: Int64s,
        value_length: Int32s,
        header_start: Int64s,
        header_length: Int32s,
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
    def empty(cls, next_offset: int = -1) -> Columns:
        return cls(_NO_BYTES, *allocate(0), next_offset)

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
        return parse_headers(self.blob[start : start + length].tobytes())

    def keys(self) -> list[bytes | None]:
        return self._all_bytes(self.key_start, self.key_length)

    def values(self) -> list[bytes | None]:
        return self._all_bytes(self.value_start, self.value_length)

    @property
    def has_headers(self) -> bool:
        """Whether any record has a header."""
        return bool(len(self)) and int(self.header_length.max()) > 1

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

    def select(self, rows: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp] | Sequence[int]) -> Columns:
        """The rows of a slice (no copy), a mask or positions; the blob and `next_offset` stay as they are."""
        index: Any = rows if isinstance(rows, slice | np.ndarray) else np.asarray(rows, np.intp)
        return Columns(
            self.blob,
            self.offsets[index],
            self.timestamps[index],
            self.key_start[index],
            self.key_length[index],
            self.value_start[index],
            self.value_length[index],
            self.header_start[index],
            self.header_length[index],
            self.next_offset,
        )

    def _bytes(self, start: np.int64, length: np.int32) -> bytes | None:
        if length < 0:
            return None
        return self.blob[int(start) : int(start) + int(length)].tobytes()

    def _all_bytes(self, starts: Int64s, lengths: Int32s) -> list[bytes | None]:
        if not len(lengths):
            return []
        if int(lengths.max()) < 0:
            return [None] * len(lengths)
        if len(lengths) <= FEW:
            view = self.blob.data
            few = zip(starts.tolist(), lengths.tolist(), strict=True)
            return [None if length < 0 else bytes(view[start : start + length]) for start, length in few]
        # One copy of the stretch that is needed, because slices of bytes are by far the cheapest small objects.
        ends = starts + np.maximum(lengths, 0)
        low, high = int(starts.min()), int(ends.max())
        blob = self.blob[low:high].tobytes()
        spans = zip((starts - low).tolist(), (ends - low).tolist(), strict=True)
        if int(lengths.min()) >= 0:
            return [blob[start:end] for start, end in spans]
        nulls = (lengths < 0).tolist()
        return [None if null else blob[start:end] for null, (start, end) in zip(nulls, spans, strict=True)]


def concat(parts: Sequence[Columns]) -> Columns:
    """One after the other, over one new blob. `next_offset` is the last part's."""
    if not parts:
        return Columns.empty()
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0] + [len(part.blob) for part in parts[:-1]])

    def shifted(name: str) -> Int64s:
        joined: Int64s = np.concatenate([getattr(p, name) + s for p, s in zip(parts, shifts, strict=True)])
        return joined

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return Columns(
        joined("blob"),
        joined("offsets"),
        joined("timestamps"),
        shifted("key_start"),
        joined("key_length"),
        shifted("value_start"),
        joined("value_length"),
        shifted("header_start"),
        joined("header_length"),
        parts[-1].next_offset,
    )


def allocate(
    count: int,
) -> tuple[Int64s, Int64s, Int64s, Int32s, Int64s, Int32s, Int64s, Int32s]:
    """Offsets, timestamps, then starts and lengths of keys, values and headers."""
    return (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int32),
        np.empty(count, np.int64),
        np.empty(count, np.int32),
        np.empty(count, np.int64),
        np.empty(count, np.int32),
    )


# ---- encoding


class Source(NamedTuple):
    """What to encode: `rows` records. `timestamps` has as many entries, or one for all."""

    rows: int
    keys: Spans
    values: Spans
    headers: Spans
    timestamps: Int64s


def encode_batch(
    columns: Columns | None = None,
    *,
    keys: Sequence[bytes | None] | None = None,
    values: Sequence[bytes | None] | None = None,
    timestamps: int | Sequence[int] | Int64s = 0,
    headers: Sequence[Sequence[Header] | None] | None = None,
    compression: str = "none",
    level: int | None = None,
    **stamp: Unpack[Stamp],
) -> bytearray:
    """One sealed batch of `columns`, or of lists: `values` and/or `keys`, one timestamp (ms) for all or one each.

    Offset deltas count from 0, whatever offsets the columns have. base_timestamp is the first record's. If compression
    would make the batch larger it is left out. Raises ValueError for no records at all, lists of different lengths, or
    more than 2 GiB.
    """
    if columns is not None:
        source = _from_columns(columns)
    else:
        rows = _rows_of(keys, values, timestamps, headers)
        if 0 < rows <= FEW:
            times = (timestamps,) if isinstance(timestamps, int) else timestamps
            few = write_few(rows, keys, values, timestamps, headers)
            return _seal(few, rows, int(times[0]), int(max(times)), compression, level, stamp)
        source = _from_lists(rows, keys, values, timestamps, headers)
    (batch,) = encode_source(source, MAX_BATCH_BYTES, compression, level, stamp)
    return batch


def encode_batches(
    columns: Columns,
    max_batch_bytes: int,
    *,
    compression: str = "none",
    level: int | None = None,
    **stamp: Unpack[Stamp],
) -> list[bytearray]:
    """As `encode_batch`, cut so that no batch is larger than `max_batch_bytes` unless it is a single record.

    With a base_sequence, each further batch goes on where the one before ended.
    """
    return encode_source(_from_columns(columns), max_batch_bytes, compression, level, stamp)


def encode_source(
    source: Source, max_batch_bytes: int, compression: str, level: int | None, stamp: Stamp
) -> list[bytearray]:
    """Plan the cuts, then write, compress and seal each batch."""
    from fencepost.protocol.records import kernels

    if not source.rows:
        raise ValueError("no records to encode")
    spans = (*source.keys, *source.values, *source.headers)
    bodies = np.empty(source.rows, np.int32)
    ends, sizes = np.empty(source.rows, np.int64), np.empty(source.rows, np.int64)
    batches, code, row = kernels.plan_batches(
        *spans, source.timestamps, min(max_batch_bytes, MAX_BATCH_BYTES), bodies, ends, sizes
    )
    if code != kernels.OK:
        raise ValueError(f"record {row}: {kernels.EXPLANATIONS[code]}")
    cursors = np.zeros(3, np.int64)
    sealed: list[bytearray] = []
    options = stamp.copy()
    first = 0
    for end, size in zip(ends[:batches].tolist(), sizes[:batches].tolist(), strict=True):
        if size + HEADER_BYTES > MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {size} bytes; at most 2 GiB are possible")
        output = bytearray(HEADER_BYTES + size)
        written, code, row = kernels.write_records(
            *spans, source.timestamps, first, end, bodies, cursors, np.frombuffer(output, np.uint8), HEADER_BYTES
        )
        if code != kernels.OK or written != len(output):
            raise ValueError(f"record {row}: {kernels.EXPLANATIONS[code or kernels.OVERFULL]}")
        own = source.timestamps if len(source.timestamps) == 1 else source.timestamps[first:end]
        sealed.append(_seal(output, end - first, int(own[0]), int(own.max()), compression, level, options))
        if options.get("base_sequence", -1) >= 0:
            options["base_sequence"] = add_sequence(options["base_sequence"], end - first)
        first = end
    return sealed


def _seal(
    output: bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: str,
    level: int | None,
    stamp: Stamp,
) -> bytearray:
    if compression != "none":
        section = compress(compression, memoryview(output)[HEADER_BYTES:], level)
        if len(section) + HEADER_BYTES <= len(output):
            return seal(
                section,
                record_count=count,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                compression=compression,
                **stamp,
            )
    seal_in_place(output, record_count=count, base_timestamp=base_timestamp, max_timestamp=max_timestamp, **stamp)
    return output


def _from_columns(columns: Columns) -> Source:
    def spans(starts: Int64s, lengths: Int32s) -> Spans:
        return Spans(columns.blob, np.ascontiguousarray(starts), np.ascontiguousarray(lengths))

    return Source(
        len(columns),
        spans(columns.key_start, columns.key_length),
        spans(columns.value_start, columns.value_length),
        spans(columns.header_start, columns.header_length),
        np.ascontiguousarray(columns.timestamps),
    )


def _rows_of(*columns: Any) -> int:
    """The common length of the columns that have one. Raises ValueError."""
    counts = {len(column) for column in columns if column is not None and not isinstance(column, int)}
    if len(counts) != 1:
        raise ValueError(f"columns of different lengths, or none at all: {sorted(counts)}")
    return counts.pop()


def _from_lists(
    rows: int,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None] | None,
    timestamps: int | Sequence[int] | Int64s,
    headers: Sequence[Sequence[Header] | None] | None,
) -> Source:
    return Source(
        rows,
        _spans_of(keys),
        _spans_of(values),
        _header_spans(headers),
        np.array([timestamps], np.int64) if isinstance(timestamps, int) else np.ascontiguousarray(timestamps, np.int64),
    )


def _spans_of(strings: Sequence[bytes | None] | None) -> Spans:
    """Join a list of byte strings into one blob; what Python can do in C is left to it."""
    if strings is None:
        return ALL_NULL
    nulls = strings.count(None)
    if nulls == len(strings):
        return ALL_NULL
    if nulls:
        lengths = [-1 if each is None else len(each) for each in strings]
        blob = b"".join(filter(None, strings))
    else:
        lengths = list(map(len, strings))  # type: ignore[arg-type]  # none of them is None
        blob = b"".join(strings)  # type: ignore[arg-type]  # none of them is None
    return Spans(np.frombuffer(blob, np.uint8), _NO_INT64S, np.array(lengths, np.int32))


def _header_spans(headers: Sequence[Sequence[Header] | None] | None) -> Spans:
    if headers is None or not any(headers):
        return ALL_NULL
    sections = [encode_headers(each) if each else b"" for each in headers]
    return _spans_of(sections)
