"""Columns of numpy arrays, which the compiled loops of `kernels.py` fill and read. Used with the extra `fast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from fencepost.protocol.records import kernels
from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, add_sequence
from fencepost.protocol.records.columns import Columns, Description, Numbers
from fencepost.protocol.records.plain import FEW
from fencepost.protocol.records.sealing import MAX_BATCH_BYTES, finish

__all__ = [
    "ALL_NULL",
    "ArrayColumns",
    "Int64s",
    "Source",
    "Spans",
    "decode_sections",
    "encode_batches",
    "encode_source",
    "source_of_columns",
    "source_of_lists",
]

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

# Slices are cut from copies of this size, which fit the processor's caches and reuse the same memory.
_STRETCH_BYTES: Final = 256 * 1024

_NO_INT64S: Final[Int64s] = np.empty(0, np.int64)


class Spans(NamedTuple):
    """A column of byte strings.

    Empty `lengths` mean that all strings are null. Empty `starts` mean that the strings follow each other from 0 on.
    """

    blob: Bytes
    starts: Int64s
    lengths: Int32s


ALL_NULL: Final = Spans(np.empty(0, np.uint8), _NO_INT64S, np.empty(0, np.int32))


class ArrayColumns(Columns):
    """Columns whose numbers are numpy arrays."""

    __slots__ = ()

    def _largest(self, numbers: Any) -> int:
        return int(numbers.max())

    def _all_bytes(self, starts: Any, lengths: Any) -> list[bytes | None]:
        if len(lengths) <= FEW:
            return super()._all_bytes(starts, lengths)
        if int(lengths.max()) < 0:
            return [None] * len(lengths)
        ends = starts + np.maximum(lengths, 0)
        rows = max(FEW, len(lengths) * _STRETCH_BYTES // max(int(ends[-1] - starts[0]), 1))
        found: list[bytes | None] = []
        for first in range(0, len(lengths), rows):
            part = slice(first, first + rows)
            found += self._stretch(starts[part], ends[part], lengths[part])
        return found

    def _stretch(self, starts: Any, ends: Any, lengths: Any) -> list[bytes | None]:
        """Cut the strings from one copy of the bytes that contain them; slices of bytes are the cheapest objects."""
        low, high = int(starts.min()), int(ends.max())
        blob = bytes(self.blob[low:high])
        spans = zip((starts - low).tolist(), (ends - low).tolist(), strict=True)
        if int(lengths.min()) >= 0:
            return [blob[start:end] for start, end in spans]
        nulls = (lengths < 0).tolist()
        return [None if null else blob[start:end] for null, (start, end) in zip(nulls, spans, strict=True)]


# ---- decoding


def decode_sections(
    blob: memoryview, batches: Sequence[Description], first_offset: int
) -> tuple[Columns, tuple[int, str] | None]:
    """Decode like `spans.decode_sections`."""
    raw = np.frombuffer(blob, np.uint8)
    described = np.array([_row_of(batch) for batch in batches], np.int64)
    arrays = _allocate(sum(batch.records for batch in batches))
    found, code, place = kernels.decode_records(raw, described, first_offset, *arrays)
    if code != kernels.OK:
        readable, _ = decode_sections(blob, batches[:place], first_offset) if place else (Columns.empty(), None)
        return readable, (place, kernels.EXPLANATIONS[code])
    columns = ArrayColumns(blob, *arrays)
    return columns if found == len(columns) else columns.select(slice(0, found)), None


def _row_of(batch: Description) -> tuple[int, ...]:
    """Return the batch as a row of DESCRIPTION_FIELDS numbers."""
    *others, append_time = batch
    return (*others, 0, 0) if append_time is None else (*others, 1, append_time)


def _allocate(
    count: int,
) -> tuple[Int64s, Int64s, Int64s, Int32s, Int64s, Int32s, Int64s, Int32s]:
    """Return arrays for offsets and timestamps, then for starts and lengths of keys, values and headers."""
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
    """Columns of `rows` records to encode. `timestamps` has one entry per record, or one for all."""

    rows: int
    keys: Spans
    values: Spans
    headers: Spans
    timestamps: Int64s


def encode_batches(
    columns: Columns,
    max_batch_bytes: int,
    *,
    compression: str = "none",
    level: int | None = None,
    **stamp: Unpack[Stamp],
) -> list[bytearray]:
    """Encode like `encode_batch`, and start a new batch where one would exceed `max_batch_bytes`.

    A single record may exceed the limit. If `base_sequence` is given, the sequences of the batches are contiguous.
    """
    return encode_source(source_of_columns(columns), max_batch_bytes, compression, level, stamp)


def encode_source(
    source: Source, max_batch_bytes: int, compression: str, level: int | None, stamp: Stamp
) -> list[bytearray]:
    """Choose the batch boundaries, then write, compress and seal each batch.

    Raises:
        ValueError: There are no records, or a record or batch is too large.
    """
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
        sealed.append(finish(output, end - first, int(own[0]), int(own.max()), compression, level, options))
        if options.get("base_sequence", -1) >= 0:
            options["base_sequence"] = add_sequence(options["base_sequence"], end - first)
        first = end
    return sealed


def source_of_columns(columns: Columns) -> Source:
    """Return decoded columns as a source for encoding. Offset deltas count from 0, whatever the offsets are."""
    blob = np.frombuffer(columns.blob, np.uint8)

    def spans(starts: Numbers, lengths: Numbers) -> Spans:
        return Spans(blob, np.ascontiguousarray(starts), np.ascontiguousarray(lengths))

    return Source(
        len(columns),
        spans(columns.key_start, columns.key_length),
        spans(columns.value_start, columns.value_length),
        spans(columns.header_start, columns.header_length),
        np.ascontiguousarray(columns.timestamps),
    )


def source_of_lists(
    rows: int,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None] | None,
    timestamps: int | Sequence[int],
    headers: Sequence[bytes | None] | None,
) -> Source:
    """Return lists as a source for encoding.

    `headers` are encoded sections; `timestamps` has one entry each, or one for all.
    """
    return Source(
        rows,
        _spans_of(keys),
        _spans_of(values),
        _spans_of([each or b"" for each in headers]) if headers is not None else ALL_NULL,
        np.array([timestamps], np.int64) if isinstance(timestamps, int) else np.ascontiguousarray(timestamps, np.int64),
    )


def _spans_of(strings: Sequence[bytes | None] | None) -> Spans:
    """Join a list of byte strings into one blob, with as much of the work as possible in C."""
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
