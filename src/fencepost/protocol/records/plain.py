"""Encode batches in plain Python. The bytes are the same as those of the native loops (engine.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fencepost.protocol.records.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, seal_in_place
from fencepost.protocol.varint import encode_varint

__all__ = ["Pairs", "time_delta", "write_pairs", "write_records"]

Pairs = Sequence[tuple[bytes | None, bytes | None]]
"""Keys and values of records."""

_INT64_SIGN = 2**63
_SMALL_COUNT: Final = 512
_SMALL: Final = [encode_varint(value) for value in range(_SMALL_COUNT)]  # saves a call for each
_NULL: Final = encode_varint(-1)


def write_pairs(
    pairs: Pairs,
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
) -> bytearray:
    """Return a whole batch of records (key, value) with one timestamp and without sequences."""
    count = len(pairs)
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    batch = write_records(count, keys, values, timestamp_ms, None)
    seal_in_place(
        batch,
        record_count=count,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & CONTROL),
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
    )
    return batch


def time_delta(timestamp: int, base: int) -> int:
    """Return the difference of two int64, wrapped to int64; reading it wraps back."""
    return (timestamp - base + _INT64_SIGN) % (2 * _INT64_SIGN) - _INT64_SIGN


def write_records(
    count: int,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None] | None,
    timestamps: Any,
    headers: Sequence[bytes | None] | None,
) -> bytearray:
    """Return an unsealed batch: space for the header, then the records.

    `timestamps` is an int for all, or one per record. `headers` are encoded sections (headers.py); a record without
    headers has None or an empty one.
    """
    batch = bytearray(HEADER_BYTES)
    small = _SMALL
    base_timestamp = None if isinstance(timestamps, int) else int(timestamps[0])
    for row in range(count):
        body = b"\x00\x00"
        if base_timestamp is not None:
            body = b"\x00" + encode_varint(time_delta(int(timestamps[row]), base_timestamp))
        body += small[row] if row < _SMALL_COUNT else encode_varint(row)
        for column in (keys, values):
            field = None if column is None else column[row]
            if field is None:
                body += _NULL
            else:
                size = len(field)
                body += (small[size] if size < _SMALL_COUNT else encode_varint(size)) + field
        section = headers[row] if headers is not None else None
        body += section or b"\x00"
        size = len(body)
        batch += small[size] if size < _SMALL_COUNT else encode_varint(size)
        batch += body
    return batch
