"""Small files that are missing, old or damaged: no acknowledged record disappears with them, and none is taken for a
repeat of another."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

CATALOGUE = ("topics.fencepost", "topics.fencepost.copy")
PRODUCER_IDS = ("producer_ids.fencepost", "producer_ids.fencepost.copy")


def create(driver: BrokerDriver, name: str, partitions: int = 1) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return int(driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code)


def delete(driver: BrokerDriver, name: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    return int(driver.ask(request, 6).responses[0].error_code)


def records(driver: BrokerDriver, topic: str = "a", partition: int = 0) -> bytes:
    return bytes(driver.ask(fetch(topic, partition=partition), 12).topics[0].partitions[0].records)


def known(driver: BrokerDriver) -> dict[str, tuple[int, UUID]]:
    answer = driver.ask(MetadataRequest(topics=None), 12)
    return {topic.name: (len(topic.partitions), topic.topic_id) for topic in answer.topics}


@pytest.fixture
def driver() -> BrokerDriver:
    """With one record in topic a, and an unused topic b of three partitions."""
    driver = BrokerDriver()
    create(driver, "a")
    create(driver, "b", 3)
    driver.ask(produce("a", batch(b"kept")), 9)
    return driver


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped"])
def test_one_of_the_two_catalogues_is_enough(driver: BrokerDriver, name: str, damage: str) -> None:
    before, whole = known(driver), driver.disk.read_bytes(name)
    if damage == "flipped":
        driver.disk.flip_bit(name, 40)
    elif damage == "missing":
        driver.disk.remove(name)
    else:
        driver.disk.write_atomic(name, whole[: len(whole) // 2] if damage == "truncated" else b"")
    driver.start()
    assert known(driver) == before
    assert [driver.disk.read_bytes(each) for each in CATALOGUE] == [whole, whole]


def test_a_lost_catalogue_is_made_again_from_the_directories(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    before = known(driver)
    for name in CATALOGUE:
        driver.disk.remove(name)
    with caplog.at_level(logging.ERROR):
        driver.start()
    assert "topic a" in caplog.text
    assert known(driver) == {"a": before["a"]}  # nothing was ever in topic b
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=True)
    driver.ask(request, 12)
    assert b"kept" in records(driver)
    driver.start()
    assert b"kept" in records(driver)


def test_a_catalogue_from_before_the_topic_brings_the_topic_back(driver: BrokerDriver) -> None:
    old = driver.disk.read_bytes(CATALOGUE[0])
    create(driver, "c", 2)
    driver.ask(produce("c", batch(b"later")), 9)
    before = known(driver)
    for name in CATALOGUE:
        driver.disk.write_atomic(name, old)
    driver.start()
    assert known(driver)["c"] == (1, before["c"][1])
    assert create(driver, "c") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert b"later" in records(driver, "c")


def test_an_older_catalogue_beside_a_newer_copy_does_not_count(driver: BrokerDriver) -> None:
    old = driver.disk.read_bytes(CATALOGUE[0])
    create(driver, "c", 2)
    before = known(driver)
    driver.disk.write_atomic(CATALOGUE[0], old)
    driver.start()
    assert known(driver) == before


def test_a_catalogue_from_before_the_topic_was_made_anew(driver: BrokerDriver) -> None:
    old = driver.disk.read_bytes(CATALOGUE[0])
    assert delete(driver, "a") == ErrorCode.NONE
    create(driver, "a")
    driver.ask(produce("a", batch(b"second")), 9)
    before = known(driver)
    for name in CATALOGUE:
        driver.disk.write_atomic(name, old)
    driver.start()
    assert known(driver) == before
    assert b"second" in records(driver)


def test_a_catalogue_from_before_the_topic_grew(driver: BrokerDriver) -> None:
    old = driver.disk.read_bytes(CATALOGUE[0])
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)], timeout_ms=1000)
    driver.ask(grow, 3)
    driver.ask(produce("a", batch(b"third"), partition=2), 9)
    for name in CATALOGUE:
        driver.disk.write_atomic(name, old)
    driver.start()
    assert known(driver)["a"][0] == 3
    assert b"third" in records(driver, partition=2)


def test_directories_that_are_not_the_brokers_stay(driver: BrokerDriver) -> None:
    driver.disk.makedirs("photos-to-delete")
    driver.disk.write_atomic("photos-to-delete/wedding.jpg", b"x")
    driver.disk.makedirs("c-0")
    driver.disk.write_atomic("c-0/00000000000000000000.log", driver.disk.read_bytes("a-0/00000000000000000000.log"))
    driver.start()
    assert driver.disk.exists("photos-to-delete/wedding.jpg")
    assert create(driver, "c") == ErrorCode.KAFKA_STORAGE_ERROR
    assert b"kept" in driver.disk.read_bytes("c-0/00000000000000000000.log")
    assert create(driver, "d") == ErrorCode.NONE


def test_a_directory_of_another_topic_is_not_opened(driver: BrokerDriver) -> None:
    driver.ask(produce("b", batch(b"b0")), 9)
    driver.ask(produce("b", batch(b"b1"), partition=1), 9)
    for name in ("partition.metadata", "00000000000000000000.log"):
        driver.disk.write_atomic(f"b-1/{name}", driver.disk.read_bytes(f"a-0/{name}"))
    driver.start()
    (partition,) = driver.ask(fetch("b", partition=1), 12).topics[0].partitions
    assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert b"b0" in records(driver, "b")


def test_a_flipped_bit_gives_no_directory_to_another_topic(driver: BrokerDriver) -> None:
    """The id of a topic is text, and almost every flipped bit of it makes the text of another id."""
    before, path = known(driver), "a-0/partition.metadata"
    whole = driver.disk.read_bytes(path)
    for position in range(len(whole)):
        driver.core.close()
        driver.disk.write_atomic(path, whole)
        driver.disk.flip_bit(path, position, position % 7)
        driver.start()
        assert known(driver) == before
        assert b"kept" in records(driver)
        assert driver.disk.read_bytes(path) == whole


def test_a_directory_of_an_older_release_is_known_by_its_two_lines(driver: BrokerDriver) -> None:
    before, path = known(driver), "a-0/partition.metadata"
    driver.disk.write_atomic(path, b"\n".join(driver.disk.read_bytes(path).splitlines()[:2]))
    for name in CATALOGUE:
        driver.disk.remove(name)
    driver.start()
    assert known(driver)["a"] == before["a"]


@pytest.mark.parametrize("name", ["log-start-offset", "log-start-offset.copy"])
def test_deleted_records_do_not_come_back_with_a_damaged_log_start(
    driver: BrokerDriver, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver.ask(produce("a", batch(b"second")), 9)
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=[wanted])])
    assert driver.ask(request, 2).topics[0].partitions[0].low_watermark == 1
    whole = driver.disk.read_bytes(f"a-0/{name}")
    for position in range(len(whole) - 1):
        driver.disk.flip_bit(f"a-0/{name}", position)
        driver.start()
        result = driver.ask(fetch("a", 1), 12).topics[0].partitions[0]
        assert (result.log_start_offset, b"second" in bytes(result.records)) == (1, True)
        assert driver.disk.read_bytes(f"a-0/{name}") == whole
    assert "log start offset" in caplog.text


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_lost_producer_ids_are_not_given_out_again(driver: BrokerDriver, transactional_id: str | None) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    first = driver.ask(request, 4).producer_id
    if transactional_id is None:
        driver.ask(produce("a", batch(b"one", producer_id=first, epoch=0, sequence=0)), 9)
    for name in PRODUCER_IDS:
        driver.disk.remove(name)
    driver.start()
    second = driver.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4).producer_id
    assert second > first
    answer = driver.ask(produce("a", batch(b"two", producer_id=second, epoch=0, sequence=0)), 9)
    assert answer.partitions[0].error_code == ErrorCode.NONE
    assert b"two" in records(driver)


def test_older_producer_ids_are_noticed(driver: BrokerDriver) -> None:
    old = driver.disk.read_bytes(PRODUCER_IDS[0])
    for name in PRODUCER_IDS:
        driver.disk.flip_bit(name, 4)
    driver.start()  # damaged, and none was given out: nothing to go by but the logs
    for name in PRODUCER_IDS:
        driver.disk.write_atomic(name, old)
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    first = driver.ask(request, 4).producer_id
    for name in PRODUCER_IDS:
        driver.disk.write_atomic(name, old)
    driver.start()
    second = driver.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4).producer_id
    assert second > first


@pytest.mark.parametrize("lost", [(), PRODUCER_IDS], ids=["written down", "lost"])
def test_ids_that_clients_made_up_are_not_taken_for_given_ones(driver: BrokerDriver, lost: tuple[str, ...]) -> None:
    """Kafka 4.3.1 gives ids out by what its controller has recorded, whatever the logs hold."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    first = driver.ask(request, 4).producer_id
    for invented in (2**62, 2**63 - 1):
        driver.ask(produce("a", batch(producer_id=invented, epoch=0, sequence=0)), 9)
    given = driver.ask(produce("a", batch(producer_id=first, epoch=0, sequence=0)), 9).partitions[0]
    assert given.error_code == ErrorCode.NONE
    for name in lost:
        driver.disk.remove(name)
    driver.start()
    driver.ask(fetch("a"), 12)  # the log is open
    assert first < driver.ask(request, 4).producer_id < 2**30


@pytest.mark.parametrize("damage", ["missing", "flipped", "empty"])
def test_the_identity_is_kept_twice(driver: BrokerDriver, damage: str) -> None:
    cluster_id = driver.core.meta.cluster_id
    if damage == "missing":
        driver.disk.remove("meta.properties")
    elif damage == "empty":
        driver.disk.write_atomic("meta.properties", b"")
    else:
        driver.disk.flip_bit("meta.properties", 8)
    driver.start()
    assert driver.core.meta.cluster_id == cluster_id
    for name in ("meta.properties", "meta.properties.copy"):
        driver.disk.remove(name)
    with pytest.raises(UnusableDirectory, match=r"cluster\.id"):
        driver.start()


@pytest.mark.parametrize(
    ("name", "words"),
    [("thesis.doc", "holds thesis.doc"), ("recovery-point-offset-checkpoint", "Apache Kafka")],
)
def test_a_directory_that_is_not_a_brokers_is_refused(name: str, words: str) -> None:
    disk = MemoryDisk()
    disk.write_atomic(name, b"x")
    with pytest.raises(UnusableDirectory, match=words):
        BrokerDriver(disk=disk)
    assert disk.listdir("") == [name]


@pytest.mark.parametrize("length", [247, 248, 249])
def test_the_longest_names_can_be_deleted_and_made_again(length: int) -> None:
    driver = BrokerDriver()
    name = "x" * length
    assert create(driver, name) == ErrorCode.NONE
    driver.ask(produce(name, batch(b"old")), 9)
    assert delete(driver, name) == ErrorCode.NONE
    assert create(driver, name) == ErrorCode.NONE
    assert records(driver, name) == b""


def test_a_topic_whose_records_cannot_be_removed_is_deleted_all_the_same(
    driver: BrokerDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.ask(produce("b", batch(b"other")), 9)
    driver.disk.fail_next_read()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")], timeout_ms=1000)
    answer = driver.ask(request, 6)
    assert [topic.error_code for topic in answer.responses] == [ErrorCode.NONE] * 2
    assert known(driver) == {}
    assert driver.disk.exists("a-0")
    assert "topic a" in caplog.text
    assert "cannot be removed" in caplog.text
    assert create(driver, "a") == ErrorCode.NONE
    assert records(driver) == b""


def test_records_that_could_not_be_removed_go_at_the_next_start(driver: BrokerDriver) -> None:
    driver.disk.fail_next_read()
    assert delete(driver, "a") == ErrorCode.NONE
    assert driver.disk.exists("a-0")
    driver.start()
    assert not driver.disk.exists("a-0")
    assert create(driver, "a") == ErrorCode.NONE
