"""Find a record by its timestamp. Only one batch of an intact segment is decompressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import Segment
from fencepost.broker.log.validate import Decompress
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records import engine
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.native_loops import find_timestamp
from fencepost.protocol.records.walk import walk

__all__ = ["first_at_or_after", "newest"]

_LATEST: Final = 2**63 - 1


def first_at_or_after(
    segments: Sequence[Segment],
    timestamp: int,
    offsets: range,
    use: Callable[[Segment], None],
    decompress: Decompress,
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record in `offsets` that is not older than `timestamp`.

    `use` is called before a segment's indexes are read. `offsets` ends where a batch begins. Raises OSError,
    CorruptSegment, and the exceptions of `decompress`.
    """
    for segment in _holding(segments, offsets):
        use(segment)
        if segment.largest_timestamp() >= timestamp:
            found = _first_in(segment, timestamp, offsets, decompress)
            if found is not None:
                return found
    return None


def newest(
    segments: Sequence[Segment], offsets: range, use: Callable[[Segment], None], decompress: Decompress
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record in `offsets` with the largest timestamp; None without timestamps.

    `offsets` ends where a batch begins. Raises OSError, CorruptSegment, and the exceptions of `decompress`.
    """
    candidates = []
    for segment in _holding(segments, offsets):
        use(segment)
        candidates.append((segment.largest_timestamp(), segment))
    best: tuple[int, int] | None = None
    # The largest timestamp of a segment is an upper bound: its record may be outside `offsets`.
    for upper, segment in sorted(candidates, key=lambda each: (-each[0], each[1].base_offset)):
        if upper < 0 or (best is not None and (-best[0], best[1]) < (-upper, segment.base_offset)):
            break
        use(segment)
        found = _newest_in(segment, offsets, decompress)
        if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
            best = found
    return best


def _holding(segments: Sequence[Segment], offsets: range) -> Iterator[Segment]:
    """Yield the segments that may contain records with these offsets."""
    for segment in segments:
        if segment.size and segment.base_offset < offsets.stop and segment.next_offset > offsets.start:
            yield segment


def _first_in(segment: Segment, timestamp: int, offsets: range, decompress: Decompress) -> tuple[int, int] | None:
    for at, header, batch in _batches(segment, segment.locate_time(timestamp, offsets.start), offsets):
        if header.max_timestamp >= timestamp:
            section = _section(header, batch, segment, at, decompress)
            found = _find(header, section, segment, at, timestamp, _LATEST, offsets.start)
            if found is not None:
                return found
    return None


def _newest_in(segment: Segment, offsets: range, decompress: Decompress) -> tuple[int, int] | None:
    """Return the result of `newest` for one segment. Only batches that the time index does not cover are read."""
    top, its_offset, scan_from = -1, segment.base_offset, offsets.start
    if segment.base_offset >= offsets.start:  # otherwise the index includes timestamps of deleted records
        top, its_offset, scan_from = segment.newest_before(offsets.stop)
    newest: tuple[int, int] | None = None
    for at, header, batch in _batches(segment, segment.locate(scan_from)[:2], offsets):
        if header.max_timestamp <= top:
            continue
        if header.base_offset >= offsets.start:
            top, its_offset, newest = header.max_timestamp, header.last_offset, None
        else:
            section = _section(header, batch, segment, at, decompress)
            newest = _newest_of(header, section, segment, at, offsets.start)
            top = -1 if newest is None else newest[0]
    if top < 0 or newest is not None:
        return newest
    for at, header, batch in _batches(segment, segment.locate(its_offset)[:2], offsets):
        if header.max_timestamp == top:
            section = _section(header, batch, segment, at, decompress)
            newest = _find(header, section, segment, at, top, top, offsets.start)
            if newest is not None:
                return newest
    return None


def _newest_of(
    header: BatchHeader, section: Buffer, segment: Segment, position: int, from_offset: int
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the batch's first record with the largest timestamp from that offset on."""
    found: tuple[int, int] | None = None
    while later := _find(header, section, segment, position, found[0] + 1 if found else 0, _LATEST, from_offset):
        found = later
    return found


def _batches(segment: Segment, start: tuple[int, int], offsets: range) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, batch) of the batches with records in `offsets`, from that position on."""
    for found in segment.intact(*start, offsets.stop):
        if found[1].last_offset >= offsets.start:
            yield found


def _section(header: BatchHeader, batch: memoryview, segment: Segment, position: int, decompress: Decompress) -> Buffer:
    try:
        return decompress(header, batch)
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error


def _find(
    header: BatchHeader, section: Buffer, segment: Segment, position: int, wanted: int, most: int, from_offset: int
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record from that offset on with wanted <= timestamp <= most."""
    base = header.base_offset
    try:
        if header.timestamp_type == "create_time" and engine.is_native:
            delta = from_offset - base
            found = find_timestamp(section, header.record_count, header.base_timestamp, wanted, most, delta)
            return found and (found[0], base + found[1])
        for record in walk(header, section):
            if wanted <= record.timestamp <= most and record.offset >= from_offset:
                return record.timestamp, record.offset
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, str(error)) from error
    return None
