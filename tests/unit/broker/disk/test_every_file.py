"""Every file that the broker writes, missing, older, truncated, with a flipped bit, or empty: it starts or refuses with
words, and no acknowledged record disappears in silence, is doubled, or gives its offset to another."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest

from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.records.batch import iter_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.unit.broker.coordinator.test_damaged_internal_topics import (
    CONFIG,
    committed,
    create,
    end,
    init,
    prepare,
    write,
)

DAMAGES = ("missing", "older", "truncated", "flipped", "empty")
SETTINGS = {**CONFIG, "log.segment.bytes": 1_000, "log.index.interval.bytes": 150}
Contents = dict[str, bytes]


class World:
    """A broker, with the values that it acknowledged and the producer ids that it assigned."""

    def __init__(self, how: str) -> None:
        self.driver = BrokerDriver(SETTINGS)
        create(self.driver)
        self.acknowledged: dict[int, bytes] = {}
        self.used_ids: set[int] = set()
        self.work(0)
        self.older = contents(self.driver.disk)
        self.work(20)
        if how == "stop":
            self.driver.core.close()
        self.newer = contents(self.driver.disk)
        self.now_ms = self.driver.now_ms

    def work(self, first: int) -> None:
        driver = self.driver
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        producer_id = driver.ask(request, 4).producer_id
        self.used_ids.add(producer_id)
        for number in range(20):
            value = b"value-%06d" % (first + number)
            answer = driver.ask(produce("t", batch(value, producer_id=producer_id, epoch=0, sequence=number)), 9)
            assert answer.partitions[0].error_code == ErrorCode.NONE
            self.acknowledged[answer.partitions[0].base_offset] = value
        for commit in (True, False):
            name = f"id-{first}-{commit}"
            _, *pair = init(driver, name)
            write(driver, name, (pair[0], pair[1]), b"of " + name.encode())
            assert end(driver, name, (pair[0], pair[1]), commit) == ErrorCode.NONE
            self.used_ids.add(pair[0])
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=first)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[offset])]
        driver.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)


def contents(disk: MemoryDisk) -> Contents:
    return {path: disk.read_bytes(path) for path in _paths(disk, "")}


def _paths(disk: MemoryDisk, directory: str) -> list[str]:
    names = [f"{directory}/{name}" if directory else name for name in disk.listdir(directory)]
    return [path for name in names for path in (_paths(disk, name) or [name])]


def disk_of(files: Contents) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in files.items():
        disk.makedirs(path.rpartition("/")[0])
        disk.write_atomic(path, data)
    return disk


def damaged(files: Contents, older: Contents, path: str, damage: str) -> Contents | None:
    data = files[path]
    rng = random.Random(path + damage)
    if damage == "missing":
        return {name: each for name, each in files.items() if name != path}
    if damage == "older":
        return {**files, path: older[path]} if older.get(path, data) != data else None
    if damage == "flipped" and data:
        at = rng.randrange(len(data))
        return {**files, path: data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]}
    if damage == "truncated" and len(data) > 1:
        return {**files, path: data[: rng.randrange(1, len(data))]}
    return {**files, path: b""} if damage == "empty" and data else None


def readable(driver: BrokerDriver) -> tuple[dict[int, bytes], int]:
    """Return the batches that a reader finds, by offset, and the high watermark."""
    found: dict[int, bytes] = {}
    offset, high_watermark = 0, 1
    while offset < high_watermark:
        (partition,) = driver.ask(fetch("t", offset), 12).topics[0].partitions
        high_watermark = partition.high_watermark
        if partition.error_code or not partition.records:
            assert partition.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE)
            offset += 1
            continue
        for header, view in iter_batches(bytes(partition.records)):
            assert header.base_offset not in found
            found[header.base_offset] = bytes(view)
            offset = header.last_offset + 1
    return found, high_watermark


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_no_acknowledged_record_disappears_in_silence(how: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    world = World(how)
    outcomes: Counter[str] = Counter()
    for path in world.newer:
        files = damaged(world.newer, world.older, path, damage)
        if files is None:
            continue
        caplog.clear()
        driver = BrokerDriver.__new__(BrokerDriver)
        try:
            driver.__init__(SETTINGS, disk_of(files))  # type: ignore[misc]
        except UnusableDirectory as error:
            outcomes["refused"] += path.split("/")[0].removesuffix(".copy") in str(error)
            continue
        found, end_offset = readable(driver)
        missing = [offset for offset, value in world.acknowledged.items() if value not in found.get(offset, b"")]
        values = [value for value in world.acknowledged.values() if sum(value in each for each in found.values()) > 1]
        assert values == [], path
        if missing:
            assert "__" not in path and path.startswith("t-0/"), (path, missing)
            assert driver.core.metrics.values["damaged_places"] + driver.core.metrics.values["corrupt_reads"], path
            assert "topic t partition 0" in caplog.text or "cannot read t-0" in caplog.text, path
            outcomes["told"] += 1
        else:
            outcomes["whole"] += 1
        assert end_offset > max(world.acknowledged), path
        answer = driver.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4)
        assert answer.producer_id not in world.used_ids, path
        sent = driver.ask(produce("t", batch(b"new", producer_id=answer.producer_id, epoch=0, sequence=0)), 9)
        assert sent.partitions[0].error_code == ErrorCode.NONE, path
        assert sent.partitions[0].base_offset >= end_offset, path
    assert outcomes["whole"] > 5, outcomes
    assert sum(outcomes.values()) > (5 if damage == "older" else 12), outcomes


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_prepared_transaction_is_never_ended_by_guess(damage: str) -> None:
    """Damage each file: the transaction can still be committed, or the broker refuses and leaves it open."""
    first = BrokerDriver(CONFIG)
    create(first)
    _, *other = init(first, "other")
    write(first, "other", (other[0], other[1]), b"other")
    assert end(first, "other", (other[0], other[1])) == ErrorCode.NONE
    older = contents(first.disk)
    pair = prepare(first, "held")
    outcomes: Counter[str] = Counter()
    newer = contents(first.disk)
    for path in newer:
        files = damaged(newer, older, path, damage)
        if files is None:
            continue
        try:
            driver = BrokerDriver(CONFIG, disk_of(files))
        except UnusableDirectory:
            outcomes["refused"] += 1
            continue
        code = end(driver, "held", pair)
        if code == ErrorCode.NONE:
            there = b"PREPARED" in committed(driver)
            assert there or driver.core.metrics.values["damaged_places"], path
            outcomes["committed"] += 1
            continue
        assert code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR), path
        driver.pass_time(200_000)
        (partition,) = driver.ask(fetch("t", committed=True), 12).topics[0].partitions
        assert not partition.aborted or all(entry.producer_id != pair[0] for entry in partition.aborted), path
        assert partition.last_stable_offset < partition.high_watermark, path
        outcomes["in doubt"] += 1
    assert outcomes["committed"] > (1 if damage == "older" else 5), outcomes
