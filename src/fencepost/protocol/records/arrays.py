"""Columns as numpy arrays: made and read by the compiled loops of `kernels.py`. The engine of the extra `fast`."""

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

# So much is copied at a time to be cut: it stays in the caches, and its memory serves again and again.
_STRETCH_BYTES: Final = 256 * 1024

_NO_INT64S: Final[Int64s] = np.empty(0, np.int64)


class Spans(NamedTuple):
    """A column of byte strings. Empty `lengths`: all null. Empty `starts`: one behind the other from 0 on."""

    blob: Bytes
    starts: Int64s
    lengths: Int32s


ALL_NULL: Final = Spans(np.empty(0, np.uint8), _NO_INT64S, np.empty(0, np.int32))


class ArrayColumns(Columns):
    """Columns whose numbers are numpy's."""

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
        """Out of one copy of the stretch that is needed: slices of bytes are by far the cheapest small objects."""
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
    """As `spans.decode_sections`."""
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
    """As DESCRIPTION_FIELDS says."""
    *others, append_time = batch
    return (*others, 0, 0) if append_time is None else (*others, 1, append_time)


def _allocate(
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
    return encode_source(source_of_columns(columns), max_batch_bytes, compression, level, stamp)


def encode_source(
    source: Source, max_batch_bytes: int, compression: str, level: int | None, stamp: Stamp
) -> list[bytearray]:
    """Plan the cuts, then write, compress and seal each batch. Raises ValueError, for no records too."""
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
    """To encode what was decoded. Offset deltas count from 0, whatever the offsets are."""
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
    """`headers`: encoded sections. `timestamps`: one each, or one for all."""
    return Source(
        rows,
        _spans_of(keys),
        _spans_of(values),
        _spans_of([each or b"" for each in headers]) if headers is not None else ALL_NULL,
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
