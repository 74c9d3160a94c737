"""Work for one partition, group or id that raises what it must not costs that one only, and is told and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.txn import decide_end
from fencepost.broker.coordinator.txn.driver import Transactions
from fencepost.broker.disk import two_copies
from fencepost.broker.disk.changes import Change
from fencepost.broker.log.cleaning.compaction import Compaction
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.share.share_partition import SharePartition
from fencepost.broker.topics import cleaner
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

CONFIG = {"log.cleaner.min.cleanable.ratio": "0.0", "log.retention.check.interval.ms": 1_000}


class Mistake(Exception):
    """A mistake of the broker's own."""


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver(CONFIG)
    driver.failed_work = []
    for name in ("bad", "good"):
        configs = [
            CreatableTopicConfig(name="cleanup.policy", value="compact"),
            CreatableTopicConfig(name="segment.bytes", value="300"),
        ]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
        for number in range(10):
            data = keyed((b"k", b"%d" % number), timestamp=driver.now_ms)
            assert driver.ask(produce(name, data), 9).partitions[0].error_code == ErrorCode.NONE
    return driver


def failing_for(name: str, original: Callable[..., Any], of: Callable[[Any], str]) -> Callable[..., Any]:
    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if of(self) == name:
            raise Mistake(name)
        return original(self, *args, **kwargs)

    return failing


def still_serves(driver: BrokerDriver) -> bool:
    answers = [driver.ask(fetch(name), 12).topics[0].partitions[0].error_code for name in ("bad", "good")]
    return answers == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_partition_whose_compaction_raises_is_uncleanable_and_the_others_are_compacted(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clean = failing_for("bad-0", Compaction._clean, lambda self: str(self._log.directory))
    monkeypatch.setattr(Compaction, "_clean", clean)
    driver.housekeep()
    driver.pass_time(60_000)
    counted = driver.core.metrics.values
    assert (counted["compactions"], counted["compaction_failures"], counted["failed_work"]) == (1, 1, 1)
    assert driver.core.cleaner.uncleanable == 1
    assert "compaction of bad-0 failed" in caplog.text and "not compacted until the next start" in caplog.text
    assert still_serves(driver)
    monkeypatch.undo()
    driver.core.close()
    driver.disk.kill()
    driver.start()
    driver.housekeep()
    driver.pass_time(100)
    assert driver.core.cleaner.uncleanable == 0 and driver.core.metrics.values["compactions"] == 1


def test_retention_that_raises_for_one_partition_is_done_for_the_others_and_again(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def retention(log: PartitionLog, *args: Any) -> int:
        done.append(log.directory)
        if log.directory == "bad-0":
            raise Mistake("no")
        return 0

    monkeypatch.setattr(cleaner, "expirable", retention)
    driver.pass_time(3_500)
    assert done.count("bad-0") == done.count("good-0") == 3
    assert driver.core.metrics.values["failed_work"] == 3
    assert caplog.text.count("retention of bad-0 failed") == 1  # and then once in ten seconds


def test_a_change_that_raises_costs_its_own_object(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention, snapshots and new topics come one after the other in one line of changes."""
    done: list[str] = []

    def retaining(log: PartitionLog, *args: Any) -> Change[int]:
        yield lambda: None
        done.append(log.directory)
        if log.directory == "bad-0":
            raise Mistake("no")
        return 0

    monkeypatch.setattr(cleaner, "expirable", lambda *_: 1)
    monkeypatch.setattr(cleaner, "retaining", retaining)
    driver.pass_time(1_500)
    assert done == ["bad-0", "good-0"]
    assert driver.core.metrics.values["failed_work"] == 1
    assert "retention of bad-0 failed" in caplog.text
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
    assert still_serves(driver)


def test_a_step_that_raises_costs_the_request_that_asked_for_it(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise Mistake("in the thread that writes")

    driver.failed = {}
    monkeypatch.setattr(two_copies, "write_two_copies", mistaken)
    driver.send(CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]), 7)
    assert [repr(error) for error in driver.failed.values()] == ["Mistake('in the thread that writes')"]
    monkeypatch.undo()
    topic = CreatableTopic(name="newer", num_partitions=1, replication_factor=1)
    answer = driver.ask(CreateTopicsRequest(topics=[topic]), 7, connection=2)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert driver.ask(fetch("good"), 12, connection=2).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_idle_producers_are_let_go_in_the_other_partitions_and_again(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    logs = [driver.core.topics.partition(topic, 0).log for topic in ("bad", "good")]  # type: ignore[union-attr]
    directories = {id(log.producers): log.directory for log in logs}

    def expire(self: object, *args: Any) -> None:
        directory = directories.get(id(self), "")
        done.append(directory)
        if directory == "bad-0":
            raise Mistake("no")

    monkeypatch.setattr(type(logs[0].producers), "expire", expire)
    interval_ms = driver.core.config.number("producer.id.expiration.check.interval.ms")
    driver.pass_time(2 * interval_ms + 1)
    assert done.count("bad-0") == done.count("good-0") == 2


def begin(driver: BrokerDriver, name: str, timeout_ms: int = 5_000) -> tuple[int, int]:
    answer = driver.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
    data = keyed(
        (b"t", name.encode()), producer_id=answer.producer_id, epoch=answer.producer_epoch, sequence=0,
        transactional=True, timestamp=driver.now_ms,
    )  # fmt: skip
    assert driver.ask(produce(name, data, transactional_id=name), 12).partitions[0].error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def stable(driver: BrokerDriver, topic: str) -> bool:
    log = driver.core.topics.partition(topic, 0).log  # type: ignore[union-attr]
    return bool(log.last_stable_offset == log.log_end_offset)


def test_a_timeout_that_cannot_be_decided_keeps_no_other_id_open(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = decide_end.time_out

    def time_out(now_ms: int, current: Any, allocate: Any) -> Any:
        if current.transactional_id == "bad":
            raise Mistake("no")
        return original(now_ms, current, allocate)

    monkeypatch.setattr(decide_end, "time_out", time_out)
    for name in ("bad", "good"):
        begin(driver, name)
    driver.pass_time(10_000)
    assert (stable(driver, "bad"), stable(driver, "good")) == (False, True)
    assert "transactional id 'bad'" in caplog.text
    monkeypatch.undo()
    driver.pass_time(2_000)
    assert stable(driver, "bad")


def test_an_id_whose_timeout_cannot_be_applied_is_refused_until_the_next_start(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Transactions._carry_out

    def carry_out(self: Transactions, now_ms: int, result: Any, reply: Any = None) -> None:
        original(self, now_ms, result, reply)
        if any(record.transactional_id == "bad" for record in result.records):
            raise Mistake("no")

    pairs = {name: begin(driver, name) for name in ("bad", "good")}
    monkeypatch.setattr(Transactions, "_carry_out", carry_out)
    driver.pass_time(10_000)
    assert stable(driver, "good")
    monkeypatch.undo()
    request = EndTxnRequest(
        transactional_id="bad", producer_id=pairs["bad"][0], producer_epoch=pairs["bad"][1], committed=True
    )
    assert driver.ask(request, 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    driver.disk.kill()
    driver.start()
    driver.pass_time(2_000)
    assert stable(driver, "bad")


def test_a_marker_that_cannot_be_made_is_tried_again_and_keeps_no_other_back(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = failing_for("bad-0", PartitionLog.append_marker, lambda self: str(self.directory))
    pairs = {name: begin(driver, name, 60_000) for name in ("bad", "good")}
    monkeypatch.setattr(PartitionLog, "append_marker", append)
    for name, pair in pairs.items():
        request = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=True)
        assert driver.ask(request, 4).error_code == ErrorCode.NONE
    assert (stable(driver, "bad"), stable(driver, "good")) == (False, True)
    monkeypatch.undo()
    driver.pass_time(2_000)
    assert stable(driver, "bad")


def test_a_full_disk_is_told_once_and_not_with_each_try_of_each_marker(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    pair = begin(driver, "good", 60_000)
    caplog.clear()
    original = PartitionLog.append_marker
    request = EndTxnRequest(transactional_id="good", producer_id=pair[0], producer_epoch=pair[1], committed=True)
    with pytest.MonkeyPatch.context() as patch:

        def full(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
            self.files.is_full = True  # type: ignore[attr-defined]
            try:
                return original(self, *args, **kwargs)
            finally:
                self.files.is_full = False  # type: ignore[attr-defined]

        patch.setattr(PartitionLog, "append_marker", full)
        assert driver.ask(request, 4).error_code == ErrorCode.NONE
        driver.pass_time(8_000)
    lines = [record for record in caplog.records if "a marker cannot be written to good-0" in record.getMessage()]
    assert len(lines) == 1 and lines[0].exc_info is None and lines[0].levelno == logging.ERROR
    driver.pass_time(2_000)
    assert stable(driver, "good")


def test_what_waits_for_a_sync_is_done_for_the_others(driver: BrokerDriver, caplog: pytest.LogCaptureFixture) -> None:
    def raising(_now_ms: int) -> None:
        raise Mistake("no")

    driver.auto_sync = False
    done: list[int] = []
    asked = driver.send(produce("good", keyed((b"k", b"v"), timestamp=driver.now_ms)), 9)
    driver.core.durability.when_durable(driver.now_ms, raising)
    driver.core.durability.when_durable(driver.now_ms, done.append)
    driver.sync()
    assert driver.answer(asked).partitions[0].error_code == ErrorCode.NONE
    assert done == [driver.now_ms] and "work after a sync" in caplog.text


def test_timed_work_that_raises_keeps_no_other_from_its_time(driver: BrokerDriver) -> None:
    def raising(_now_ms: int) -> None:
        raise Mistake("no")

    done: list[int] = []
    driver.core.timers.at(driver.now_ms + 5, raising)
    driver.core.timers.at(driver.now_ms + 5, done.append)
    driver.pass_time(10)
    assert len(done) == 1 and driver.failed_work is not None
    assert [type(each.error) for each in driver.failed_work] == [Mistake]


def test_a_group_whose_session_cannot_be_ended_keeps_no_other_from_it(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    def on_deadline(self: ClassicGroups, now_ms: int, deadline: Any, out: Any) -> None:
        ended.append(deadline.group_id)
        out.records.append(object())
        if deadline.group_id == "bad":
            raise Mistake("no")
        out.records.clear()

    monkeypatch.setattr(ClassicGroups, "on_deadline", on_deadline)
    for name in ("bad", "good"):
        driver.core.groups.coordinator._deadlines.set(
            Deadline("classic", DeadlineKind.SESSION, name, "m"), driver.now_ms + 1
        )
    driver.pass_time(1_500)
    assert ended.count("good") == 1 and ended.count("bad") == 2  # again in a second
    assert "group 'bad'" in caplog.text and driver.core.metrics.values["failed_work"] == 2


def test_a_lock_of_a_share_group_that_cannot_be_ended_keeps_no_other_locked(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = driver.core.topics.partition("good", 0)
    assert partition is not None
    shares = driver.core.shares
    for name in ("bad", "good"):
        shares.begin(driver.now_ms, name, partition)
    tried: list[object] = []

    def decide_expiry(self: SharePartition, now_ms: int, limits: Any) -> Any:
        tried.append(self)
        if self is bad:
            raise Mistake("no")
        return {}

    keys = list(shares._partitions)
    bad = shares.find(keys[0])
    monkeypatch.setattr(SharePartition, "decide_expiry", decide_expiry)
    for key in keys:
        shares._expiries.set(key, driver.now_ms + 1)
    driver.pass_time(1_500)
    assert tried.count(bad) == 2 and len(tried) == 3 and driver.core.metrics.values["failed_work"] == 2


def test_a_log_whose_opening_raises_is_unavailable_and_no_other_is(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.disk.kill()
    original = PartitionLog.open.__func__  # type: ignore[attr-defined]

    def opening(cls: Any, files: Any, directory: str, *args: Any, **kwargs: Any) -> Any:
        if directory == "bad-0":
            raise Mistake("no")
        return original(cls, files, directory, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "open", classmethod(opening))
    driver.start()
    codes = [driver.ask(fetch(name), 12).topics[0].partitions[0].error_code for name in ("bad", "good")]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert driver.ask(produce("good", batch()), 9).partitions[0].error_code == ErrorCode.INVALID_RECORD
