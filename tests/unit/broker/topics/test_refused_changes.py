"""A change of the topics that the disk refused at the last moment is as if it had not been asked for, also after a
restart: records that were acknowledged afterwards stay."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce


def create(driver: BrokerDriver, name: str) -> int:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    return int(driver.ask(CreateTopicsRequest(topics=topics), 7).topics[0].error_code)


def delete(driver: BrokerDriver, name: str) -> int:
    return int(
        driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
        .responses[0]
        .error_code
    )


def names(driver: BrokerDriver) -> set[str]:
    return {topic.name for topic in driver.ask(MetadataRequest(topics=None), 12).topics}


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    assert create(driver, "t") == ErrorCode.NONE
    assert driver.ask(produce("t", batch(b"before")), 9).partitions[0].error_code == ErrorCode.NONE
    return driver


def refuse(path: str) -> Any:
    raise OSError(errno.EIO, "Input/output error", path)


def test_a_deletion_that_failed_does_not_happen_at_the_next_start(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(driver.disk, "sync_directory", refuse)
        assert delete(driver, "t") == ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.ask(produce("t", batch(b"after")), 9).partitions[0].error_code == ErrorCode.NONE
    driver.disk.kill()
    driver.start()
    (partition,) = driver.ask(fetch("t"), 12).topics[0].partitions
    records = bytes(partition.records)
    assert b"before" in records and b"after" in records


def test_a_creation_that_failed_does_not_happen_at_the_next_start(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(driver.disk, "sync_directory", refuse)
        assert create(driver, "new") == ErrorCode.KAFKA_STORAGE_ERROR
    driver.disk.kill()
    driver.start()
    assert names(driver) == {"t"}


def test_a_deleted_topic_whose_directory_cannot_be_looked_at_stays_deleted(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = driver.disk.exists

    with monkeypatch.context() as patches:
        patches.setattr(driver.disk, "exists", lambda path: refuse(path) if path == "t-0" else exists(path))
        assert delete(driver, "t") == ErrorCode.NONE
        assert driver.core.topics.unremovable == 1
    driver.disk.kill()
    driver.start()
    assert names(driver) == set()
    assert not driver.disk.exists("t-0")


def test_a_file_that_cannot_be_looked_at_is_not_told_to_be_removed(driver: BrokerDriver) -> None:
    driver.disk.exists = refuse  # type: ignore[method-assign]
    driver.core.deleted_file_monitor.check_next()
    assert driver.ask(produce("t", batch(b"after")), 9).partitions[0].error_code == ErrorCode.NONE


def test_producer_ids_found_in_a_log_are_not_given_out_although_noting_them_failed_once(
    driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = batch(b"made up", producer_id=5_000, epoch=0, sequence=0)
    assert driver.ask(produce("t", records), 9).partitions[0].error_code == ErrorCode.NONE
    driver.disk.kill()
    write = driver.disk.write_atomic
    refused: list[str] = []

    def refuse_once(path: str, data: bytes) -> None:
        if path == "producer_ids.fencepost" and b" 5001 " in data and not refused:
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error", path)
        write(path, data)

    monkeypatch.setattr(driver.disk, "write_atomic", refuse_once)
    driver.start()  # the cleaner opens the log
    assert refused
    (partition,) = driver.ask(fetch("t"), 12).topics[0].partitions
    assert b"made up" in bytes(partition.records)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    assert driver.ask(request, 4).producer_id > 5_000
