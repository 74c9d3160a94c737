"""Logs of a partition with a few small batches."""

from __future__ import annotations

from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.protocol.records.batch import BatchHeader, iter_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch

NOW = 1_000
NEVER = LogConfig(fsync="never")
SMALL = LogConfig(fsync="never", segment_bytes=400, index_interval_bytes=100)
GOOD = batch(b"one", b"two")


def opened(config: LogConfig = NEVER, disk: MemoryDisk | None = None) -> PartitionLog:
    return PartitionLog.open(disk or MemoryDisk(), "t-0", config, NOW)


def filled(config: LogConfig, batches: int = 20, disk: MemoryDisk | None = None) -> PartitionLog:
    """Batches of two records at offsets 0, 2, 4, ...; batch n has timestamps 10n and 10n + 5."""
    log = opened(config, disk)
    for n in range(batches):
        assert isinstance(log.append(batch(b"a%d" % n, b"b%d" % n, timestamps=[10 * n, 10 * n + 5]), NOW), Appended)
    return log


def headers(records: bytes | memoryview) -> list[BatchHeader]:
    return [header for header, _ in iter_batches(records)]


def sync(log: PartitionLog) -> None:
    end = log.log_end_offset
    for file in log.unsynced():
        file.sync()
    log.mark_synced(end)
