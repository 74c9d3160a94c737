"""Move the log start, for DeleteRecords and for retention.

Both are changes (`disk.changes`). Records are appended and read during a step.
"""

from __future__ import annotations

import logging
from functools import partial

from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import is_full
from fencepost.broker.log.cleaning.retention import expired
from fencepost.broker.log.log_start import write_log_start
from fencepost.broker.log.partition import PartitionLog

_log = logging.getLogger("fencepost.broker.storage")

__all__ = ["expirable", "has_removable_segment", "moving", "retaining"]


def moving(log: PartitionLog, offset: int) -> Change[int]:
    """Move the log start to the offset (-1: the high watermark) and remove segments below it.

    Return the log start.

    The producer state stays, as in Kafka.

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
        log.log_start_offset, log.start_pending = offset, False
        _remove_below_start(log)
    return log.log_start_offset


def retaining(log: PartitionLog, now_ms: int) -> Change[int]:
    """Remove segments that are too old or too many.

    Return the number of segments that are no longer read.

    Only whole segments below the last stable offset are removed, so that a prepared transaction's records remain until
    its commit.

    Raises:
        OSError: the disk failed, or the log was closed meanwhile.
        CorruptSegment: the age of a segment cannot be determined.
    """
    if has_removable_segment(log):
        _remove_below_start(log)
    count = expirable(log, now_ms)
    if log.start_pending and not count:
        yield from _writing_pending_start(log)
    if count:
        start = log.segments[count - 1].next_offset
        if count == len(log.segments):
            log.roll()
        try:
            yield from moving(log, start)
        except OSError as error:
            if not is_full(error):
                raise
            # The disk has no space for the new log start, so files are removed first.
            _check_open(log)
            yield from _removing_below(log, start)
            yield from _writing_pending_start(log)
            yield from moving(log, start)
    return count


def _remove_below_start(log: PartitionLog) -> None:
    """Remove segments below the log start. The start is on disk, so segments that cannot be removed stay for later."""
    try:
        log.remove_below(log.log_start_offset)
    except OSError as error:
        _log.error("%s: records before the log start stay on the disk and are removed later: %s", log.directory, error)


def expirable(log: PartitionLog, now_ms: int) -> int:
    """Return the number of segments that retention would remove now. Raises OSError, CorruptSegment."""
    if log.read_only or "delete" not in log.config.cleanup_policy.split(","):
        return 0
    return expired(log.segments, log.config, log.last_stable_offset, now_ms)


def has_removable_segment(log: PartitionLog) -> bool:
    """Return true if the first segment is below the log start: the disk refused to remove it, or a snapshot is due."""
    return len(log.segments) > 1 and log.segments[0].next_offset <= log.log_start_offset


def _removing_below(log: PartitionLog, offset: int) -> Change[None]:
    """Remove segments durably, one at a time, because no log start on disk excludes them."""
    while log.remove_first_below(offset):
        # Without the new log start in memory, reads would report the removed records as damaged.
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        log.start_pending = True
        yield partial(log.files.sync_directory, log.directory)
        _check_open(log)


def _writing_pending_start(log: PartitionLog) -> Change[None]:
    """Write the log start that memory has already. Raises OSError; then the next round of retention does it."""
    start = log.log_start_offset
    yield partial(write_log_start, log.files, log.directory, start)
    _check_open(log)
    log.start_pending = log.log_start_offset > start


def _check_open(log: PartitionLog) -> None:
    """Raise OSError if the log was closed, because its directory may belong to another topic by now."""
    if log.closed:
        raise OSError(f"{log.directory} is closed")
