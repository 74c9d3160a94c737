"""Reading a log past what is damaged: which whole batches there are, and what is missing between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import CorruptSegment
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import BatchHeader, iter_batches

__all__ = ["Gap", "batches_of", "has_gap", "next_readable"]

_READ_BYTES = 1 << 20


class Gap(NamedTuple):
    """Offsets of which nothing whole is left, and why."""

    first_offset: int
    next_offset: int
    reason: str


def next_readable(log: PartitionLog, offset: int) -> int:
    """The first offset behind the damage at `offset` from which on there are whole batches again; the log's end where
    there is none. Raises OSError."""
    number = log.segment_of(offset)
    segment = log.segments[number]
    try:
        position, base, size = log.locate(number, offset)
    except CorruptSegment as error:
        position, base, size = error.position, -1, -1
    if size == 0 or base > offset:  # nothing of it is there, be it damaged
        if size:
            return base
    else:
        found = segment.next_whole(position, offset + 1)
        if found is not None:
            return found[1].base_offset
    following = log.segments[number + 1 :]
    return next((later.base_offset for later in following if later.base_offset > offset), log.log_end_offset)


def batches_of(
    log: PartitionLog, offset: int, end: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview] | Gap]:
    """Every whole batch from the one that holds `offset` on up to `end` (the high watermark without it), oldest
    first, and in their places the gaps that damage has left. Raises OSError."""
    bound = log.high_watermark if end is None else end
    while offset < bound:
        read = log.read(offset, _READ_BYTES, committed_only=False, min_one=True)
        if read.error_code == ErrorCode.CORRUPT_MESSAGE:
            following = next_readable(log, offset)
            yield Gap(offset, following, read.message)
            offset = following
            continue
        if read.error_code:
            raise OSError(f"{log.directory}: nothing can be read at offset {offset}: {read.message}")
        if not read.records:
            return  # compaction has left nothing here
        for header, batch in iter_batches(read.records):
            offset = header.last_offset + 1
            yield header, batch


def has_gap(log: PartitionLog, offset: int) -> bool:
    """Whether anything from there on is damaged. Raises OSError."""
    return any(isinstance(item, Gap) for item in batches_of(log, offset))
