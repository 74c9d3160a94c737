"""Compiled kernels with which a broker checks a records section and searches a timestamp in it. Imports numba."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import NO_TIMESTAMP
from fencepost.protocol.records.compiled import kernel
from fencepost.protocol.records.kernels import EXPLANATIONS, OK, _read_prefix, _read_string, _skip_headers

__all__ = ["check_many", "find_timestamp"]

_BAD_OFFSET: Final = 3
_BAD_HEADERS: Final = 4
_BAD_COUNT: Final = 5
_LARGEST: Final = 2**63 - 1
_SMALLEST: Final = -(2**63)


def check_many(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int, int]:
    """Return the fields of `check.Checked`; see `check.check_records`."""
    found = np.empty(3, np.int64)
    code, row = _check(np.frombuffer(section, np.uint8), count, base_timestamp, found)
    if code != OK:
        raise CorruptBatch(f"record {row} of the batch: {EXPLANATIONS[code]}")
    smallest, largest, without_key = found.tolist()
    return NO_TIMESTAMP if smallest == _LARGEST else smallest, largest, without_key


def find_timestamp(
    section: Buffer, count: int, base_timestamp: int, wanted: int, most: int, from_delta: int
) -> tuple[int, int] | None:
    """Find the first record from `from_delta` on with wanted <= timestamp <= most.

    Returns:
        (timestamp, offset delta), or None.

    Raises:
        CorruptBatch: The records do not parse.
    """
    timestamp, delta, code = _find(np.frombuffer(section, np.uint8), count, base_timestamp, wanted, most, from_delta)
    if code != OK:
        raise CorruptBatch(EXPLANATIONS[code])
    return (int(timestamp), int(delta)) if delta >= 0 else None


@kernel("bytes", "int64", "int64", "int64s out")
def _check(blob: Any, count: Any, base_timestamp: Any, found: Any) -> Any:
    """Fill `found` with minimum and maximum timestamp and the first record without a key; return (code, record)."""
    position, end = np.int64(0), np.int64(len(blob))
    smallest, largest, without_key = np.int64(_LARGEST), np.int64(-1), np.int64(-1)
    for row in range(count):
        record_end, timestamp_delta, offset_delta, position = _read_prefix(blob, position, end)
        if position < 0:
            return -position, row
        if offset_delta != row:
            return np.int64(_BAD_OFFSET), row
        _, key_length, position = _read_string(blob, position, record_end)
        if position < 0:
            return -position, row
        if key_length < 0 and without_key < 0:
            without_key = np.int64(row)
        _, _, position = _read_string(blob, position, record_end)
        if position < 0:
            return -position, row
        if position == record_end - 1 and blob[position] == 0:
            position += 1
        elif _skip_headers(blob, position, record_end) == record_end:
            position = record_end
        else:
            return np.int64(_BAD_HEADERS), row
        timestamp = base_timestamp + timestamp_delta
        largest = max(largest, timestamp)
        if timestamp != -1:
            smallest = min(smallest, timestamp)
    if position != end:
        return np.int64(_BAD_COUNT), count
    found[0], found[1], found[2] = smallest, largest, without_key
    return np.int64(OK), count


@kernel("bytes", "int64", "int64", "int64", "int64", "int64")
def _find(blob: Any, count: Any, base_timestamp: Any, wanted: Any, most: Any, from_delta: Any) -> Any:
    """Return (timestamp, offset delta or -1, code)."""
    position, end = np.int64(0), np.int64(len(blob))
    for _ in range(count):
        record_end, timestamp_delta, offset_delta, position = _read_prefix(blob, position, end)
        if position < 0:
            return np.int64(0), np.int64(-1), -position
        timestamp = base_timestamp + timestamp_delta
        if wanted <= timestamp <= most and offset_delta >= from_delta:
            return timestamp, offset_delta, np.int64(OK)
        position = record_end
    return np.int64(0), np.int64(-1), np.int64(OK)
