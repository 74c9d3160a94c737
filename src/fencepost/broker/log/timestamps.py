"""Finding a record by its timestamp. Of a whole segment only one batch is looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fencepost.broker.log.records import records_of
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import ANYWHERE, Segment, scan
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import CorruptBatch

__all__ = ["first_at_or_after", "newest"]


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, from_offset: int, use: Callable[[Segment], None]
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record not older than `timestamp` at or behind `from_offset`. `use` is called
    before a segment's indexes are.

    Raises OSError, CorruptSegment."""
    for segment in segments:
        use(segment)
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _first_in(segment, timestamp, from_offset)
            if found is not None:
                return found
    return None


def newest(segments: Sequence[Segment], from_offset: int, use: Callable[[Segment], None]) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp of all. Raises OSError, CorruptSegment."""
    for segment in segments:
        use(segment)
        segment.largest_timestamp()
    segment = max(segments, key=lambda s: s.max_timestamp)  # the first of equals
    if segment.max_timestamp < 0:
        return None
    position = segment.locate(segment.max_timestamp_offset)[0]
    for at, header, batch in _batches(segment, position):
        if header.max_timestamp == segment.max_timestamp:
            for found, offset in _records(header, batch, segment, at):
                if found == segment.max_timestamp and offset >= from_offset:
                    return found, offset
    return None


def _first_in(segment: Segment, timestamp: int, from_offset: int) -> tuple[int, int] | None:
    segment.load_indexes()
    position = segment.offsets.floor(max(segment.times.floor(timestamp), from_offset))
    for at, header, batch in _batches(segment, position):
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            for found, offset in _records(header, batch, segment, at):
                if found >= timestamp and offset >= from_offset:
                    return found, offset
    return None


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    return scan(segment.log, segment.path, position, segment.size, expected=-1, gaps_below=ANYWHERE)


def _records(header: BatchHeader, batch: memoryview, segment: Segment, position: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record."""
    try:
        for record in records_of(header, batch):
            yield record.timestamp, record.offset
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error
