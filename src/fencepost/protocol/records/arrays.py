"""Columns of numpy arrays: the side of Arrow (arrow.py) of the loops over records.

Each function uses the native loops, or their twins in plain_arrays.py (engine.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records import engine, plain_arrays
from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, add_sequence
from fencepost.protocol.records.native_loops import BAD_HEADERS, EXPLANATIONS, OK
from fencepost.protocol.records.plain_arrays import ALL_NULL, Bytes, Int32s, Int64s, SourceColumns, Spans
from fencepost.protocol.records.sealing import MAX_BATCH_BYTES, finish

__all__ = ["decode_headers", "encode_headers", "encode_source", "gather"]


# ---- encoding


def encode_source(
    source: SourceColumns, max_batch_bytes: int, compression: str, level: int | None, stamp: Stamp
) -> list[bytearray]:
    """Choose the batch boundaries, then write, compress and seal each batch.

    A single record may exceed the limit. If `base_sequence` is given, the sequences of the batches are contiguous.

    Raises:
        ValueError: There are no records, or a record or batch is too large.
    """
    if not source.rows:
        raise ValueError("no records to encode")
    batches = _Native(source) if engine.is_native else plain_arrays.Plain(source)
    sealed: list[bytearray] = []
    options = stamp.copy()
    first = 0
    for end, size in batches.plan(min(max_batch_bytes, MAX_BATCH_BYTES)):
        if size + HEADER_BYTES > MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {size} bytes; at most 2 GiB are possible")
        output = batches.write(first, end, size)
        own = source.timestamps if len(source.timestamps) == 1 else source.timestamps[first:end]
        sealed.append(finish(output, end - first, int(own[0]), int(own.max()), compression, level, options))
        if options.get("base_sequence", -1) >= 0:
            options["base_sequence"] = add_sequence(options["base_sequence"], end - first)
        first = end
    return sealed


class _Native:
    """Batches of a source by the native loops. `plain_arrays.Plain` is its twin."""

    def __init__(self, source: SourceColumns) -> None:
        self._source = source
        self._cursors = (0, 0, 0)

    def plan(self, most_bytes: int) -> list[tuple[int, int]]:
        """Return the row after the last, and the size of the records section, of each batch."""
        code, row, batches = engine.native.plan_batches(self._source, most_bytes)
        return batches if code == OK else _refuse(code, row)

    def write(self, first: int, end: int, size: int) -> bytearray:
        """Return an unsealed batch of these rows: room for the header, then the records."""
        code, row, batch, self._cursors = engine.native.write_records(self._source, first, end, size, self._cursors)
        return batch if code == OK else _refuse(code, row)


def _refuse(code: int, row: int) -> NoReturn:
    raise ValueError(f"record {row}: {EXPLANATIONS[code]}")


def encode_headers(firsts: Int64s, counts: Int32s, keys: Spans, values: Spans) -> Spans:
    """Encode the headers section of each row, which has `counts` headers from `firsts` on in keys and values.

    A row without headers has an empty section. All `starts` must be given.

    Raises:
        ValueError: A key is null, or a section is larger than 2 GiB.
    """
    if not engine.is_native:
        return Spans(*plain_arrays.encode_headers(firsts, counts, keys, values))
    code, row, lengths, sections = engine.native.encode_headers(firsts, counts, keys, values)
    if code == BAD_HEADERS:
        raise ValueError(f"record {row}: a header's key is null")
    if code != OK:
        _refuse(code, row)
    return Spans(np.frombuffer(sections, np.uint8), ALL_NULL.starts, np.frombuffer(lengths, np.int32))


# ---- decoding


def gather(columns: Sequence[Spans]) -> tuple[Int64s, Bytes]:
    """Copy the strings of all columns without gaps; return the position of each and the end of the last, and the bytes.

    Raises:
        CorruptBatch: A string lies outside of its blob.
    """
    if not engine.is_native:
        return plain_arrays.gather(columns)
    code, row, bounds, strings = engine.native.gather(columns)
    if code != OK:
        raise CorruptBatch(f"record {row}: {EXPLANATIONS[code]}")
    return np.frombuffer(bounds, np.int64), np.frombuffer(strings, np.uint8)


def decode_headers(sections: Spans) -> tuple[Int64s, Spans, Spans]:
    """Find the headers of all rows; return the first of each row and their number, and their keys and values.

    Raises:
        CorruptBatch: A section does not parse.
    """
    blob = sections.blob
    if not engine.is_native:
        found: Any = plain_arrays.decode_headers(sections)
    else:
        code, row, *packed = engine.native.decode_headers(sections)
        if code != OK:
            raise CorruptBatch(f"record {row}: {EXPLANATIONS[code]}")
        kinds = (np.int64, np.int64, np.int32, np.int64, np.int32)
        found = [np.frombuffer(each, kind) for each, kind in zip(packed, kinds, strict=True)]
    bounds, key_starts, key_lengths, value_starts, value_lengths = found
    return bounds, Spans(blob, key_starts, key_lengths), Spans(blob, value_starts, value_lengths)
