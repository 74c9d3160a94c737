"""Retention removes whole segments, and none of an open transaction."""

from __future__ import annotations

import dataclasses

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, PartitionLog
from fencepost.broker.log.removing import retaining
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.small_logs import GOOD, NOW, SMALL, filled, opened, sync


def test_retention_by_size_and_by_time_removes_whole_segments() -> None:
    disk = MemoryDisk()
    log = filled(SMALL, 20, disk)
    sizes = [segment.size for segment in log.segments]
    log.config = dataclasses.replace(SMALL, retention_ms=-1, retention_bytes=sum(sizes) - sizes[0] - sizes[1])
    second = log.segments[2].base_offset
    assert carry_out(retaining(log, NOW)) == 2
    assert log.log_start_offset == second
    log.config = dataclasses.replace(SMALL, retention_ms=100)
    assert carry_out(retaining(log, 195 + 100)) > 0
    assert log.segments[0].largest_timestamp() >= 195 - 100 + 0 or len(log.segments) == 1
    before = log.log_start_offset
    assert carry_out(retaining(log, 10_000)) > 0
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert before < 40
    names = [name for name in disk.listdir("t-0") if name.endswith(".log")]
    assert names == ["00000000000000000040.log"]
    log.close()
    reopened = PartitionLog.open(disk, "t-0", SMALL, NOW)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (40, 40)
    assert reopened.append(GOOD, NOW) == Appended(40, 41, -1, 40)


def test_retention_stops_at_an_open_transaction() -> None:
    log = opened(SMALL, MemoryDisk())
    for _ in range(6):
        log.append(GOOD, NOW)
    first = log.log_end_offset
    log.append(batch(b"held", producer_id=5, epoch=0, sequence=0, transactional=True), NOW)
    for _ in range(20):
        log.append(GOOD, NOW)
    sync(log)
    log.config = dataclasses.replace(log.config, retention_ms=100)
    carry_out(retaining(log, NOW + 10_000_000))
    assert 0 < log.log_start_offset <= first
    assert b"held" in bytes(log.read(first, 1).records)
    log.append_marker(5, 1, True, 0, NOW)
    sync(log)
    carry_out(retaining(log, NOW + 10_000_000))
    assert log.log_start_offset > first
