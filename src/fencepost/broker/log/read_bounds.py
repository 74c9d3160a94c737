"""Start and end of a read in the log, found by offsets and indexes alone."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.layout import CleanPoint
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import Segment
from fencepost.protocol.records.batch import MAGIC_AT, PARTITION_LEADER_EPOCH_AT

__all__ = ["ReadBounds", "find_extent", "measure", "slice_of"]


class SegmentedLog(Protocol):
    """The part of a `PartitionLog` that this module uses."""

    config: LogConfig
    segments: list[Segment]
    clean_point: CleanPoint
    log_start_offset: int

    def segment_of(self, offset: int) -> int: ...
    def locate(self, number: int, offset: int) -> tuple[int, int, int]: ...


class ReadBounds(NamedTuple):
    """Bytes `position` to `end` of the segment. The first batch has `first_size` bytes and begins at offset `base`."""

    segment: Segment
    position: int
    end: int
    base: int
    first_size: int


def find_extent(log: SegmentedLog, offset: int, bound: int) -> ReadBounds | None:
    """Return the bytes for a read from `offset` to below `bound`, or None.

    They never span two segments.

    Raises CorruptSegment, OSError.
    """
    number = log.segment_of(offset)
    position, base, size = log.locate(number, offset)
    while size == 0:  # the offset lies in a gap at the end of the segment
        number += 1
        if number == len(log.segments):
            if offset >= log.clean_point.gaps_below:
                raise CorruptSegment(log.segments[-1].path, 0, f"offset {offset} is missing")
            return None
        position, base, size = log.locate(number, offset)
    segment = log.segments[number]
    if base > offset and base >= log.clean_point.gaps_below:
        raise CorruptSegment(segment.path, position, f"a batch at offset {base}, {offset} is due")
    if base >= bound:
        return None
    return ReadBounds(segment, position, _end(log, number, bound), base, size)


def measure(log: SegmentedLog, offset: int, bound: int, before: ReadBounds | None) -> ReadBounds | None:
    """Return the result of `find_extent`, or None for offsets outside the log.

    With `before`, an earlier result for the same offset, only the end is determined again. Raises CorruptSegment,
    OSError.
    """
    if not log.log_start_offset <= offset < bound:
        return None
    number = log.segment_of(offset)
    segment = log.segments[number]
    if before is None or before.segment is not segment:
        return find_extent(log, offset, bound)
    end = _end(log, number, bound)
    return before if end == before.end else before._replace(end=end)


def _end(log: SegmentedLog, number: int, bound: int) -> int:
    """Return the position in the segment at which a read to below `bound` ends."""
    segment = log.segments[number]
    if bound >= segment.next_offset:
        return segment.size
    try:
        return log.locate(number, bound)[0]
    except CorruptSegment as error:
        return error.position


def slice_of(
    log: SegmentedLog, offset: int, max_bytes: int, bound: int, min_one: bool, before: ReadBounds | None = None
) -> tuple[bytes | memoryview, int]:
    """Return the whole batches from `offset` on, and an offset after their last record.

    `before`: see `measure`. Raises OSError, CorruptSegment.
    """
    extent = measure(log, offset, bound, before)
    if extent is None:
        return b"", offset
    try:
        return _read(log, extent, max_bytes, min_one)
    except CorruptSegment:  # a damaged header can lead to a batch that does not contain the offset
        position, base, size = extent.segment.find(offset)
    return _read(log, extent._replace(position=position, base=base, first_size=size), max_bytes, min_one)


def _read(log: SegmentedLog, extent: ReadBounds, max_bytes: int, min_one: bool) -> tuple[bytes | memoryview, int]:
    segment, position, end, base, size = extent
    wanted = min(max_bytes, end - position)
    if wanted < size:
        if not min_one:
            return b"", base
        wanted = size
    if segment.has_gaps:
        whole = segment.whole_to(position, base, wanted)
        data = segment.log.read(position, whole.size)
    else:
        data = segment.log.read(position, wanted)
        whole = segment.whole_batches(data, position, base, log.config.verify_reads)
    if whole.size == 0 or len(data) < whole.size:
        raise CorruptSegment(segment.path, position, f"{len(data)} bytes were read, and no whole batch")
    if whole.wrong_epochs:
        restored = bytearray(data)
        for at in whole.wrong_epochs:
            restored[at + PARTITION_LEADER_EPOCH_AT : at + MAGIC_AT] = bytes(MAGIC_AT - PARTITION_LEADER_EPOCH_AT)
        data = bytes(restored)
    return (data if whole.size == len(data) else memoryview(data)[: whole.size]), whole.next_offset
