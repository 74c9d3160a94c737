"""Memory and descriptors of a partition's log."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.log import PartitionLog
from fencepost.broker.log.segment import Segment
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.small_logs import NEVER, NOW, opened

LOGS = 30
MOST_BYTES = 5500
"""Of a log with more batches than it remembers. It took 8 KB when each log had its own empty containers."""


def test_a_log_takes_little_memory_and_one_descriptor(tmp_path: Path) -> None:
    files = SystemFiles(str(tmp_path), durable=False)
    written = batch(b"x")
    gc.collect()
    tracemalloc.start()
    try:
        logs = [PartitionLog.open(files, f"t-{number}", NEVER, NOW) for number in range(LOGS)]
        for log in logs:
            for _ in range(130):
                log.append(written, NOW)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 1000 * LOGS < taken < MOST_BYTES * LOGS
    assert files.open_count == LOGS
    for log in logs:
        log.close()


def test_remembered_positions_are_those_of_the_segment() -> None:
    """Also behind an offset that needs more than 32 bits, and after the first ones are forgotten."""
    disk = MemoryDisk(durable=False)
    disk.makedirs("t-0")
    disk.open(f"t-0/{2**40:020d}.log")
    log = opened(disk=disk)
    assert log.log_end_offset == 2**40
    for size in range(300):
        log.append(batch(b"x" * size, b"y"), NOW)
    segment = Segment(disk, "t-0", 2**40)
    segment.next_offset = log.log_end_offset
    for offset in range(2**40, log.log_end_offset + 1):
        assert log.locate(0, offset) == segment.locate(offset)
