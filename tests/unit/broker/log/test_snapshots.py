"""When what is known of producers is written down: with a sync that covers all it stands for, and not before."""

from __future__ import annotations

import dataclasses

from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.small_logs import GOOD, NOW, SMALL, opened, sync


def test_a_sync_releases_only_the_snapshot_it_covered() -> None:
    disk = MemoryDisk()
    log = opened(dataclasses.replace(SMALL, fsync="commit"), disk)
    log.append(GOOD, NOW)
    sync(log)
    log.append(GOOD, NOW)
    end = log.log_end_offset
    files = log.unsynced()
    while len(log.segments) < 3:
        log.append(GOOD, NOW)
    for file in files:
        file.sync()
    log.mark_synced(end)
    assert not [name for name in disk.listdir("t-0") if name.endswith(".snapshot")]
    sync(log)
    assert f"{log.segments[-1].base_offset:020d}.snapshot" in disk.listdir("t-0")


def test_a_snapshot_waits_for_a_sync_of_all_that_it_stands_for() -> None:
    disk = MemoryDisk()
    log = opened(dataclasses.replace(SMALL, fsync="commit"), disk)

    def appended() -> int:
        log.append(batch(b"x"), NOW)
        return log.log_end_offset

    def is_written() -> bool:
        return any(name.endswith(".snapshot") for name in disk.listdir("t-0"))

    end = appended()
    log.unsynced()
    log.prepare_snapshot()  # its indexes are not among the files of that sync
    log.mark_synced(end)
    assert not is_written()
    disk = MemoryDisk()
    log = opened(dataclasses.replace(SMALL, fsync="commit"), disk)
    end = appended()
    log.unsynced()
    assert appended() == end + 1
    log.prepare_snapshot()
    log.unsynced()  # a second sync, and the first ends before it
    log.mark_synced(end)
    assert not is_written()
    log.mark_synced(end + 1)
    assert is_written()
