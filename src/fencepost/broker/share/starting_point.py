"""Start offset of a share group in a new partition: its setting `share.auto.offset.reset`."""

from __future__ import annotations

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.settings.share_groups import BY_DURATION, duration_ms

__all__ = ["first_offset"]


def first_offset(setting: str, log: PartitionLog, now_ms: int, *, committed: bool) -> int:
    """Return the offset from which a group with this setting reads. Raises OSError or CorruptSegment."""
    end = log.last_stable_offset if committed else log.high_watermark
    if setting == "earliest":
        return log.log_start_offset
    if setting.startswith(BY_DURATION):
        since_ms = now_ms - duration_ms(setting.removeprefix(BY_DURATION))
        found = log.offset_for_timestamp(since_ms, committed_only=committed)
        return end if found is None else found[1]
    return end
