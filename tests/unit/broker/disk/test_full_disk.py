"""A disk without room: clients are told by codes, topics can be deleted, the broker starts and stops, and what was open
goes on when there is room again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fencepost.broker.disk.system_files import SystemFiles
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce


def create(driver: BrokerDriver, name: str) -> int:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    return int(driver.ask(request, 7).topics[0].error_code)


def delete(driver: BrokerDriver, name: str) -> int:
    return int(
        driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
        .responses[0]
        .error_code
    )


def init(driver: BrokerDriver, name: str, timeout_ms: int = 60_000) -> tuple[int, int, int]:
    answer = driver.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def end(driver: BrokerDriver, name: str, pair: tuple[int, int]) -> int:
    request = EndTxnRequest(transactional_id=name, producer_id=pair[0], producer_epoch=pair[1], committed=True)
    return int(driver.ask(request, 3).error_code)


def committed(driver: BrokerDriver) -> bytes:
    return bytes(driver.ask(fetch("t", committed=True), 12).topics[0].partitions[0].records)


@pytest.fixture
def driver() -> BrokerDriver:
    """With an open transaction in topic t, a group that commits, and another topic."""
    driver = BrokerDriver({"group.initial.rebalance.delay.ms": 0})
    assert create(driver, "t") == create(driver, "other") == ErrorCode.NONE
    driver.ask(produce("other", batch(b"x")), 9)
    return driver


def begin(driver: BrokerDriver, name: str, timeout_ms: int = 60_000) -> tuple[int, int]:
    _, *pair = init(driver, name, timeout_ms)
    records = batch(b"OPEN", producer_id=pair[0], epoch=pair[1], sequence=0, transactional=True)
    assert driver.ask(produce("t", records, transactional_id=name), 12).partitions[0].error_code == ErrorCode.NONE
    return pair[0], pair[1]


def commit_offset(driver: BrokerDriver) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    answer = driver.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_full_disk_is_told_by_codes_and_topics_can_be_deleted(driver: BrokerDriver) -> None:
    pair = begin(driver, "open")
    driver.disk.is_full = True
    assert driver.ask(produce("t", batch(b"y")), 9).partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert end(driver, "open", pair) == ErrorCode.NOT_COORDINATOR
    assert init(driver, "new")[0] == ErrorCode.NOT_COORDINATOR
    assert commit_offset(driver) in (ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert delete(driver, "other") == ErrorCode.NONE
    assert not driver.closed
    driver.core.close()
    driver.start()
    assert [topic.name for topic in driver.ask(MetadataRequest(topics=None), 12).topics if topic.name[0] != "_"] == [
        "t"
    ]
    assert end(driver, "open", pair) == ErrorCode.NOT_COORDINATOR
    driver.disk.is_full = False
    assert end(driver, "open", pair) == ErrorCode.NONE
    assert b"OPEN" in committed(driver)


def test_a_full_disk_is_logged_now_and_then_and_so_is_its_end(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    """A producer repeats a refused write several times a second."""
    caplog.set_level("INFO", logger="fencepost.broker.produce")
    driver.disk.is_full = True
    for _ in range(11):
        for _ in range(20):
            driver.ask(produce("t", batch(b"y")), 9)
        driver.pass_time(1_000)
    driver.disk.is_full = False
    for _ in range(2):
        assert driver.ask(produce("t", batch(b"y")), 9).partitions[0].error_code == ErrorCode.NONE
    first, second, end_of_it = (
        record.getMessage() for record in caplog.records if record.name == "fencepost.broker.produce"
    )
    assert first.startswith("t-0 is read-only: ") and first.endswith(" (FP104)")
    assert second == f"{first}; 200 times since the last such message"
    assert end_of_it == "t-0 accepts records again"
    assert caplog.records[-1].levelname == "INFO"
    assert driver.core.metrics.values["storage_errors"] == 220


def fill(driver: BrokerDriver, name: str) -> None:
    """Write so much that a deletion makes room."""
    for _ in range(4):
        driver.ask(produce(name, keyed((b"k", b"x" * (1 << 15)))), 9)


def without_room(driver: BrokerDriver) -> None:
    driver.disk.is_full, driver.disk._reserved = True, False


def user_topics(driver: BrokerDriver) -> list[str]:
    return [topic.name for topic in driver.ask(MetadataRequest(topics=None), 12).topics if topic.name[0] != "_"]


def test_a_refused_deletion_leaves_the_records(driver: BrokerDriver) -> None:
    """The removal of a small topic would make no room to record it."""
    without_room(driver)
    assert delete(driver, "other") == ErrorCode.KAFKA_STORAGE_ERROR
    driver.start()
    assert b"x" in bytes(driver.ask(fetch("other"), 12).topics[0].partitions[0].records)


def test_a_deletion_that_cannot_be_recorded_is_told_as_unknown_and_recorded_later(driver: BrokerDriver) -> None:
    fill(driver, "other")
    without_room(driver)
    assert delete(driver, "other") == ErrorCode.REQUEST_TIMED_OUT
    assert user_topics(driver) == ["t"]
    driver.pass_time(300_000)
    driver.disk.is_full = False
    driver.pass_time(300_000)
    driver.disk.kill()
    driver.start()
    assert user_topics(driver) == ["t"]


def test_without_a_reserve_the_directory_goes_first(driver: BrokerDriver) -> None:
    fill(driver, "other")
    driver.disk.is_full, driver.disk._reserved = True, False
    with pytest.raises(OSError, match="no space"):
        driver.disk.write_atomic("x", b"")
    freed = driver.disk.remove_tree

    def remove(path: str) -> None:
        freed(path)
        driver.disk.is_full = False

    driver.disk.remove_tree = remove  # type: ignore[method-assign]
    assert delete(driver, "other") == ErrorCode.NONE
    driver.start()
    assert [topic.name for topic in driver.ask(MetadataRequest(topics=None), 12).topics] == ["t"]


@pytest.mark.parametrize("how", ["kill", "crash", "stop"])
def test_timeouts_and_starts_wait_for_room(driver: BrokerDriver, how: str) -> None:
    begin(driver, "open", timeout_ms=1000)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, protocol_type="consumer", protocols=[protocol]
    )
    driver.ask(join, 3)
    driver.disk.is_full = True
    driver.pass_time(20_000)
    (partition,) = driver.ask(fetch("t", committed=True), 12).topics[0].partitions
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    if how == "stop":
        driver.core.close()
    driver.disk.crash(3) if how == "crash" else driver.disk.kill()
    driver.start()
    driver.pass_time(20_000)
    driver.disk.is_full = False
    driver.pass_time(20_000)
    (partition,) = driver.ask(fetch("t", committed=True), 12).topics[0].partitions
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)
    assert committed(driver) and partition.aborted


def test_the_reserve_is_given_up_for_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="fencepost.broker.files")
    files = SystemFiles(str(tmp_path))
    files.reserve()
    reserve = tmp_path / "reserve.fencepost"
    assert reserve.stat().st_size >= 1 << 20
    replace, attempts = SystemFiles._replace, []

    def full_at_first(self: SystemFiles, path: str, data: bytes) -> None:
        attempts.append(reserve.exists())
        if reserve.exists():
            raise OSError(errno.ENOSPC, "full")
        replace(self, path, data)

    monkeypatch.setattr(SystemFiles, "_replace", full_at_first)
    files.write_atomic("a", b"1")
    assert attempts == [True, False]
    assert (tmp_path / "a").read_bytes() == b"1"
    for _ in range(2):
        files.reserve()
        assert reserve.exists()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "the disk is full (FP104); the room that was kept for small files is used"),
        ("INFO", "the disk has room again; some of it is kept for small files"),
    ]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    files = SystemFiles(str(tmp_path / "data"))
    files.makedirs("t-0")
    files.open("t-0/log").append(b"x")
    files.write_atomic("small", b"x")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path).rglob("*")}
    assert modes == {"data": 0o700, "t-0": 0o700, "log": 0o600, "small": 0o600}
