"""The two ways in which the log start moves: DeleteRecords and retention.

Both are changes (`disk.changes`). While a step is under way, records are appended and read as before.
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.disk.changes import Change
from fencepost.broker.log.cleaning.retention import expired
from fencepost.broker.log.log_start import write_log_start
from fencepost.broker.log.partition import PartitionLog

__all__ = ["expirable", "moving", "retaining"]


def moving(log: PartitionLog, offset: int) -> Change[int]:
    """Move the log start there (-1: to the high watermark), remove segments wholly below it; return the log start.

    Producer state stays, as in Kafka.

    Raises:
        ValueError: the offset is negative or above the high watermark.
        OSError: the disk failed, or the log was closed meanwhile.
    """
    if offset == -1:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise ValueError(f"offset {offset} is not in 0...{log.high_watermark}")
    if offset > log.log_start_offset:
        _check_open(log)
        yield partial(write_log_start, log.files, log.directory, offset)
        _check_open(log)
        log.log_start_offset = offset
        log.remove_below(offset)
    return log.log_start_offset


def retaining(log: PartitionLog, now_ms: int) -> Change[int]:
    """Remove segments that are too old or too many; return the number of segments that are no longer read.

    Only whole segments below the last stable offset go, so that prepared records are there when they are committed.

    Raises:
        OSError: the disk failed, or the log was closed meanwhile.
        CorruptSegment: the age of a segment cannot be found out.
    """
    count = expirable(log, now_ms)
    if count:
        start = log.segments[count - 1].next_offset
        if count == len(log.segments):
            log.roll()
        try:
            yield from moving(log, start)
        except OSError:  # a full disk has no room for the new log start: make some
            _check_open(log)
            yield from _removing_below(log, start)
            yield from moving(log, start)
    return count


def expirable(log: PartitionLog, now_ms: int) -> int:
    """Return the number of segments that retention would remove now. Raises OSError, CorruptSegment."""
    if log.read_only or "delete" not in log.config.cleanup_policy.split(","):
        return 0
    return expired(log.segments, log.config, log.last_stable_offset, now_ms)


def _removing_below(log: PartitionLog, offset: int) -> Change[None]:
    """Remove segments durably, one after the other: no log start on disk says that they are gone."""
    while log.remove_first_below(offset):
        yield partial(log.files.sync_directory, log.directory)
        _check_open(log)


def _check_open(log: PartitionLog) -> None:
    """Raise OSError when the log was closed: its directory may be another topic's by now."""
    if log.closed:
        raise OSError(f"{log.directory} is closed")
