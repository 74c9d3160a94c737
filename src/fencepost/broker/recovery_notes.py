"""Opening a log for a request, and telling what opening found: silence would be taken for "all is there"."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics import Metrics
from fencepost.broker.topics import Partition

__all__ = ["note_recovery", "open_log"]

if TYPE_CHECKING:
    from fencepost.broker.core import BrokerCore

_log = logging.getLogger("fencepost.broker.recovery")


def note_recovery(partition: Partition, metrics: Metrics) -> None:
    """Log and count the report of a log that was just opened."""
    log = partition.opened
    if log is None:
        return
    report = log.report
    for cut in report.cuts:
        metrics.count("cut_bytes", cut.size_bytes)
        _log.warning("%s: cut %s bytes off at byte %s: %s", cut.path, cut.size_bytes, cut.position, cut.reason)
    for damage in report.damaged:
        metrics.count("damaged_places")
        _log.error("%s; it stays as it is, and is not served", damage)
    for note in report.notes:
        _log.warning("%s: %s", partition.directory, note)
    if report.scanned_bytes and not report.clean:
        metrics.count("recovered_logs")
        _log.info("%s: scanned %s bytes up to offset %s", partition.directory, report.scanned_bytes, log.log_end_offset)


def open_log(core: BrokerCore, partition: Partition) -> PartitionLog | None:
    """The partition's log; None when it cannot be opened now, which is this partition's trouble only
    (KAFKA_STORAGE_ERROR)."""
    try:
        return partition.log
    except OSError as error:
        core.metrics.count("storage_errors")
        _log.error("%s cannot be opened: %s", partition.directory, error)
        return None
