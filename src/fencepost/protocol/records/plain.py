"""Encode batches in plain Python. The bytes are the same as those of the native loops.

This is used where the native loops are not installed (engine.py), and for the few records of internal topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack

from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, seal_in_place
from fencepost.protocol.varint import encode_varint

__all__ = ["encode_pairs", "time_delta", "write_records"]

_INT64_SIGN = 2**63
_SMALL_COUNT: Final = 512
_SMALL: Final = [encode_varint(value) for value in range(_SMALL_COUNT)]  # saves a call for each
_NULL: Final = encode_varint(-1)


def encode_pairs(
    pairs: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int, **stamp: Unpack[Stamp]
) -> bytearray:
    """Encode (key, value) records with the same timestamp into an uncompressed batch."""
    count = len(pairs)
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    batch = write_records(count, keys, values, timestamp_ms, None)
    seal_in_place(batch, record_count=count, base_timestamp=timestamp_ms, max_timestamp=timestamp_ms, **stamp)
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
