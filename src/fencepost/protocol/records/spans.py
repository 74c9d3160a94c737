"""Find the fields of records in a records section, in plain Python.

This is used for a few records, and for all if the native loops are not installed (engine.py). Both give the same
result.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.columns import COLUMN_KINDS, Columns, Description

__all__ = ["decode_sections", "fields_of", "headers_of", "timestamp_of"]

_INT64: Final = 1 << 63
_SMALL: Final = [(byte >> 1) ^ -(byte & 1) if byte < 0x80 else None for byte in range(0x100)]  # varints of one byte

# Timestamp delta, offset delta; start and length (-1: null) of the key, then of the value; start of the headers
# section, end of the record.
Fields = tuple[int, int, int, int, int, int, int, int]


def decode_sections(
    blob: memoryview, batches: Sequence[Description], first_offset: int
) -> tuple[Columns, tuple[int, str] | None]:
    """Decode the records from `first_offset` on, up to the first batch that does not parse.

    Returns:
        The columns; and the index in `batches` and the error text of the batch that does not parse, or None.
    """
    section = bytes(blob)  # indexing bytes costs a third of indexing a memoryview
    rows: list[tuple[int, ...]] = []
    flaw = None
    for index, batch in enumerate(batches):
        try:
            rows += list(_rows(section, batch, first_offset))  # all records of the batch, or none
        except CorruptBatch as error:
            flaw = index, str(error)
            break
    if not rows:
        return Columns.empty(), flaw
    named = zip(COLUMN_KINDS, zip(*rows, strict=True), strict=True)
    columns: list[Any] = [memoryview(array(kind, numbers)) for kind, numbers in named]
    return Columns(blob, *columns), flaw


def _rows(section: bytes, batch: Description, first_offset: int) -> Iterator[tuple[int, ...]]:
    """Yield (offset, timestamp, start and length of key, of value and of headers) of each record.

    Raises:
        CorruptBatch: The section does not parse.
    """
    base_offset, last_delta, append_time = batch.base_offset, batch.last_delta, batch.append_time
    previous = -1
    for fields in fields_of(section, batch.start, batch.end, batch.records):
        time_delta, delta, key_start, key_length, value_start, value_length, header_start, end = fields
        if not previous < delta <= last_delta:
            raise CorruptBatch(f"an offset delta of {delta} behind one of {previous}, the last one being {last_delta}")
        previous = delta
        if base_offset + delta >= first_offset:
            timestamp = timestamp_of(batch.base_timestamp, time_delta) if append_time is None else append_time
            header_length = end - header_start
            yield (
                *(base_offset + delta, timestamp),
                *(key_start, key_length, value_start, value_length, header_start, header_length),
            )


def fields_of(section: Buffer, position: int, stop: int, count: int) -> Iterator[Fields]:
    """Yield the fields of the records between two positions.

    Raises:
        CorruptBatch: There are not exactly `count` records, or a length is wrong.
    """
    small = _SMALL
    try:
        for row in range(count):
            length, position = _varint(section, position, stop, row)
            end = position + length
            if length < 1 or end > stop:
                raise _corrupt(row, "its length does not fit")
            position += 1  # the attributes, which are unused
            # Inlined, because nearly all of these numbers are one byte and calls would take most of the time.
            if (time_delta := small[section[position]]) is None:
                time_delta, position = _varint(section, position, end, row, 10)
            else:
                position += 1
            if (offset_delta := small[section[position]]) is None:
                offset_delta, position = _varint(section, position, end, row)
            else:
                position += 1
            if (key_length := small[section[position]]) is None:
                key_length, key = _varint(section, position, end, row)
            else:
                key = position + 1
            position = key + key_length if key_length > 0 else key
            if (value_length := small[section[position]]) is None:
                value_length, value = _varint(section, position, end, row)
            else:
                value = position + 1
            headers = value + value_length if value_length > 0 else value
            if headers != end - 1 or section[headers]:  # also true if a field before ended after the record's end
                deque(headers_of(section, headers, end, row), 0)  # reads them all
            position = end
            yield time_delta, offset_delta, key, max(key_length, -1), value, max(value_length, -1), headers, end
    except IndexError as error:
        raise CorruptBatch("a record is cut short") from error
    if position != stop:
        raise CorruptBatch(f"{stop - position} bytes are left behind the last of {count} records")


def timestamp_of(base: int, delta: int) -> int:
    """Return a record's timestamp. A sum outside of int64 wraps, the reverse of `time_delta`."""
    timestamp = base + delta
    return timestamp if -_INT64 <= timestamp < _INT64 else (timestamp + _INT64) % (2 * _INT64) - _INT64


def _behind(length: int, position: int, end: int, row: int) -> int:
    if length > end - position:
        raise _corrupt(row, "a field's length does not fit")
    return position + length if length > 0 else position


def headers_of(section: Buffer, position: int, end: int, row: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start and length of the key, start and length of the value) of each header; a null value has -1.

    Raises:
        CorruptBatch: The headers do not parse, or do not end at `end`.
    """
    count, position = _varint(section, position, end, row)
    if count < 0:
        raise _corrupt(row, f"it has {count} headers")
    for _ in range(count):
        key_length, key = _varint(section, position, end, row)
        if key_length < 0:
            raise _corrupt(row, "a header without a key")
        position = _behind(key_length, key, end, row)
        value_length, value = _varint(section, position, end, row)
        position = _behind(value_length, value, end, row)
        yield key, key_length, value, max(value_length, -1)
    if position != end:
        raise _corrupt(row, f"{end - position} bytes are left behind its headers")


def _varint(section: Buffer, position: int, end: int, row: int, most: int = 5) -> tuple[int, int]:
    """Return (value, next position) of a zigzag varint of at most `most` bytes."""
    following = position + 1
    if following < end and section[position] >= 0x80 and section[following] < 0x80:  # most lengths have two bytes
        raw = section[position] & 0x7F | section[following] << 7
        return (raw >> 1) ^ -(raw & 1), following + 1
    raw = shift = 0
    for at in range(position, min(end, position + most)):
        byte = section[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF if most == 5 else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise _corrupt(row, "a number in it is cut short or too long")


def _corrupt(row: int, what: str) -> CorruptBatch:
    return CorruptBatch(f"record {row} of the batch: {what}")
