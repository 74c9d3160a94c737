"""Opening of logs for requests, and reports of what recovery found."""

from __future__ import annotations

import logging

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.topics.topic import Partition

__all__ = ["log_damage", "note_recovery", "open_log"]

_log = logging.getLogger("fencepost.broker.recovery")


def note_recovery(partition: Partition, metrics: Metrics) -> None:
    """Log and count the recovery report of a log that was just opened."""
    log = partition.opened
    if log is None:
        return
    report = log.report
    for cut in report.cuts:
        metrics.count("cut_bytes", cut.size_bytes)
        _log.warning("%s: cut %s bytes off at byte %s: %s", cut.path, cut.size_bytes, cut.position, cut.reason)
    # Internal topics are read completely at the start, which reports their damage.
    for first, following, description in () if partition.topic.internal else report.damaged:
        log_damage(partition, metrics, first, following, description)
    for note in report.notes:
        _log.warning("%s: %s", partition.directory, note)
    if report.scanned_bytes and not report.clean:
        metrics.count("recovered_logs")
        _log.info("%s: scanned %s bytes up to offset %s", partition.directory, report.scanned_bytes, log.log_end_offset)


def log_damage(partition: Partition, metrics: Metrics, first_offset: int, next_offset: int, description: str) -> None:
    """Log and count offsets that were acknowledged and cannot be read any more."""
    metrics.count("damaged_places")
    metrics.count("damaged_offsets", next_offset - first_offset)
    _log.error(
        "topic %s partition %s: offsets %s to %s cannot be read: %s. The broker serves all "
        "other records, keeps the damaged bytes, and does not assign these offsets again",
        *(partition.topic.name, partition.index, first_offset, next_offset - 1, description),
    )


def open_log(partition: Partition, metrics: Metrics) -> PartitionLog | None:
    """Return the partition's log, or None (KAFKA_STORAGE_ERROR) if it cannot be opened now."""
    try:
        return partition.log
    except OSError as error:
        metrics.count("storage_errors")
        _log.error("%s cannot be opened: %s", partition.directory, error)
        return None
