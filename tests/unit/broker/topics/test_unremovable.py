"""Directories of deleted topics that the disk does not let go: told, counted, tried again, and nothing else stops."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from fencepost import Admin, Broker, Producer
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce


class StubbornDisk(MemoryDisk):
    """Does not remove, or rename, what is below a directory."""

    keeps = ""
    renames = True

    def remove_tree(self, path: str) -> None:
        if self.keeps and self.keeps in path:
            raise OSError(errno.EPERM, "Operation not permitted", path)
        super().remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        if not self.renames and old.startswith("t-"):
            raise OSError(errno.EPERM, "Operation not permitted", old)
        super().rename(old, new)


def create(driver: BrokerDriver, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return int(driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code)


def delete(driver: BrokerDriver, name: str) -> int:
    answer = driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
    return int(answer.responses[0].error_code)


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver({"log.retention.check.interval.ms": 1_000}, StubbornDisk())
    for name in ("t", "other"):
        assert create(driver, name) == ErrorCode.NONE
        assert driver.ask(produce(name, batch(name.encode())), 9).partitions[0].error_code == ErrorCode.NONE
    return driver


@pytest.mark.parametrize("renames", [True, False])
def test_what_cannot_be_removed_ends_no_start_and_is_tried_again(
    driver: BrokerDriver, renames: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = driver.disk
    assert isinstance(disk, StubbornDisk)
    disk.keeps, disk.renames = "-delete", renames
    assert delete(driver, "t") == ErrorCode.NONE
    for _ in range(3):
        assert "cannot be removed" in caplog.text and "Operation not permitted" in caplog.text
        caplog.clear()
        assert driver.core.topics.get("t") is None and driver.core.topics.unremovable == 1
        assert driver.ask(fetch("other"), 12).topics[0].partitions[0].error_code == ErrorCode.NONE
        disk.kill()
        driver.start()
    disk.keeps, disk.renames = "", True
    driver.pass_time(1_500)
    assert driver.core.topics.unremovable == 0
    assert not [name for name in disk.listdir("") if name.startswith("t-") or name.endswith("-delete")]
    assert create(driver, "t") == ErrorCode.NONE
    assert driver.ask(produce("t", batch()), 9).partitions[0].base_offset == 0


def test_a_new_topic_of_the_name_has_none_of_the_records_that_cannot_be_removed(driver: BrokerDriver) -> None:
    assert isinstance(driver.disk, StubbornDisk)
    driver.disk.keeps = "-delete"
    assert delete(driver, "t") == ErrorCode.NONE
    assert create(driver, "t") == ErrorCode.NONE
    assert driver.ask(produce("t", batch(b"new")), 9).partitions[0].base_offset == 0
    driver.disk.kill()
    driver.start()
    (partition,) = driver.ask(fetch("t"), 12).topics[0].partitions
    assert partition.high_watermark == 1 and b"new" in bytes(partition.records)


def test_of_a_directory_that_is_a_link_the_link_is_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A partition that was moved to another disk."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere" / "t-0"
    elsewhere.parent.mkdir()
    with Broker(data_dir=str(data)) as broker, Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result()
        producer.send("other", b"y").result()
    shutil.move(data / "t-0", elsewhere)
    (data / "t-0").symlink_to(elsewhere)
    with Broker(data_dir=str(data)) as broker, Admin(broker.bootstrap_servers) as admin:
        admin.delete_topic("t")
        assert broker.metrics().gauges["unremovable_directories"] == 0
    assert not [path for path in data.iterdir() if path.is_symlink() or path.name.endswith("-delete")]
    assert (elsewhere / f"{0:020d}.log").exists() and str(elsewhere) in caplog.text
    with Broker(data_dir=str(data)) as broker, Admin(broker.bootstrap_servers) as admin:
        assert set(admin.list_topics()) == {"other"}


def begin_to_delete(driver: BrokerDriver) -> int:
    """Ask to delete topic t, and let the time of `remove_deleted` come while the file of topics is being written."""
    driver.auto_write = False
    asked = driver.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    driver.pass_time(1_500)
    assert driver.writes and driver.answer(asked) is None
    return asked


def records_of(driver: BrokerDriver, name: str) -> bytes:
    (partition,) = driver.ask(fetch(name), 12).topics[0].partitions
    return bytes(partition.records)


def test_nothing_is_removed_before_the_deletion_is_on_the_disk(driver: BrokerDriver) -> None:
    begin_to_delete(driver)
    driver.disk.kill()
    driver.start()
    assert b"t" in records_of(driver, "t")


def test_a_deletion_that_cannot_be_written_removes_nothing(driver: BrokerDriver) -> None:
    asked = begin_to_delete(driver)
    driver.core.written(driver.now_ms, driver.writes.pop().token, OSError(errno.EMFILE, "Too many open files"))
    driver.auto_write = True
    driver._perform()
    assert driver.answer(asked).responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert b"t" in records_of(driver, "t")
    driver.pass_time(1_500)
    assert b"t" in records_of(driver, "t")


def test_a_deletion_that_took_long_is_acknowledged(driver: BrokerDriver) -> None:
    asked = begin_to_delete(driver)
    driver.auto_write = True
    driver.write()
    assert driver.answer(asked).responses[0].error_code == ErrorCode.NONE
    assert driver.core.topics.unremovable == 0
    assert not [name for name in driver.disk.listdir("") if name.startswith("t-") or name.endswith("-delete")]
