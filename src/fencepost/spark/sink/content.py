"""Compute the content of a batch: its number of rows, and a checksum that does not depend on their order.

A row's checksum is the XXH64 of the XXH64s of its cells (topic, key, value, headers). A batch's checksum is the sum of
its rows' checksums modulo 2**64, so it does not depend on the split into tasks. Decision records store it, so this
computation must never change.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from fencepost.protocol.records import engine
from fencepost.protocol.xxh64 import xxh64
from fencepost.spark.sink.decision import Content

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Hashes", "content_of", "hash_cells", "row_hashes"]

_NULL: Final = np.uint64(0x6E756C6C)  # the checksum of a null cell, and of each cell of a missing column
_CELLS: Final = 4

Hashes = npt.NDArray[np.uint64]


def content_of(rows: pa.RecordBatch, topic: str | None) -> Content:
    """Return the content of rows for the sink. `topic` None: the rows have a column `topic`."""
    return Content(rows.num_rows, int(row_hashes(rows, topic).sum(dtype=np.uint64)))


def row_hashes(rows: pa.RecordBatch, topic: str | None) -> Hashes:
    """Return the checksum of each row. `topic` as for `content_of`."""
    count = rows.num_rows
    if count == 0:
        return np.empty(0, np.uint64)
    has = rows.schema.names
    cells = np.full((count, _CELLS), _NULL, np.uint64)
    if topic is not None:
        raw = topic.encode()
        cells[:, 0] = hash_cells(np.frombuffer(raw, np.uint8), np.array([0, len(raw)], np.int64))[0]
    else:
        cells[:, 0] = _column(rows.column("topic"))
    cells[:, 1] = _column(rows.column("key")) if "key" in has else _NULL
    cells[:, 2] = _column(rows.column("value"))
    if "headers" in has:
        cells[:, 3] = _headers(rows.column("headers"))
    return hash_cells(cells.view(np.uint8).reshape(-1), np.arange(count + 1, dtype=np.int64) * (8 * _CELLS))


def _column(column: pa.Array) -> Hashes:
    import pyarrow as pa

    plain = column.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
    blob = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hashed = hash_cells(blob, bounds)
    if plain.null_count:
        hashed[np.asarray(plain.is_null())] = _NULL
    return hashed


def _headers(column: pa.ListArray) -> Hashes:
    """Return the checksum of each row's headers, in their order. An empty list and null are the same, as in Kafka."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    keys, values = column.values.slice(first, last - first).flatten()  # a slice shares the headers of all rows
    pairs = np.stack([_column(keys), _column(values)], axis=1)
    bounds = (offsets - first) * 16
    hashed = hash_cells(np.ascontiguousarray(pairs).view(np.uint8).reshape(-1), bounds)
    empty = bounds[1:] == bounds[:-1]
    if column.null_count:
        empty |= np.asarray(column.is_null())
    hashed[empty] = _NULL
    return hashed


def hash_cells(blob: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> Hashes:
    """Return the XXH64 (seed 0) of each span of `blob`. Span i is from `bounds[i]` to `bounds[i + 1]`.

    Raises ValueError for bounds that are not ascending or outside of `blob`.
    """
    if len(bounds) > 1 and (bounds[0] < 0 or bounds[-1] > len(blob) or bool((np.diff(bounds) < 0).any())):
        raise ValueError("spans lie outside their blob")
    raw, ends = np.ascontiguousarray(blob), np.ascontiguousarray(bounds)
    if engine.is_native:
        return np.frombuffer(engine.native.xxh64_of_spans(raw, ends), np.uint64)
    whole = raw.tobytes()
    hashes = (xxh64(whole[start:end]) for start, end in pairwise(ends.tolist()))
    return np.fromiter(hashes, np.uint64, len(ends) - 1)
