"""Synced records that are damaged or gone: they are told, never cut, and its offsets are not given out again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.log import Appended, LogConfig, PartitionLog, Rejected
from fencepost.broker.log.reading import Gap, batches_of
from fencepost.broker.log.recovery_points import FILE, RecoveryPoints
from fencepost.protocol.records.batch import iter_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch

TOPIC, NOW = UUID(int=7), 1_000
FIRST = "t-0/00000000000000000000.log"


@dataclass
class World:
    """A log of batches of two records that are as long as each other, with its recovery point."""

    config: LogConfig = field(default_factory=lambda: LogConfig(index_interval_bytes=300))
    disk: MemoryDisk = field(default_factory=MemoryDisk)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        points = RecoveryPoints(self.disk)
        points.load(expected=False)
        self.point = points.of(TOPIC, 0)
        self.log = PartitionLog.open(self.disk, "t-0", self.config, NOW, topic_id=TOPIC, point=self.point)

    def append(self, count: int) -> None:
        for _ in range(count):
            number = self.log.log_end_offset
            answer = self.log.append(batch(b"%06d" % number, b"%06d" % (number + 1)), NOW)
            assert isinstance(answer, Appended) and answer.base_offset == number

    def sync(self) -> None:
        end = self.log.log_end_offset
        for file in self.log.unsynced():
            file.sync()
        self.log.mark_synced(end)

    def readable(self) -> list[int]:
        """Base offsets of all that can be read, each looked at by itself."""
        found = []
        for offset in range(self.log.log_start_offset, self.log.high_watermark, 2):
            read = self.log.read(offset, 1)
            if read.error_code:
                assert read.error_code == 2
                continue
            header, view = next(iter_batches(read.records))
            assert b"%06d" % offset in bytes(view)
            found.append(header.base_offset)
        return found


@pytest.fixture
def world() -> World:
    """A hundred synced batches, and no snapshot but the one of the beginning."""
    world = World()
    world.append(100)
    world.sync()
    return world


@pytest.mark.parametrize("within", [0, 7, 8, 11, 16, 17, 30, 60, 70, -1], ids=lambda at: f"byte {at}")
def test_a_flipped_bit_costs_its_own_batch_only(world: World, within: int) -> None:
    size = world.disk.open(FIRST).size() // 100
    world.disk.flip_bit(FIRST, 7 * size + (within if within >= 0 else size + within), 1)
    world.disk.kill()
    world.open()
    assert world.log.report.cuts == []
    assert [(each.first_offset, each.next_offset) for each in world.log.report.damaged] == [(14, 16)]
    assert world.log.log_end_offset == 200
    assert world.readable() == [offset for offset in range(0, 200, 2) if offset != 14]
    gaps = [item for item in batches_of(world.log, 0) if isinstance(item, Gap)]
    assert [(gap.first_offset, gap.next_offset) for gap in gaps] == [(14, 16)]
    world.append(1)
    world.sync()
    assert 200 in world.readable()


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_damage_that_was_told_is_not_cut_after_a_loss_of_power(world: World, seed: int, is_full: bool) -> None:
    """An older point may come back then, which would say that nobody was promised what is damaged; on a full disk no
    snapshot says otherwise."""
    size = world.disk.open(FIRST).size() // 100
    world.disk.flip_bit(FIRST, 7 * size + 70)
    world.disk.kill()
    world.disk.is_full = is_full
    world.open()
    assert [(each.first_offset, each.next_offset) for each in world.log.report.damaged] == [(14, 16)]
    world.disk.crash(seed)
    world.disk.is_full = False
    world.open()
    assert world.log.report.cuts == []
    assert world.log.log_end_offset == 200
    assert world.readable() == [offset for offset in range(0, 200, 2) if offset != 14]


def test_a_full_disk_takes_the_point_of_what_was_written_before() -> None:
    """The first sync came when no file could grow any more: its point had no place, and the next start cut everything
    from the damage on."""
    world = World()
    world.append(3)
    world.disk.is_full = True
    world.sync()
    world.disk.is_full = False
    world.disk.flip_bit(FIRST, 70)
    world.disk.kill()
    world.open()
    assert world.log.report.cuts == []
    assert world.log.log_end_offset == 6
    assert world.readable() == [2, 4]


def test_nothing_is_appended_without_a_place_for_its_point() -> None:
    world = World()
    world.disk.fail_next_write(within=FILE)
    assert isinstance(world.log.append(batch(b"%06d" % 0, b"%06d" % 1), NOW), Rejected)
    world.append(3)
    world.sync()
    assert world.readable() == [0, 2, 4]


def test_a_start_that_finds_all_in_order_notes_it_again() -> None:
    """A loss of power left an older point. The next start had nothing to scan, and left it so: what was lost after a
    kill -9 was not told."""
    in_order = 0
    for seed in range(40):
        world = World()
        world.append(10)
        world.sync()
        older = world.disk.tree("t-0")
        world.append(10)
        world.sync()
        for start in range(2):
            world.disk.crash(2 * seed + start)
            world.open()
        in_order += world.log.report.scanned_bytes == 0
        world.disk.put_tree("t-0", older)
        world.disk.kill()
        world.open()
        assert [(each.first_offset, each.next_offset) for each in world.log.report.damaged] == [(20, 40)]
        assert world.log.log_end_offset == 40
    assert in_order > 20


def test_damage_that_nobody_was_promised_is_cut(world: World) -> None:
    size = world.disk.open(FIRST).size() // 100
    world.append(5)
    world.disk.flip_bit(FIRST, 102 * size + 70)
    world.disk.kill()
    world.open()
    assert world.log.report.damaged == []
    assert [cut.size_bytes for cut in world.log.report.cuts] == [3 * size]
    assert world.log.log_end_offset == 204


@pytest.mark.parametrize("lives", [0, 1])
def test_a_loss_of_power_before_the_first_sync_leaves_a_log_without_damage(lives: int) -> None:
    """Also of a log whose small files are from an earlier process: the second file never stays without the first."""
    for seed in range(30):
        world = World()
        for _ in range(lives):
            world.disk.kill()
            world.open()
        world.append(1)
        world.log.roll()
        world.append(1)
        world.disk.crash(seed)
        world.open()
        assert not world.log.report.damaged
        assert len(world.readable()) * 2 == world.log.log_end_offset
        assert world.log.segments[0].base_offset == 0


def test_what_is_appended_during_a_sync_does_not_count_as_synced(world: World) -> None:
    end = world.log.log_end_offset
    world.append(1)
    for file in world.log.unsynced():
        file.sync()
    world.append(1)
    world.log.mark_synced(end + 2)
    assert (world.point.offset, world.log.log_end_offset) == (end + 2, end + 4)


def test_the_last_batch_stays_even_when_nothing_is_whole_behind_it(world: World) -> None:
    world.disk.flip_bit(FIRST, -1)
    before = world.disk.read_bytes(FIRST)
    world.disk.kill()
    for _ in range(2):
        world.open()
        assert world.log.log_end_offset == 200
        assert world.disk.read_bytes(FIRST) == before
        assert world.log.read(198, 1).error_code == 2
        world.disk.kill()
    world.open()
    world.append(3)
    world.sync()
    assert world.readable()[-4:] == [196, 200, 202, 204]


@pytest.mark.parametrize("which", ["first", "middle", "last", "all", "directory"])
@pytest.mark.parametrize("how", ["kill", "close"])
def test_lost_segments_are_told(which: str, how: str) -> None:
    world = World(LogConfig(segment_bytes=900))
    world.append(1)
    world.sync()
    world.append(59)
    world.sync()
    if how == "close":
        world.log.close()
    logs = [name for name in world.disk.listdir("t-0") if name.endswith(".log")]
    assert len(logs) > 5
    bases = [int(name.removesuffix(".log")) for name in logs] + [120]
    doomed = {"first": logs[:1], "middle": logs[3:4], "last": logs[-1:]}.get(which, logs)
    for name in doomed:
        world.disk.remove(f"t-0/{name}")
    if which == "directory":
        world.disk.remove_tree("t-0")
    world.disk.kill()
    world.open()
    lost = {offset for name in doomed for offset in range(int(name[:20]), bases[bases.index(int(name[:20])) + 1])}
    reported = {offset for each in world.log.report.damaged for offset in range(each.first_offset, each.next_offset)}
    assert reported == lost
    assert world.log.log_end_offset == 120
    assert world.readable() == [offset for offset in range(0, 120, 2) if offset not in lost]
    world.append(1)
    world.sync()
    assert world.readable()[-1] == 120


def test_a_log_whose_only_file_was_emptied_opens_at_the_first_start(tmp_path: Path) -> None:
    world = World(disk=cast(MemoryDisk, SystemFiles(str(tmp_path))))  # only its handles must open a file again
    world.append(3)
    world.sync()
    (tmp_path / FIRST).write_bytes(b"")
    world.open()
    assert [damage[:2] for damage in world.log.report.damaged] == [(0, 6)]
    assert world.log.log_end_offset == 6
    world.append(1)


def test_points_are_kept_in_two_places_each() -> None:
    for damaged in range(2):
        disk = MemoryDisk()
        points = RecoveryPoints(disk)
        points.load(expected=False)
        for number in range(3):
            points.of(TOPIC, number).move(10)
            points.of(TOPIC, number).move(20)
        disk.flip_bit(FILE, 128 + 64 * damaged + 20)
        disk.kill()
        again = RecoveryPoints(disk)
        again.load(expected=True)
        offsets = [again.of(TOPIC, number).offset for number in range(3)]
        assert offsets[0] == offsets[2] == 20
        assert offsets[1] in (10, 20)
        again.forget({TOPIC})
        again.of(UUID(int=8), 0).move(5)
        disk.kill()
        last = RecoveryPoints(disk)
        last.load(expected=True)
        assert [(point.topic_id, point.offset) for point in last] == [(UUID(int=8), 5)]


def test_a_missing_file_of_points_is_told(caplog: pytest.LogCaptureFixture) -> None:
    points = RecoveryPoints(MemoryDisk())
    points.load(expected=True)
    assert "is missing" in caplog.text
    assert list(points) == []


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_after_random_crashes(seed: int) -> None:
    """Each promised record is at its offset, or its loss is told, and no offset is given out twice."""
    rng = random.Random(seed)
    world = World(LogConfig(segment_bytes=1500, index_interval_bytes=200, snapshot_interval_bytes=1200))
    reported: set[int] = set()
    promised = 0
    for _ in range(8):
        for _ in range(rng.randrange(1, 6)):
            world.append(rng.randrange(1, 8))
            world.sync()
            promised = world.log.log_end_offset
        world.append(rng.randrange(3))
        world.disk.crash(rng.randrange(2**31)) if rng.random() < 0.5 else world.disk.kill()
        point_was = _point_of(world)
        logs = [f"t-0/{name}" for name in world.disk.listdir("t-0") if name.endswith(".log")]
        if rng.random() < 0.7:
            path = rng.choice(logs)
            if size := len(world.disk.read_bytes(path)):
                world.disk.flip_bit(path, rng.randrange(size), rng.randrange(8))
        world.open()
        reported |= {o for each in world.log.report.damaged for o in range(each.first_offset, each.next_offset)}
        assert world.log.log_end_offset >= point_was
        readable_offsets = set(world.readable())
        gone = {offset for offset in range(0, min(promised, point_was), 2) if offset not in readable_offsets}
        for offset in gone - reported:  # below a snapshot nothing is scanned: told when it is read
            assert world.log.read(offset, 1).error_code == 2
        promised = world.log.log_end_offset
    assert promised > 50


def _point_of(world: World) -> int:
    points = RecoveryPoints(world.disk)
    points.load(expected=True)
    return points.of(TOPIC, 0).offset
