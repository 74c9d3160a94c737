"""Finding a record by its timestamp. Of a whole segment only one batch is looked into."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.log.records import records_of
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import ANYWHERE, Segment, scan
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import CorruptBatch

__all__ = ["first_at_or_after", "with_timestamp"]


def first_at_or_after(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record not older than `timestamp` at or behind `from_offset`.

    Raises OSError, CorruptSegment."""
    segment.load_indexes()
    position = segment.offsets.floor(max(segment.times.floor(timestamp), from_offset))
    for at, header, batch in scan(segment.log, segment.path, position, segment.size, expected=-1, gaps_below=ANYWHERE):
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            for found, offset in _records(header, batch, segment, at):
                if found >= timestamp and offset >= from_offset:
                    return found, offset
    return None


def with_timestamp(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with exactly the segment's largest timestamp."""
    position = segment.locate(segment.max_timestamp_offset)[0]
    for at, header, batch in scan(segment.log, segment.path, position, segment.size, expected=-1, gaps_below=ANYWHERE):
        if header.max_timestamp == timestamp:
            for found, offset in _records(header, batch, segment, at):
                if found == timestamp and offset >= from_offset:
                    return found, offset
    return None


def _records(header: BatchHeader, batch: memoryview, segment: Segment, position: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record."""
    try:
        for record in records_of(header, batch):
            yield record.timestamp, record.offset
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error
