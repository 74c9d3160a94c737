"""Check a decompressed records section against its batch header, and collect the facts that a broker needs.

One or two records are checked in plain Python, which costs less than a call of the native loops. More records are
checked by these, if they are there. Both give the same result. No object per record is created.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records import engine
from fencepost.protocol.records.batch import NO_TIMESTAMP
from fencepost.protocol.records.native_loops import check_many
from fencepost.protocol.records.spans import fields_of, timestamp_of

__all__ = ["Checked", "check_records"]

_FEW: Final = 2  # up to this number, plain Python is as fast
_LARGEST: Final = 2**63 - 1


class Checked(NamedTuple):
    """Timestamps in milliseconds, where -1 means none and is ignored in the minimum.

    `without_key`: first such record, or -1.
    """

    min_timestamp: int
    max_timestamp: int
    without_key: int


def check_records(section: Buffer, count: int, base_timestamp: int) -> Checked:
    """Check a section: exactly `count` records, offset deltas 0 to count - 1, consistent lengths.

    Raises:
        CorruptBatch: The section does not match.
    """
    if count > _FEW and engine.is_native:
        return Checked(*check_many(section, count, base_timestamp))
    return _walk(section, count, base_timestamp)


def _walk(section: Buffer, count: int, base_timestamp: int) -> Checked:
    smallest, largest, without_key = _LARGEST, NO_TIMESTAMP, -1
    for row, fields in enumerate(fields_of(section, 0, len(section), count)):
        time_delta, offset_delta, _, key_length, *_ = fields
        if offset_delta != row:
            raise CorruptBatch(f"record {row} of the batch: its offset delta is {offset_delta}")
        if key_length < 0 and without_key < 0:
            without_key = row
        timestamp = timestamp_of(base_timestamp, time_delta)
        largest = max(largest, timestamp)
        if timestamp < smallest and timestamp != NO_TIMESTAMP:
            smallest = timestamp
    return Checked(NO_TIMESTAMP if smallest == _LARGEST else smallest, largest, without_key)
