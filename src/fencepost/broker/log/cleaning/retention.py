"""Retention: the choice of segments that are too old or too many."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.segment import Segment

__all__ = ["expired"]


def expired(segments: Sequence[Segment], config: LogConfig, stable_offset: int, now_ms: int) -> int:
    """Return the number of oldest segments to remove, by age and by total size.

    Raises OSError.

    The age is that of the largest timestamp, or without one of the last write or of opening the log. Only segments
    wholly below `stable_offset` count.
    """
    count = 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    for segment in segments:
        if segment.size == 0 or segment.next_offset > stable_offset:
            break
        timestamp = segment.largest_timestamp()
        if timestamp < 0:
            timestamp = segment.touched_ms
        old = config.retention_ms >= 0 and now_ms - timestamp > config.retention_ms
        if not old and excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count
