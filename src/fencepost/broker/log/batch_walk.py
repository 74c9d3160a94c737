"""Validity of the batches in a segment, and the walk over a segment that checks it.

A batch is whole if its header can be parsed, its CRC is right and its base offset is plausible. The CRC does not cover
base offset, length, leader epoch and magic. A base offset is plausible if it is the expected one. After a gap, it is
plausible if the next whole batch has a later one. If the next one has an earlier one, one of the two is damaged: the
one that would fit between its neighbours with another base offset. If both would fit, nothing tells which of them is
damaged, and neither is read. No batch exceeds the bounds of its segment. The leader epoch is not checked: the log
writes 0 in every batch, and readers always get 0.

Damage does not end the walk. The walk yields a `DamagedRange` and continues at the next whole batch. If the damaged
batch has a plausible length, the next one follows it. Otherwise the walk searches for bytes that look like a batch and
have a right CRC.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from fencepost.broker.disk.files import File
from fencepost.broker.log.results import CorruptSegment
from fencepost.protocol.crc import crc32c
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import (
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    PARTITION_LEADER_EPOCH_AT,
    BatchHeader,
    parse_header,
)

__all__ = ["ANYWHERE", "LEADER_EPOCH", "BatchWalk", "DamagedRange", "IntactBatch", "SegmentBounds"]

ANYWHERE: Final = 2**63 - 1
LEADER_EPOCH: Final = 0
"""The leader epoch of every stored batch."""

_CHUNK_BYTES = 1 << 20
_SPAN = 2**31
"""Number of offsets in a segment. Its indexes store them relative to the first one."""
_LOOKS = bytes([0, 0, 0, LEADER_EPOCH, MAGIC])  # bytes that every stored batch has at the same position
_OFFSET_BYTES = 8
_LOOKS_FROM = PARTITION_LEADER_EPOCH_AT


class SegmentBounds(NamedTuple):
    """Offsets that a segment may hold: from `first` to below `end`, which is ANYWHERE while the end is unknown.

    Compaction may have left gaps before batches below `gaps_below`. `synced`: the synced end of the log, where its last
    batch usually ends; -1 if unknown. `newest`: the largest timestamp, and the last offset of its batch, by the time
    index.
    """

    first: int
    end: int
    gaps_below: int
    synced: int = -1
    newest: tuple[int, int] = (-1, -1)


class IntactBatch(NamedTuple):
    """A valid batch."""

    position: int
    header: BatchHeader
    batch: memoryview


class DamagedRange(NamedTuple):
    """A damaged range of a segment: the bytes from `position` to `end` are not valid batches.

    The offsets `first_offset` to below `next_offset` are missing. Either range may be empty. `next_offset` is ANYWHERE
    if no whole batch follows and the end of the segment is unknown.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str

    def error(self, path: str) -> CorruptSegment:
        """Return the damage as an exception."""
        return CorruptSegment(path, self.position, self.reason)


class BatchWalk:
    """A walk over one file of batches."""

    __slots__ = ("_bounds", "_file", "_limit", "_path", "_size")

    def __init__(self, file: File, path: str, size: int, bounds: SegmentBounds) -> None:
        """Prepare a walk. `size`: the number of bytes of the file that belong to the log."""
        self._file = file
        self._path = path
        self._size = size
        self._bounds = bounds
        self._limit = min(bounds.end, bounds.first + _SPAN)

    def items(
        self, start: int, expected: int, *, chunk_bytes: int = _CHUNK_BYTES
    ) -> Iterator[IntactBatch | DamagedRange]:
        """Yield whole batches and holes from position `start` on, where a batch of offset `expected` is due.

        Reads `chunk_bytes` at a time. Raises OSError.
        """
        position, want, size = start, chunk_bytes, self._size
        while position < size:
            length = min(want, size - position)
            data = memoryview(self._file.read(position, length))
            at, expected, need, problem = yield from self._within(data, position, expected)
            position += at
            left = size - position
            if not problem and left and (need > left or len(data) < length):
                problem = f"{left} bytes, a batch needs {need}"
            want = max(chunk_bytes, need)
            if problem:
                hole = self._hole(position, expected, problem)
                yield hole
                if hole.end >= size:
                    return
                position, expected, want = hole.end, hole.next_offset, chunk_bytes
        if expected < self._bounds.end < ANYWHERE:
            missing = f"the file ends there, offsets up to {self._bounds.end - 1} are missing"
            yield DamagedRange(size, size, expected, self._bounds.end, missing)

    def _within(
        self, data: memoryview, position: int, expected: int
    ) -> Generator[IntactBatch | DamagedRange, None, tuple[int, int, int, str]]:
        """Yield the whole batches in bytes that were read from `position`.

        Returns the end of the last one, the offset after it, the number of bytes that the next batch needs, and its
        defect.
        """
        at, limit = 0, self._limit
        while at + HEADER_BYTES <= len(data):
            try:
                header = parse_header(data, at)
            except CorruptBatch as error:
                return at, expected, HEADER_BYTES, str(error)
            size = header.size_bytes
            if at + size > len(data):
                return at, expected, size, ""
            batch = data[at : at + size]
            if not is_intact(header, batch):
                return at, expected, size, "the CRC of the batch is wrong"
            base, last = header.base_offset, header.last_offset
            if not base == expected <= last < limit:
                behind = int.from_bytes(data[at + size : at + size + _OFFSET_BYTES])
                problem = self._misplaced(header, position + at, expected, is_confirmed=last < behind < limit)
                if problem:
                    return at, expected, size, problem
                if base >= self._bounds.gaps_below:
                    yield DamagedRange(position + at, position + at, expected, base, f"offset {expected} is missing")
            yield IntactBatch(position + at, header, batch)
            expected = last + 1
            at += size
        return at, expected, HEADER_BYTES, ""

    def _misplaced(self, header: BatchHeader, position: int, expected: int, *, is_confirmed: bool = False) -> str:
        """Return the reason why an intact batch is misplaced, or "".

        `is_confirmed`: the next batch has a later base offset.
        """
        base, last = header.base_offset, header.last_offset
        is_inside = expected <= base <= last < self._limit
        if is_inside and (base == expected or is_confirmed or self._is_confirmed(header, position, expected)):
            return ""
        return f"offsets {base} to {last}" if base == expected else f"base offset {base}, {expected} is due"

    def _is_confirmed(self, header: BatchHeader, position: int, expected: int) -> bool:
        """Return true if the batch after this one confirms its base offset, which follows a gap.

        If the next batch has an earlier base offset, with room for this batch before it, this base offset is damaged.
        """
        after = position + header.size_bytes
        if after >= self._size:
            return self._ends_as_known(header)
        at, following = self._intact_from(after)
        if following is None:
            return header.base_offset < self._bounds.gaps_below
        if following.base_offset > header.last_offset:
            return True
        is_last = at + following.size_bytes >= self._size
        has_room = following.base_offset > expected + header.last_offset_delta
        is_other_wrong = not has_room or (is_last and not self._ends_as_known(following))
        return is_other_wrong and header.base_offset < self._bounds.gaps_below

    def _ends_as_known(self, header: BatchHeader) -> bool:
        """Return true if the last batch of the file ends where the indexes or the next segment say.

        It ends with the segment's last offset, unless something behind it is missing. If the rest of the file is
        missing, the time index has a later batch. If the next file is missing, the time index may have this batch. If
        the base offset of this batch is damaged, it has neither.
        """
        newest, offset = self._bounds.newest
        is_cut = header.max_timestamp < newest and header.last_offset < offset
        is_known = (header.max_timestamp, header.last_offset) == (newest, offset)
        return is_cut or is_known or header.last_offset + 1 in (self._bounds.end, self._bounds.synced)

    def _hole(self, position: int, expected: int, reason: str) -> DamagedRange:
        """Return the damage at that position, up to the next whole batch."""
        found = self._next_whole(position, expected)
        if found is None:
            return DamagedRange(position, self._size, expected, self._bounds.end, reason)
        return DamagedRange(position, found[0], expected, found[1].base_offset, reason)

    def _next_whole(self, position: int, expected: int) -> tuple[int, BatchHeader] | None:
        start = position + 1
        rival = None  # an intact batch at the position that may be in its place
        header = self._header_at(position)
        if header is not None:
            after = position + header.size_bytes
            intact = self._intact_at(position)
            if intact is not None:
                start = after  # the length is right, so no batch lies within
                rival = intact if intact.base_offset >= expected else None
            following = self._intact_at(after)
            due = expected + header.last_offset_delta + 1
            is_next = following is not None and following.base_offset == due and self._fits(following, after, due)
            if following is not None and is_next and not self._is_ambiguous(rival, following, after):
                return after, following  # both the length and the offsets of the damaged batch lead to the next batch
        for at, found in self._intact_batches(start):
            if self._is_ambiguous(rival, found, at):
                rival = None
            elif self._fits(found, at, expected):
                return at, found
        return None

    def _is_ambiguous(self, rival: BatchHeader | None, header: BatchHeader, position: int) -> bool:
        """Return true if the batch at the position could also belong behind `rival`, which comes before it in the file.

        One of the two has a damaged base offset, and their neighbours do not tell which.
        """
        if rival is None or header.base_offset > rival.last_offset:
            return False
        _, following = self._intact_from(position + header.size_bytes)
        behind = rival.last_offset + header.last_offset_delta + 1
        return following is not None and behind < following.base_offset

    def _fits(self, header: BatchHeader, position: int, expected: int) -> bool:
        return not self._misplaced(header, position, expected)

    def _intact_from(self, position: int) -> tuple[int, BatchHeader | None]:
        """Return position and header of the first intact batch at a position or after it."""
        found = self._intact_at(position)
        return (position, found) if found is not None else next(self._intact_batches(position + 1), (position, None))

    def _intact_batches(self, start: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the intact batches from `start` on, searched by their constant bytes."""
        while start + HEADER_BYTES <= self._size:
            data = self._file.read(start, _CHUNK_BYTES + HEADER_BYTES)
            at = data.find(_LOOKS, _LOOKS_FROM)
            while 0 <= at < _CHUNK_BYTES + _LOOKS_FROM:
                found = self._intact_at(start + at - _LOOKS_FROM)
                if found is not None:
                    yield start + at - _LOOKS_FROM, found
                at = data.find(_LOOKS, at + 1)
            start += _CHUNK_BYTES

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header at a position, if a batch of its size is inside the file."""
        if not 0 <= position <= self._size - HEADER_BYTES:
            return None
        try:
            header = parse_header(self._file.read(position, HEADER_BYTES))
        except CorruptBatch:
            return None
        return header if position + header.size_bytes <= self._size else None

    def _intact_at(self, position: int) -> BatchHeader | None:
        """Return the header at a position, if its batch has a right CRC."""
        header = self._header_at(position)
        if header is None:
            return None
        batch = memoryview(self._file.read(position, header.size_bytes))
        return header if len(batch) == header.size_bytes and is_intact(header, batch) else None


def is_intact(header: BatchHeader, batch: memoryview) -> bool:
    """Return true if the CRC matches the batch's bytes."""
    return crc32c(batch[CRC_FROM:]) == header.crc
