"""Finding a record by its timestamp. Of a whole segment only one batch is looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import ANYWHERE, Segment, scan
from fencepost.broker.log.validate import Decompress
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.check import FEW
from fencepost.protocol.records.engine import is_compiled
from fencepost.protocol.records.walk import walk

__all__ = ["first_at_or_after", "newest"]

_LATEST: Final = 2**63 - 1


def first_at_or_after(
    segments: Sequence[Segment],
    timestamp: int,
    from_offset: int,
    use: Callable[[Segment], None],
    decompress: Decompress,
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record not older than `timestamp` at or behind `from_offset`. `use` is called
    before a segment's indexes are.

    Raises OSError, CorruptSegment, and what `decompress` raises."""
    for segment in segments:
        use(segment)
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _first_in(segment, timestamp, from_offset, decompress)
            if found is not None:
                return found
    return None


def newest(
    segments: Sequence[Segment], from_offset: int, use: Callable[[Segment], None], decompress: Decompress
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp of all.

    Raises OSError, CorruptSegment, and what `decompress` raises."""
    for segment in segments:
        use(segment)
        segment.largest_timestamp()
    segment = max(segments, key=lambda s: s.max_timestamp)  # the first of equals
    if segment.max_timestamp < 0:
        return None
    position = segment.locate(segment.max_timestamp_offset)[0]
    for at, header, batch in _batches(segment, position):
        if header.max_timestamp == segment.max_timestamp:
            section = _section(header, batch, segment, at, decompress)
            found = _find(header, section, segment, at, segment.max_timestamp, segment.max_timestamp, from_offset)
            if found is not None:
                return found
    return None


def _first_in(segment: Segment, timestamp: int, from_offset: int, decompress: Decompress) -> tuple[int, int] | None:
    position = segment.locate_time(timestamp, from_offset)
    for at, header, batch in _batches(segment, position):
        if header.max_timestamp >= timestamp and header.last_offset >= from_offset:
            section = _section(header, batch, segment, at, decompress)
            found = _find(header, section, segment, at, timestamp, _LATEST, from_offset)
            if found is not None:
                return found
    return None


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    return scan(segment.log, segment.path, position, segment.size, expected=-1, gaps_below=ANYWHERE)


def _section(header: BatchHeader, batch: memoryview, segment: Segment, position: int, decompress: Decompress) -> Buffer:
    try:
        return decompress(header, batch)
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error


def _find(
    header: BatchHeader, section: Buffer, segment: Segment, position: int, wanted: int, most: int, from_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from that offset on with wanted <= timestamp <= most."""
    base = header.base_offset
    try:
        if header.timestamp_type == "create_time" and header.record_count > FEW and is_compiled():
            from fencepost.protocol.records.check_kernel import find_timestamp

            delta = from_offset - base
            found = find_timestamp(section, header.record_count, header.base_timestamp, wanted, most, delta)
            return found and (found[0], base + found[1])
        for record in walk(header, section):
            if wanted <= record.timestamp <= most and record.offset >= from_offset:
                return record.timestamp, record.offset
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error
    return None
