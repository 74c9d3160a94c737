"""The start of a log: the files and positions that it reads."""

from __future__ import annotations

import dataclasses
import struct

from crc32c import crc32c

from fencepost.broker.log import PartitionLog
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.small_logs import NEVER, NOW, filled, opened


def test_a_kill_costs_a_scan_of_few_batches_however_small_they_are() -> None:
    disk = MemoryDisk(durable=False)
    config = dataclasses.replace(NEVER, snapshot_interval_batches=50)
    log = filled(config, 1000, disk)
    disk.kill()
    again = PartitionLog.open(disk, "t-0", config, NOW)
    assert 0 < again.report.scanned_bytes <= 51 * log.size_bytes // 1000 + 100
    assert again.log_end_offset == 2000


def test_a_snapshot_of_kafkas_finds_its_place_whatever_the_index_says() -> None:
    """It does not say its place, and a wrong entry must not lead behind batches whose producers it does not know."""
    disk = MemoryDisk(durable=False)
    log = opened(disk=disk)
    for pid in range(10):
        log.append(batch(b"x", producer_id=pid, epoch=0, sequence=0), NOW)
    log.close()
    for name in disk.listdir("t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"t-0/{name}")
    entries = [struct.pack(">qhiqiqiq", pid, 0, 0, pid, 0, NOW, -1, -1) for pid in range(3)]
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    disk.write_atomic(f"t-0/{3:020d}.snapshot", struct.pack(">hI", 1, crc32c(body)) + body)
    size = log.size_bytes // 10
    disk.write_atomic(f"t-0/{0:020d}.index", struct.pack(">ii", 2, 8 * size))
    again = PartitionLog.open(disk, "t-0", NEVER, NOW)
    assert {state.producer_id for state in again.producers} == set(range(10))
    assert again.report.scanned_bytes == 7 * size
