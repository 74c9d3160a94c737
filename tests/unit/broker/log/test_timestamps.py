"""Finding records by time looks only at what may be read: from the log start up to the bound of the reader."""

from __future__ import annotations

import random

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.broker.log.removing import moving
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch

NOW = 1_000
Record = tuple[int, int]


def written(chooser: random.Random, log: PartitionLog, batches: int) -> list[Record]:
    """(offset, timestamp) of the records of batches with timestamps in any order, some of them equal."""
    records: list[Record] = []
    for number in range(batches):
        times = [chooser.randrange(0, 40) + chooser.choice((0, number)) for _ in range(chooser.randint(1, 4))]
        appended = log.append(batch(*[b"v"] * len(times), timestamps=times), NOW)
        assert isinstance(appended, Appended)
        records += [(appended.base_offset + index, time) for index, time in enumerate(times)]
    return records


def newest_of(records: list[Record]) -> Record | None:
    best = max((time for _, time in records), default=None)
    return next(((time, offset) for offset, time in records if time == best), None)


def first_of(records: list[Record], timestamp: int) -> Record | None:
    return next(((time, offset) for offset, time in records if time >= timestamp), None)


@pytest.mark.parametrize("seed", range(60))
def test_every_bound_and_every_log_start(seed: int) -> None:
    chooser = random.Random(seed)
    config = LogConfig(segment_bytes=chooser.choice((400, 2000)), index_interval_bytes=chooser.choice((1, 150, 4096)))
    log = PartitionLog.open(MemoryDisk(), "t-0", config, NOW)
    records: list[Record] = []
    for _ in range(6):
        records += written(chooser, log, chooser.randint(0, 12))
        if chooser.random() < 0.7:
            log.mark_synced(log.log_end_offset)
            if chooser.random() < 0.5:
                carry_out(moving(log, chooser.randint(log.log_start_offset, log.high_watermark)))
        readable = [each for each in records if log.log_start_offset <= each[0] < log.high_watermark]
        assert log.offset_of_max_timestamp() == newest_of(readable)
        for timestamp in range(0, 80, 7):
            assert log.offset_for_timestamp(timestamp) == first_of(readable, timestamp)


def test_committed_records_alone() -> None:
    log = PartitionLog.open(MemoryDisk(), "t-0", LogConfig(), NOW)
    log.append(batch(b"a", timestamps=[5]), NOW)
    log.append(batch(b"b", timestamps=[9], producer_id=1, epoch=0, sequence=0, transactional=True), NOW)
    log.append(batch(b"c", timestamps=[7]), NOW)
    log.mark_synced(3)
    assert (log.offset_of_max_timestamp(), log.offset_of_max_timestamp(committed_only=True)) == ((9, 1), (5, 0))
    assert (log.offset_for_timestamp(6), log.offset_for_timestamp(6, committed_only=True)) == ((9, 1), None)


def test_what_is_not_synced_is_not_even_read() -> None:
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "t-0", LogConfig(), NOW)
    log.append(batch(b"a", timestamps=[5]), NOW)
    log.mark_synced(1)
    log.append(batch(b"b", timestamps=[9]), NOW)
    disk.flip_bit("t-0/" + "0" * 20 + ".log", disk.open("t-0/" + "0" * 20 + ".log").size() - 1)
    assert (log.offset_of_max_timestamp(), log.offset_for_timestamp(6)) == ((5, 0), None)
