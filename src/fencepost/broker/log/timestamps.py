"""Finding a record by its timestamp: the one place where the log looks into a batch, and only into one.

A record begins (all varints zigzag): length, attributes int8, timestamp delta, offset delta.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import Segment, scan
from fencepost.protocol.batch import HEADER_BYTES, BatchHeader, Buffer

__all__ = ["first_at_or_after", "with_timestamp"]

_DECOMPRESSED_MAX = 1 << 30


def first_at_or_after(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record not older than `timestamp` at or behind `from_offset`.

    Raises OSError, CorruptSegment."""
    position = segment.offsets.floor(max(segment.times.floor(timestamp), from_offset))
    for at, header, batch in scan(segment.log, segment.path, position, segment.size, expected=-1, gaps=True):
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            for found, offset in _records(header, batch, segment, at):
                if found >= timestamp and offset >= from_offset:
                    return found, offset
    return None


def with_timestamp(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with exactly the segment's largest timestamp."""
    position = segment.locate(segment.max_timestamp_offset)[0]
    for at, header, batch in scan(segment.log, segment.path, position, segment.size, expected=-1, gaps=True):
        if header.max_timestamp == timestamp:
            for found, offset in _records(header, batch, segment, at):
                if found == timestamp and offset >= from_offset:
                    return found, offset
    return None


def _records(header: BatchHeader, batch: memoryview, segment: Segment, position: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record."""
    if header.timestamp_type == "log_append_time":
        for delta in range(header.record_count):
            yield header.max_timestamp, header.base_offset + delta
        return
    section: Buffer = batch[HEADER_BYTES:]
    if header.compression != "none":
        from fencepost.protocol.compression import decompress

        section = decompress(header.compression, section, _DECOMPRESSED_MAX)
    at = 0
    try:
        for _ in range(header.record_count):
            length, body = _varint(section, at)
            time_delta, after = _varint(section, body + 1)
            offset_delta, _ = _varint(section, after)
            yield header.base_timestamp + time_delta, header.base_offset + offset_delta
            at = body + length
    except IndexError as error:
        raise CorruptSegment(segment.path, position, "a record of the batch is cut short") from error


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
