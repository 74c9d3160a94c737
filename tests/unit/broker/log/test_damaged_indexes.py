"""Indexes are believed where the log agrees with them, and made again where it does not."""

from __future__ import annotations

import errno
import random

import pytest

from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.protocol.records.batch import iter_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch

CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=300)
START, STEP, ROUNDS = 1_000, 10, 90


@pytest.fixture(scope="module")
def disk() -> MemoryDisk:
    """A closed log: every third batch belongs to a transaction of its own, every other one of which is aborted."""
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "t-0", CONFIG, START)
    for number in range(ROUNDS):
        now = START + STEP * number
        value = b"%06d" % number + b"." * 60
        if number % 3:
            answer = log.append(batch(value, timestamp=now), now)
        else:
            data = batch(value, producer_id=7, epoch=number, sequence=0, transactional=True, timestamp=now)
            answer = log.append(data, now)
            log.append_marker(7, number, bool(number % 2), 0, now, transaction_version=0)
        assert isinstance(answer, Appended)
        if number == 0:
            sync(log)
    log.close()
    return disk


def sync(log: PartitionLog) -> None:
    """Its first segment is not closed before."""
    end = log.log_end_offset
    for file in log.unsynced():
        file.sync()
    log.mark_synced(end)


def committed(log: PartitionLog) -> list[tuple[int, int]]:
    """(base offset, number of aborted transactions that overlap it) of every batch, each read by itself."""
    found = []
    offset = 0
    while offset < log.high_watermark:
        read = log.read(offset, 1, committed_only=True)
        assert read.error_code == 0, read.message
        header = next(iter_batches(read.records))[0]
        found.append((header.base_offset, len(read.aborted)))
        offset = header.last_offset + 1
    return found


def by_time(log: PartitionLog) -> list[tuple[int, int] | None]:
    return [log.offset_for_timestamp(START + STEP * number) for number in range(0, ROUNDS, 7)]


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("damage", ["flipped", "missing", "truncated", "empty"])
def test_damage_to_an_index_changes_no_answer(disk: MemoryDisk, kind: str, damage: str) -> None:
    rng = random.Random(kind + damage)
    whole = {name: disk.read_bytes(f"t-0/{name}") for name in disk.listdir("t-0")}
    log = PartitionLog.open(disk, "t-0", CONFIG, START, clean=True)
    expected, times = committed(log), by_time(log)
    oldest = [segment.largest_timestamp() for segment in log.segments]
    assert len(expected) == ROUNDS + ROUNDS // 3 and sum(count for _, count in expected) > 10
    names = [name for name in whole if name.endswith(kind) and whole[name]]
    assert len(names) > 1
    for _ in range(60 if damage == "flipped" else len(names)):
        world = MemoryDisk()
        world.makedirs("t-0")
        for name, data in whole.items():
            world.write_atomic(f"t-0/{name}", data)
        path = "t-0/" + (rng.choice(names) if damage == "flipped" else names.pop())
        size = len(world.read_bytes(path))
        if damage == "flipped":
            world.flip_bit(path, rng.randrange(size), rng.randrange(8))
        elif damage == "missing":
            world.remove(path)
        else:
            world.write_atomic(path, world.read_bytes(path)[: size // 2] if damage == "truncated" else b"")
        log = PartitionLog.open(world, "t-0", CONFIG, START, clean=True)
        assert committed(log) == expected, path
        assert [segment.largest_timestamp() for segment in log.segments] == oldest, path
        assert by_time(log) == times, path


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_damage_to_an_index_hides_nothing_from_a_search_by_time(disk: MemoryDisk, kind: str) -> None:
    """The search is the first to use the index: nothing else has looked at it before."""
    whole = {name: disk.read_bytes(f"t-0/{name}") for name in disk.listdir("t-0")}
    name = min(name for name in whole if name.endswith(kind))
    log = PartitionLog.open(disk, "t-0", CONFIG, START, clean=True)
    expected = by_time(log)
    assert len(expected) > 10 and None not in expected
    flipped = 0
    for byte in range(len(whole[name])):
        for bit in range(0, 8, 3):
            world = MemoryDisk()
            world.makedirs("t-0")
            for each, data in whole.items():
                world.write_atomic(f"t-0/{each}", data)
            world.flip_bit(f"t-0/{name}", byte, bit)
            log = PartitionLog.open(world, "t-0", CONFIG, START, clean=True)
            assert by_time(log) == expected, (byte, bit)
            flipped += 1
    assert flipped > 100


def test_a_time_index_that_lost_entries_is_noticed_by_every_later_start() -> None:
    """Each start writes a snapshot before anything has read the indexes of closed segments, and is killed."""
    config = LogConfig(segment_bytes=6000, index_interval_bytes=300, snapshot_interval_batches=1)
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "t-0", config, START)
    for number in range(ROUNDS):
        now = START + STEP * number
        assert isinstance(log.append(batch(b"%06d" % number + b"." * 60, timestamp=now), now), Appended)
        sync(log)
    expected, largest = by_time(log), [segment.largest_timestamp() for segment in log.segments]
    assert len(log.segments) > 2
    log.close()
    path = log.segments[0].stem + ".timeindex"
    for _ in range(4):
        disk.write_atomic(path, disk.read_bytes(path)[:24])
        log = PartitionLog.open(disk, "t-0", config, START)
        for _ in range(3):
            assert isinstance(log.append(batch(b"later", timestamp=START + STEP * ROUNDS), START), Appended)
            sync(log)
        disk.kill()
    log = PartitionLog.open(disk, "t-0", config, START)
    assert [segment.largest_timestamp() for segment in log.segments][: len(largest) - 1] == largest[:-1]
    assert by_time(log) == expected


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".log"])
def test_an_index_that_cannot_be_read_just_now_is_not_an_empty_one(
    disk: MemoryDisk, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file once: what was asked meanwhile fails, and then every answer is as before, aborted records told."""
    whole = PartitionLog.open(disk, "t-0", CONFIG, START, clean=True)
    expected, oldest = committed(whole), [segment.largest_timestamp() for segment in whole.segments]
    log = PartitionLog.open(disk, "t-0", CONFIG, START, clean=True)
    refused: set[str] = set()
    honest = disk.before_read

    def refuse(path: str) -> None:
        if path.endswith(kind) and path not in refused:
            refused.add(path)
            raise OSError(errno.EIO, "no")
        honest(path)

    monkeypatch.setattr(disk, "before_read", refuse)
    failures = 0
    for _ in range(2 * len(log.segments)):
        try:
            answers = committed(log)
        except (AssertionError, OSError):
            failures += 1
            continue
        assert answers == expected
        break
    assert failures == len(refused) > 1
    assert committed(log) == expected
    assert [segment.largest_timestamp() for segment in log.segments] == oldest


def damage(disk: MemoryDisk, path: str, rng: random.Random) -> None:
    """Damage a file as a disk or a loss of power does, or not at all."""
    size = len(disk.read_bytes(path)) if disk.exists(path) else 0
    kind = rng.choice(["none", "flipped", "truncated", "empty", "zeros"])
    if not size or kind == "none":
        return
    if kind == "flipped":
        disk.flip_bit(path, rng.randrange(size), rng.randrange(8))
    else:
        prefix = disk.read_bytes(path)[: rng.randrange(size) if kind == "truncated" else 0]
        disk.write_atomic(path, bytes(size) if kind == "zeros" else prefix)


def test_damage_after_damage_brings_no_aborted_record_back() -> None:
    """The snapshot of a start that has repaired an index covers the repaired one, also for the next repair."""
    looked = 0
    for seed in range(300):
        rng, disk = random.Random(seed), MemoryDisk()
        log = PartitionLog.open(disk, "t-0", LogConfig(segment_bytes=rng.choice([600, 100_000])), START)
        aborted: list[tuple[int, int]] = []
        epoch = 0
        for life in range(5):
            for _ in range(rng.randrange(4)):
                epoch += 1
                data = batch(b"x", producer_id=7, epoch=epoch, sequence=0, transactional=True)
                begin = log.log_end_offset
                assert isinstance(log.append(data, START), Appended)
                is_commit = rng.random() < 0.3
                log.append_marker(7, epoch, is_commit, 0, START, transaction_version=0)
                if not is_commit:
                    aborted.append((7, begin))
                if rng.random() < 0.5:
                    sync(log)
            sync(log)
            disk.kill()
            for name in sorted(disk.listdir("t-0")):
                if name.endswith((".txnindex", ".snapshot", ".index", ".timeindex")) and rng.random() < 0.6:
                    damage(disk, f"t-0/{name}", rng)
            log = PartitionLog.open(disk, "t-0", LogConfig(segment_bytes=100_000), START)
            found = [log.read(offset, 1, committed_only=True).aborted for _, offset in aborted]
            assert found == [[each] for each in aborted], (seed, life)
            looked += len(aborted)
    assert looked > 3_000
