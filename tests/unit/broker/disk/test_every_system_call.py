"""Each system call of the disk fails once, in every place of a few scenarios. What was acknowledged is there, once;
what was refused does not appear at the next start; every request is answered, and with no error that hides the disk's.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.records.decoding import decode_batches
from fencepost_lab.check.disk import MemoryDisk
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce
from tests.support.failing_system import FailingSystem

CONFIG = {"log.cleaner.backoff.ms": 1000, "transaction.state.log.num.partitions": 1, "log.segment.bytes": 1000}
_PATIENCE_MS = 10_000
Partition = tuple[str, int]


class World:
    """A broker on real files, what it acknowledged, and what must not be."""

    def __init__(self, directory: Path, system: FailingSystem) -> None:
        self.directory = directory
        self.system = system
        self.acknowledged: dict[tuple[Partition, int], bytes] = {}
        self.latest: dict[bytes, bytes] = {}
        self.keys: dict[bytes | None, bytes | None] = {}
        """The last value of each key that was read."""
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.topics: dict[str, bool | None] = {}
        self.problems: list[str] = []
        self.start()

    def start(self) -> None:
        self.files = SystemFiles(str(self.directory), max_open=32)  # kept if the start fails, and closed by kill()
        self.driver = BrokerDriver(CONFIG, cast(MemoryDisk, self.files))  # it only passes it to the core

    def kill(self) -> None:
        """Leave the broker as kill -9 does. The system closes the files of a process that was killed."""
        self.files.close()

    def restart(self) -> None:
        """Start as after kill -9."""
        self.kill()
        self.start()

    def restart_until_it_works(self) -> None:
        """A start may fail with the disk's error. The call that failed does not fail again."""
        try:
            self.restart()
        except (OSError, UnusableDirectory) as error:
            if not isinstance(error, OSError):
                self.problems.append(f"the start says {error}")
            self.restart()

    def ask(self, request: Any, version: int) -> Any:
        """Return the answer, None if the broker ended."""
        driver = self.driver
        try:
            correlation = driver.send(request, version)
            if driver.answer(correlation) is None:
                driver.pass_time(_PATIENCE_MS)
        except OSError:  # a failed sync of an internal topic ends the broker
            self.restart_until_it_works()
            return None
        answer = driver.answer(correlation)
        if answer is None:
            self.problems.append(f"no answer to {request}")
        elif f"error_code={ErrorCode.UNKNOWN_SERVER_ERROR}" in repr(answer):
            self.problems.append(f"{request}: {answer}")
        return answer

    def pass_time(self, duration_ms: int) -> None:
        try:
            self.driver.pass_time(duration_ms)
        except OSError:
            self.restart_until_it_works()

    def produce(self, partition: Partition, value: bytes) -> None:
        answer = self.ask(produce(partition[0], batch(value), partition=partition[1]), 9)
        if answer is not None and answer.partitions[0].error_code == ErrorCode.NONE:
            self.acknowledged[partition, answer.partitions[0].base_offset] = value

    def put(self, key: bytes, value: bytes) -> None:
        answer = self.ask(produce("compacted", keyed((key, value), timestamp=self.driver.now_ms)), 9)
        if answer is not None and answer.partitions[0].error_code == ErrorCode.NONE:
            self.latest[key] = value
        else:
            self.latest.pop(key, None)  # either

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        answer = self.ask(CreateTopicsRequest(topics=[topic]), 7)
        self.topics[name] = None if answer is None else answer.topics[0].error_code == ErrorCode.NONE

    def delete(self, name: str) -> None:
        answer = self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
        if self.topics[name]:
            self.topics[name] = None if answer is None else answer.responses[0].error_code != ErrorCode.NONE

    def transact(self, name: str, value: bytes, *, commit: bool) -> None:
        """Write in a transaction and end it. An outcome that is not answered is not judged."""
        answer = self.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        if answer is None or answer.error_code:
            return
        pair = answer.producer_id, answer.producer_epoch
        for topic in ("t", "u"):
            records = batch(value, producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True)
            answer = self.ask(produce(topic, records, transactional_id=name), 12)
            commit = commit and answer is not None and answer.partitions[0].error_code == ErrorCode.NONE
        end = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=commit)
        answer = self.ask(end, 3)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            (self.committed if commit else self.aborted).add(value)

    def names(self) -> dict[str, int]:
        found = self.ask(MetadataRequest(topics=None), 12).topics
        return {topic.name: len(topic.partitions) for topic in found if topic.name[0] != "_"}

    def read(self, topic_partition: Partition, *, committed: bool) -> list[tuple[int, bytes | None]]:
        """Return offsets and values of a partition, without those of aborted transactions if `committed`."""
        asked = ListOffsetsPartition(partition_index=topic_partition[1], timestamp=-2)
        topics = [ListOffsetsTopic(name=topic_partition[0], partitions=[asked])]
        (earliest,) = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics[0].partitions
        found: list[tuple[int, bytes | None]] = []
        offset, end = earliest.offset, earliest.offset + 1
        while offset < end:
            answer = self.ask(fetch(topic_partition[0], offset, committed=committed, partition=topic_partition[1]), 12)
            (partition,) = answer.topics[0].partitions
            if partition.error_code:
                self.problems.append(f"{topic_partition} at {offset}: error {partition.error_code}")
                return found
            end = partition.last_stable_offset if committed else partition.high_watermark
            if not partition.records:
                return found
            decoded = decode_batches(partition.records, aborted=partition.aborted or ())
            found += [(decoded.offsets[index], decoded.value(index)) for index in range(len(decoded))]
            self.keys.update({decoded.key(index): decoded.value(index) for index in range(len(decoded))})
            offset = decoded.next_offset
        return found

    def view(self) -> dict[str, Any]:
        """Return all that must be the same after a restart."""
        names = self.names()
        partitions = [(name, index) for name in sorted(names) for index in range(names[name]) if name != "compacted"]
        self.read(("compacted", 0), committed=True)  # which compaction may change, but not make unreadable
        records = {
            str(partition): self.read(partition, committed=committed)
            for partition in partitions
            for committed in (False, True)
        }
        return {"topics": names, **records}

    def judge(self) -> None:
        """Note what contradicts the answers."""
        names = self.names()
        for name, is_there in self.topics.items():
            if is_there is not None and is_there != (name in names):
                self.problems.append(f"topic {name}: was to be {is_there}")
        self.read(("compacted", 0), committed=True)
        for key, value in self.latest.items():
            if self.keys.get(key) != value:
                self.problems.append(f"{key!r} is {self.keys.get(key)!r}, not {value!r}")
        for partition in {partition for partition, _ in self.acknowledged if partition[0] in names}:
            found = self.read(partition, committed=True)
            for (at, offset), value in self.acknowledged.items():
                if at == partition and (offset, value) not in found:
                    self.problems.append(f"{value!r} is not at offset {offset} of {partition}")
        for name in {"t", "u"} & set(names):
            values = Counter(value for _, value in self.read((name, 0), committed=True))
            wrong = [value for value in self.committed if values[value] != 1]
            self.problems += [f"{name}: {value!r} is there {values[value]} times" for value in wrong]
            self.problems += [f"{name}: {value!r} was aborted" for value in self.aborted if values[value]]


def topics(world: World) -> None:
    world.create("new", 2)
    world.produce(("new", 1), b"new-1")
    answer = world.ask(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)], timeout_ms=1000), 3
    )
    if answer is not None and answer.results[0].error_code == ErrorCode.NONE:
        world.produce(("t", 1), b"t-1")
    world.delete("u")
    if world.topics["u"] is not False:
        world.produce(("u", 0), b"u-after-the-refusal")
    world.delete("new")


def transactions(world: World) -> None:
    for number in range(6):
        world.produce(("t", 0), b"plain-%d" % number)
    world.transact("a", b"in-a", commit=True)
    world.transact("b", b"in-b", commit=False)
    world.transact("a", b"in-a-again", commit=True)


def compaction(world: World) -> None:
    for number in range(24):
        world.put(b"key-%d" % (number % 3), b"value-%02d" % number)
    world.pass_time(3_000)
    world.put(b"key-0", b"at last")


def starting(world: World) -> None:
    world.put(b"key-0", b"before the start")
    world.restart_until_it_works()
    world.put(b"key-1", b"behind it")


REFUSALS = ("open", "replace", "remove")
"""Calls that fail with an error which says that nothing has changed."""


def prepare(world: World) -> None:
    world.create("t")
    world.create("u")
    world.create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for number in range(12):
        world.produce(("t", 0), b"before-%02d" % number)
    world.produce(("u", 0), b"before")
    world.transact("old", b"of-old", commit=True)
    for number in range(24):
        world.put(b"key-%d" % (number % 3), b"early-%02d" % number)


def run(scenario: Callable[[World], None], directory: Path, system: FailingSystem) -> World:
    """Prepare, let the scenario meet the failing call, and judge before and after two more starts."""
    world = World(directory, system)
    prepare(world)
    world.driver.pass_time(1_000)
    system.on = True
    scenario(world)
    system.on = False
    world.pass_time(70_000)  # the timeout of a transaction whose end was refused
    seen = None
    for _ in range(3):
        is_settled = not world.driver.core.durability.failures  # a log whose sync failed waits for the next start
        if is_settled:
            world.judge()
        now = world.view()
        if seen is not None and seen != now:
            world.problems.append(f"{seen} became {now}")
        seen = now if is_settled else None
        world.restart()
    return world


def test_a_refusal_that_changed_nothing_makes_no_partition_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No free descriptor, a read-only file system, no right to remove: compaction goes on later, without a start."""
    caplog.set_level(logging.CRITICAL)
    found: list[str] = []
    missed = 0
    numbers = [-1]
    while numbers:
        fail_at = numbers.pop(0)
        with monkeypatch.context() as patches:
            system = FailingSystem(patches, tmp_path, fail_at)
            world = World(tmp_path / "data", system)
            prepare(world)
            world.driver.pass_time(1_000)
            system.on = True
            compaction(world)
            system.on = False
            if fail_at < 0:
                numbers = [number for number, kind in enumerate(system.kinds) if kind in REFUSALS]
            elif not world.driver.core.metrics.values["failed_syncs"]:  # which the server repeats, not this driver
                missed += 1
                world.pass_time(70_000)
                world.put(b"key-0", b"after it")
                if world.driver.core.durability.failures or world.latest.get(b"key-0") != b"after it":
                    found.append(system.failed)
                world.judge()
                world.restart()
                world.judge()
                found += [f"{system.failed}: {problem}" for problem in world.problems]
        world.kill()
        shutil.rmtree(tmp_path / "data")
    assert missed > 10
    assert found == []


@pytest.mark.parametrize("scenario", [topics, transactions, compaction, starting])
def test_what_was_answered_holds(
    scenario: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    found: list[str] = []
    calls, fail_at = 1, -1
    while fail_at < calls:
        with monkeypatch.context() as patches:
            system = FailingSystem(patches, tmp_path, fail_at)
            world = run(scenario, tmp_path / "data", system)
        world.kill()
        calls = calls if fail_at >= 0 else system.calls
        found += [f"{system.failed}: {problem}" for problem in world.problems]
        shutil.rmtree(tmp_path / "data")
        fail_at += 1
    assert calls > 100
    assert found == []
