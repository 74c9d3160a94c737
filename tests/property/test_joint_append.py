"""Random batches, appended one by one and several with one write: the same results, files and producer states."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost.broker.log.validate import Flaw, header_of
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.check import Checked, check_records
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import batch
from tests.support.small_logs import NOW

HEADER_BYTES = 61
CONFIGS = {
    "roomy": LogConfig(fsync="never"),
    "small segments": LogConfig(fsync="never", segment_bytes=900, index_interval_bytes=100),
    "small indexes": LogConfig(fsync="never", segment_index_bytes=24, index_interval_bytes=0),
    "short segments": LogConfig(fsync="never", segment_ms=300),
    "snapshots by bytes": LogConfig(fsync="never", snapshot_interval_bytes=1_000),
    "snapshots by batches": LogConfig(fsync="never", snapshot_interval_batches=7),
    "syncs at intervals": LogConfig(fsync="interval", segment_bytes=900),
    "small batches": LogConfig(fsync="never", max_message_bytes=100),
    "own codec": LogConfig(fsync="never", compression_type="gzip"),
    "keys": LogConfig(fsync="never", cleanup_policy="compact"),
    "recent": LogConfig(fsync="never", message_timestamp_after_max_ms=400),
    "time of the append": LogConfig(fsync="never", message_timestamp_type="LogAppendTime"),
    "rules of Kafka": LogConfig(fsync="never", producer_state_check="kafka"),
}
Batches = list[tuple[bytes, BatchHeader, Checked]]


def drawn(random: Random, count: int) -> Batches:
    """Draw batches: most follow each other, and some repeat others, leave gaps or have another epoch."""
    following, epochs, found = {7: 0, 8: 0}, {7: 0, 8: 0}, []
    for number in range(count):
        values = [b"x" * random.choice([1, 10, 30])] * random.choice([1, 1, 3])
        producer_id, sequence = random.choice([-1, 7, 7, 8]), -1
        if producer_id >= 0:
            epochs[producer_id] += random.random() < 0.03
            sequence = following[producer_id] + random.choice([0] * 30 + [-1, 1, 5, -following[producer_id]])
            sequence = max(0, sequence)
            following[producer_id] = sequence + len(values)
        timestamp = random.choice([NOW, NOW + number, NOW - 100, NOW, NOW, NOW + 500 * (random.random() < 0.05)])
        raw = batch(
            *values, producer_id=producer_id, epoch=epochs.get(producer_id, -1), sequence=sequence, timestamp=timestamp
        )
        header = header_of(raw)
        assert not isinstance(header, Flaw)
        checked = check_records(memoryview(raw)[HEADER_BYTES:], header.record_count, header.base_timestamp)
        found.append((raw, header, checked))
    return found


def seen(log: PartitionLog, disk: MemoryDisk, results: Sequence[object]) -> dict[str, object]:
    last = log.segments[-1]
    return {
        "results": list(results),
        "bounds": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset),
        "producers": sorted(log.producers, key=lambda state: state.producer_id),
        "places": [log.locate(len(log.segments) - 1, end) for end in range(last.base_offset, log.log_end_offset)],
        "files": disk.tree(""),
    }


def one_by_one(config: LogConfig, batches: Batches, version: int) -> dict[str, object]:
    disk = MemoryDisk()
    log = PartitionLog.open(disk, "t-0", config, NOW)
    results = [
        log.append(raw, NOW, produce_version=version, header=header, checked=checked)
        for raw, header, checked in batches
    ]
    return seen(log, disk, results)


def together(config: LogConfig, batches: Batches, version: int, random: Random) -> tuple[dict[str, object], int]:
    """Return what is seen, and the number of batches that were appended with others."""
    disk, joint, results = MemoryDisk(), 0, list[object]()
    log = PartitionLog.open(disk, "t-0", config, NOW)
    while len(results) < len(batches):
        rest = batches[len(results) :][: random.randint(1, 12)]
        found = log.append_together(rest, NOW, produce_version=version)
        joint += len(found) if len(found) > 1 else 0
        results += found
        if not found:
            raw, header, checked = rest[0]
            results.append(log.append(raw, NOW, produce_version=version, header=header, checked=checked))
    return seen(log, disk, results), joint


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(6))
def test_a_joint_append_is_as_several_appends(seed: int, name: str) -> None:
    random = Random(f"{seed} {name}")
    batches, version = drawn(random, 120), random.choice([7, 9, 13])
    expected = one_by_one(CONFIGS[name], batches, version)
    found, joint = together(CONFIGS[name], batches, version, random)
    assert found == expected
    assert sum(isinstance(each, Appended) for each in expected["results"]) > 10 or name == "keys"  # type: ignore[attr-defined]
    assert joint > 1 or name in ("own codec", "keys", "time of the append")


@pytest.mark.parametrize("written", [0, 1, 90, 200])
def test_a_joint_append_that_cannot_be_written_changes_nothing(written: int) -> None:
    disk, config = MemoryDisk(), CONFIGS["roomy"]
    log = PartitionLog.open(disk, "t-0", config, NOW)
    raws = [batch(b"v", producer_id=7, epoch=0, sequence=number) for number in range(5)]
    batches: Batches = []
    for raw in raws:
        header = header_of(raw)
        assert not isinstance(header, Flaw)
        batches.append((raw, header, check_records(memoryview(raw)[HEADER_BYTES:], 1, header.base_timestamp)))
    assert isinstance(log.append(raws[0], NOW), Appended)
    before = seen(log, disk, ())
    disk.fail_next_write(written=written)
    assert list(log.append_together(batches[1:], NOW, produce_version=9)) == []
    assert seen(log, disk, ()) == before
    assert log.failure is not None
    assert [each.base_offset for each in log.append_together(batches[1:], NOW, produce_version=9)] == [1, 2, 3, 4]
