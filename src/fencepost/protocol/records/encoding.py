"""Encode columns, lists or pairs as a record batch, with or without the native loops (engine.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from fencepost.protocol.records import engine
from fencepost.protocol.records.batch import CONTROL, TRANSACTIONAL, Stamp
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.headers import Header, encode_headers
from fencepost.protocol.records.plain import Pairs, write_pairs, write_records
from fencepost.protocol.records.sealing import MAX_BATCH_BYTES, finish

if TYPE_CHECKING:
    from fencepost_native import OpenRows

__all__ = ["encode_batch", "encode_pairs", "encode_rows"]


def encode_batch(
    columns: Columns | None = None,
    *,
    keys: Sequence[bytes | None] | None = None,
    values: Sequence[bytes | None] | None = None,
    timestamps: int | Sequence[int] = 0,
    headers: Sequence[Sequence[Header] | None] | None = None,
    compression: str = "none",
    level: int | None = None,
    **stamp: Unpack[Stamp],
) -> bytearray:
    """Encode one sealed batch from `columns`, or from lists.

    Offset deltas count from 0, whatever offsets the columns have. base_timestamp is the first record's timestamp.
    Compression is skipped if it would make the batch larger.

    Args:
        columns: Decoded records; if given, the lists are ignored.
        keys: The keys; default: all null.
        values: The values; default: all null.
        timestamps: Milliseconds since 1970, one for all or one per record.
        headers: The headers of each record; default: none.
        compression: A codec's name.
        level: The codec's level; default: Kafka's.
        **stamp: Header fields of the batch.

    Raises:
        ValueError: There are no records, the lists have different lengths, or the batch exceeds 2 GiB.
    """
    rows = len(columns) if columns is not None else _rows_of(keys, values, timestamps, headers)
    if not rows:
        raise ValueError("no records to encode")
    if columns is not None:
        keys, values, timestamps = columns.keys(), columns.values(), columns.timestamps.tolist()
    sections = columns.header_sections() if columns is not None else _sections(headers)
    write = engine.native.write_lists if engine.is_native else write_records
    return _finished(write(rows, keys, values, timestamps, sections), rows, timestamps, compression, level, stamp)


def encode_rows(
    source: OpenRows,
    chosen: list[int] | None,
    count: int,
    timestamps: int | Sequence[int],
    headers: Sequence[Sequence[Header] | None] | None,
    compression: str,
    level: int | None,
    **stamp: Unpack[Stamp],
) -> bytearray:
    """Encode `count` rows of the native module like `encode_batch`: the `chosen` ones, or all with None."""
    if not count:
        raise ValueError("no records to encode")
    return _finished(source.write(chosen, timestamps, _sections(headers)), count, timestamps, compression, level, stamp)


def encode_pairs(
    pairs: Pairs,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Encode records (key, value) with the same timestamp into an uncompressed batch without sequences."""
    write = engine.native.write_pairs if engine.is_native else write_pairs
    attributes = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    return write(pairs, timestamp_ms, base_offset, partition_leader_epoch, attributes, producer_id, producer_epoch)


def _finished(
    written: bytearray,
    rows: int,
    timestamps: int | Sequence[int],
    compression: str,
    level: int | None,
    stamp: Stamp,
) -> bytearray:
    if len(written) > MAX_BATCH_BYTES:
        raise ValueError(f"a batch of {len(written)} bytes; at most 2 GiB are possible")
    times = (timestamps,) if isinstance(timestamps, int) else timestamps
    return finish(written, rows, int(times[0]), int(max(times)), compression, level, stamp)


def _rows_of(*columns: Any) -> int:
    """Return the common length of the given columns.

    Raises:
        ValueError: Their lengths differ, or none is given.
    """
    counts = {len(column) for column in columns if column is not None and not isinstance(column, int)}
    if len(counts) != 1:
        raise ValueError(f"columns of different lengths, or none at all: {sorted(counts)}")
    return counts.pop()


def _sections(headers: Sequence[Sequence[Header] | None] | None) -> list[bytes | None] | None:
    if headers is None or not any(headers):
        return None
    return [encode_headers(each) if each else None for each in headers]
