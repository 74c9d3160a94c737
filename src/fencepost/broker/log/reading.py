"""Read a log across damage: its whole batches, and the gaps between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.log.batch_walk import DamagedRange, IntactBatch
from fencepost.broker.log.partition import PartitionLog
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["Gap", "batches_of", "has_gap"]


class Gap(NamedTuple):
    """Offsets without a whole batch, and the reason."""

    first_offset: int
    next_offset: int
    reason: str


def batches_of(
    log: PartitionLog, offset: int, end: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview] | Gap]:
    """Yield every whole batch from the one that contains `offset` up to `end`, and a gap for each damaged part.

    The default of `end` is the high watermark. Raises OSError.
    """
    bound = log.high_watermark if end is None else end
    for segment in log.segments[log.segment_of(offset) :]:
        if offset >= bound:
            return
        if offset < segment.base_offset:
            yield Gap(offset, segment.base_offset, f"{segment.path} is the first file of the log")
            offset = segment.base_offset
        for item in segment.walk(*segment.near(offset)):
            first, following = _offsets_of(item)
            if first >= bound:
                return
            if following <= max(offset, first):
                continue
            if isinstance(item, DamagedRange):
                yield Gap(max(first, offset), following, str(item.error(segment.path)))
            else:
                yield item.header, item.batch
            offset = following


def _offsets_of(item: IntactBatch | DamagedRange) -> tuple[int, int]:
    if isinstance(item, DamagedRange):
        return item.first_offset, item.next_offset
    return item.header.base_offset, item.header.last_offset + 1


def has_gap(log: PartitionLog, offset: int) -> bool:
    """Return true if any part from `offset` on is damaged. Raises OSError."""
    return any(isinstance(item, Gap) for item in batches_of(log, offset))
