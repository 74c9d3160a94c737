"""Which producer snapshots are on disk, and when."""

from __future__ import annotations

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log.producers.snapshot_files import SnapshotKeeper
from fencepost_lab.check.disk import MemoryDisk


def snapshots_on_disk(disk: MemoryDisk) -> list[int]:
    return [int(name.removesuffix(".snapshot")) for name in disk.listdir("t-0")]


def test_what_compaction_overtakes_is_not_written_any_more() -> None:
    """It would point into segments that are no longer there."""
    disk = MemoryDisk()
    disk.makedirs("t-0")
    keeper = SnapshotKeeper(disk, "t-0", [])
    keeper.prepare(4, b"four", [])
    keeper.offer()
    carry_out(keeper.writing(4))
    keeper.prepare(6, b"six", [])
    keeper.prepare(8, b"eight", [])
    keeper.keep_from(7)
    assert snapshots_on_disk(disk) == []
    keeper.offer()
    assert not keeper.is_ready(7)
    keeper.keep_from(8)
    carry_out(keeper.writing(8))
    assert snapshots_on_disk(disk) == keeper.offsets == [8]
    assert not keeper.is_ready(8)


def test_the_index_files_of_a_segment_that_is_removed_are_not_synced_any_more() -> None:
    disk = MemoryDisk()
    disk.makedirs("t-0")
    removed, remaining = disk.open("t-0/0.index"), disk.open("t-0/9.index")
    keeper = SnapshotKeeper(disk, "t-0", [])
    keeper.prepare(12, b"twelve", [removed, remaining])
    keeper.forget_files([removed])
    assert keeper.offer() == [remaining]
