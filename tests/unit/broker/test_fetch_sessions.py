"""The rules of fetch sessions without a log behind them, and a reader with a session beside one without."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from uuid import UUID

import pytest

from fencepost.broker.fetch_sessions import FetchSessions
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.records.batch import iter_batches
from tests.support.broker_driver import BrokerDriver, batch, produce

EVICTION_MS = 1000


def request(*partitions: int, session_id: int = 0, epoch: int = 0, forgotten: tuple[int, ...] = ()) -> FetchRequest:
    wanted = [FetchPartition(partition, 0, 100) for partition in partitions]
    return FetchRequest(
        max_wait_ms=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("t", None, wanted)] if wanted else [],
        forgotten=[ForgottenTopic("t", None, list(forgotten))] if forgotten else [],
    )


def opened(sessions: FetchSessions, now_ms: int, *partitions: int) -> int:
    """The id of a new session."""
    found = sessions.open(now_ms, request(*partitions), by_topic_id=False)
    results = [(reader, FetchPartitionResult(reader.request.partition)) for reader in found.readers]
    return sessions.create(now_ms, results, by_topic_id=False)


def some(slots: int) -> FetchSessions:
    numbers = count(0)
    return FetchSessions(slots, EVICTION_MS, lambda: next(numbers))


def test_zero_is_no_session_s_id() -> None:
    assert opened(some(1), 0, 0) == 1


def test_without_room_there_is_no_session() -> None:
    sessions = some(2)
    first, second = opened(sessions, 0, 0), opened(sessions, 0, 0)
    assert opened(sessions, EVICTION_MS, 0, 1, 2) == 0
    assert {first, second} == {1, 2}
    assert opened(some(0), 0, 0) == 0


def test_a_session_unused_for_long_makes_room() -> None:
    sessions = some(2)
    first, second = opened(sessions, 0, 0), opened(sessions, 0, 0)
    assert sessions.open(500, request(session_id=first, epoch=1), by_topic_id=False).error_code == 0
    third = opened(sessions, EVICTION_MS + 1, 0)
    assert third and sessions.get(second) is None and sessions.get(first) is not None
    assert sessions.evictions == 1


def test_an_evicted_session_is_counted() -> None:
    driver = BrokerDriver({"max.incremental.fetch.session.cache.slots": 2})
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    counted = driver.core.metrics.values
    assert all(driver.ask(request(0), 12).session_id for _ in range(2))
    assert driver.ask(request(0), 12).session_id == 0
    assert (counted["fetch_sessions"], counted["evicted_fetch_sessions"]) == (2, 0)
    driver.pass_time(120_001)  # min.incremental.fetch.session.eviction.ms and a bit
    assert driver.ask(request(0), 12).session_id
    assert (counted["fetch_sessions"], counted["evicted_fetch_sessions"]) == (3, 1)


def test_an_old_and_smaller_session_makes_room_for_a_larger_one() -> None:
    sessions = some(2)
    small, large = opened(sessions, 0, 0), opened(sessions, 0, 0, 1, 2)
    for session_id in (small, large):
        for epoch, now_ms in enumerate((900, EVICTION_MS + 1), 1):
            found = sessions.open(now_ms, request(session_id=session_id, epoch=epoch), by_topic_id=False)
            assert found.error_code == 0
    assert opened(sessions, EVICTION_MS + 2, 0) == 0
    assert opened(sessions, EVICTION_MS + 2, 0, 1) > 0
    assert sessions.get(small) is None and sessions.get(large) is not None


def test_epochs_go_round_without_zero() -> None:
    sessions = some(1)
    session_id = opened(sessions, 0, 0)
    session = sessions.get(session_id)
    assert session is not None
    session.epoch = 2**31 - 1
    found = sessions.open(0, request(session_id=session_id, epoch=2**31 - 1), by_topic_id=False)
    assert (found.error_code, session.epoch) == (0, 1)


def test_a_fetch_that_was_overtaken_is_outdated() -> None:
    sessions = some(1)
    session_id = opened(sessions, 0, 0)
    waiting = sessions.open(0, request(session_id=session_id, epoch=1), by_topic_id=False)
    assert [waiting.outdated] == [False]
    later = sessions.open(0, request(session_id=session_id, epoch=2), by_topic_id=False)
    assert [waiting.outdated, later.outdated] == [True, False]


@pytest.mark.parametrize("by_topic_id", [False, True])
def test_one_partition_has_one_place(by_topic_id: bool) -> None:
    sessions = some(1)
    topic_id = UUID(int=5) if by_topic_id else None
    name = None if by_topic_id else "t"
    wanted = FetchRequest(session_epoch=0, topics=[FetchTopic(name, topic_id, [FetchPartition(0, 0, 1)])])
    found = sessions.open(0, wanted, by_topic_id=by_topic_id)
    pairs = [(reader, FetchPartitionResult(0)) for reader in found.readers]
    session_id = sessions.create(0, pairs, by_topic_id=by_topic_id)
    again = FetchRequest(
        session_id=session_id, session_epoch=1, topics=[FetchTopic(name, topic_id, [FetchPartition(0, 7, 1)])]
    )
    (reader,) = sessions.open(0, again, by_topic_id=by_topic_id).readers
    assert reader.request.fetch_offset == 7
    forgotten = FetchRequest(session_id=session_id, session_epoch=2, forgotten=[ForgottenTopic(name, topic_id, [0])])
    assert sessions.open(0, forgotten, by_topic_id=by_topic_id).readers == []
    assert sessions.get(session_id) is None


class SessionReader:
    """Reads partitions of `t` through a session, with nothing but what the answers tell."""

    def __init__(self, driver: BrokerDriver, partitions: int) -> None:
        self._driver = driver
        self.session_id, self.epoch = 0, 0
        self.position = dict.fromkeys(range(partitions), 0)
        self.changed = set(self.position)
        self.read: dict[int, list[int]] = {partition: [] for partition in self.position}

    def round(self, max_bytes: int) -> int:
        wanted = [FetchPartition(each, self.position[each], 200) for each in sorted(self.changed)]
        self.changed = set()
        asked = FetchRequest(
            max_wait_ms=0,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic("t", None, wanted)] if wanted else [],
        )
        answer = self._driver.ask(asked, 12)
        if answer.error_code:
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self.session_id, self.epoch, self.changed = 0, 0, set(self.position)
            return 0
        self.session_id = answer.session_id
        self.epoch = self.epoch + 1 if self.session_id else 0
        if not self.session_id:
            self.changed = set(self.position)
        reported = 0
        for result in (each for topic in answer.topics for each in topic.partitions):
            reported += 1
            if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.jump(result.partition)
                continue
            assert result.error_code == 0
            for header, _ in iter_batches(result.records):
                self.read[result.partition].append(header.base_offset)
                self.position[result.partition] = header.last_offset + 1
                self.changed.add(result.partition)
        return reported

    def jump(self, partition: int) -> None:
        found = self._driver.core.topics.partition("t", partition)
        assert found is not None
        self.position[partition] = found.log.log_start_offset
        self.changed.add(partition)


def ends(driver: BrokerDriver, partitions: int) -> Iterator[int]:
    for index in range(partitions):
        partition = driver.core.topics.partition("t", index)
        assert partition is not None
        yield partition.log.high_watermark


@pytest.mark.parametrize("seed", range(20))
def test_who_reads_through_a_session_misses_nothing(seed: int) -> None:
    """Random appends, deletions of old records and evictions; every batch that was not deleted first is read once."""
    random, partitions = Random(seed), 4
    driver = BrokerDriver({"max.incremental.fetch.session.cache.slots": 2})
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    reader = SessionReader(driver, partitions)
    deleted: set[tuple[int, int]] = set()
    for _ in range(150):
        partition = random.randrange(partitions)
        what = random.random()
        if what < 0.4:
            driver.ask(produce("t", batch(), partition=partition), 9)
        elif what < 0.45:
            end = list(ends(driver, partitions))[partition]
            before = random.randint(0, end)
            wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
            topics = [DeleteRecordsTopic(name="t", partitions=[wanted])]
            driver.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
            deleted |= {(partition, offset) for offset in range(before)}
        elif what < 0.5:
            driver.pass_time(130_000)
            for _ in range(2):
                driver.ask(request(0), 12)  # other readers take the places of sessions that are idle
        else:
            reader.round(random.choice([90, 250, 10_000]))
    for _ in range(200):
        if reader.round(10_000) == 0 and not reader.changed and reader.session_id:
            break
    assert list(reader.position.values()) == list(ends(driver, partitions))
    checked = 0
    for partition, end in enumerate(ends(driver, partitions)):
        read = reader.read[partition]
        assert read == sorted(set(read))
        assert {(partition, offset) for offset in range(end)} - {(partition, offset) for offset in read} <= deleted
        checked += len(read)
    assert checked > 10
