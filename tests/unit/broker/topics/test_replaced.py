"""A topic that is created again under the name of a deleted one: producers that outlived it go on, and only where
records were lost do they have to begin at sequence 0."""

from __future__ import annotations

import pytest

from fencepost.broker.topics.replaced import DeletedNames
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest
from tests.support.broker_driver import BrokerDriver, batch, produce

UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID


def create(driver: BrokerDriver, name: str = "a", partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def delete(driver: BrokerDriver, name: str = "a") -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    assert driver.ask(request, 6).responses[0].error_code == 0


def a_producer(driver: BrokerDriver) -> int:
    return int(driver.ask(InitProducerIdRequest(), 4).producer_id)


def send(driver: BrokerDriver, me: int, sequence: int, *, partition: int = 0, version: int = 9) -> tuple[int, int]:
    """Error code and offset."""
    records = batch(producer_id=me, epoch=0, sequence=sequence)
    result = driver.ask(produce("a", records, partition=partition), version).partitions[0]
    return result.error_code, result.base_offset


def lose(driver: BrokerDriver, partition: int = 0) -> None:
    """Take the files of a partition away while the broker is down, as a lost disk does."""
    for name in list(driver.disk.listdir(f"a-{partition}")):
        if name != "partition.metadata":
            driver.disk.remove(f"a-{partition}/{name}")


@pytest.fixture
def driver() -> BrokerDriver:
    return with_old_producer()


def with_old_producer(**config: object) -> BrokerDriver:
    """Producer 0 has written three records to topic a."""
    driver = BrokerDriver(config)
    create(driver)
    assert a_producer(driver) == 0
    assert [send(driver, 0, sequence)[0] for sequence in range(3)] == [0, 0, 0]
    return driver


def stop(driver: BrokerDriver) -> None:
    driver.core.close()


def test_it_goes_on_with_several_batches_in_flight_and_is_deduplicated_again(driver: BrokerDriver) -> None:
    delete(driver)
    assert send(driver, 0, 3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(driver)
    assert [send(driver, 0, sequence) for sequence in (3, 4, 5)] == [(0, 0), (0, 1), (0, 2)]
    assert send(driver, 0, 4) == (0, 1)
    assert send(driver, 0, 7)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert driver.core.metrics.values["unknown_producers"] == 0


@pytest.mark.parametrize("version", [7, 9, 13])
def test_the_first_batch_in_flight_finds_no_topic_and_the_second_the_new_one(
    driver: BrokerDriver, version: int
) -> None:
    """The second is out of order, and is sent again behind the first."""
    topic = driver.core.topics.get("a")
    assert topic is not None

    def send_by_id(sequence: int) -> int:
        records = batch(producer_id=0, epoch=0, sequence=sequence)
        wanted = ProducePartition(None, topic.topic_id, 0, records)
        return int(driver.ask(ProduceRequest(None, -1, 1000, [wanted]), 13).partitions[0].error_code)

    delete(driver)
    if version == 13:
        assert send_by_id(3) == ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert send(driver, 0, 3, version=version)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(driver)
    version = min(version, 12)
    assert [send(driver, 0, sequence, version=version)[0] for sequence in (4, 5)] == [45, 45]
    assert [send(driver, 0, sequence, version=version) for sequence in (3, 4, 5)] == [(0, 0), (0, 1), (0, 2)]


def test_a_producer_that_gives_the_refused_batch_up_begins_in_a_new_epoch(driver: BrokerDriver) -> None:
    delete(driver)
    assert send(driver, 0, 3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(driver)
    records = batch(producer_id=0, epoch=1, sequence=0)
    assert driver.ask(produce("a", records), 9).partitions[0].error_code == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_between_delete_and_create_and_another_before_the_retry(driver: BrokerDriver, clean: bool) -> None:
    delete(driver)
    for step in (create, lambda driver: None):
        if clean:
            stop(driver)
        else:
            driver.crash(1)
        driver.start()
        step(driver)
    assert send(driver, 0, 3) == (0, 0)


def test_a_topic_that_is_created_by_a_metadata_request(driver: BrokerDriver) -> None:
    delete(driver)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=True)
    driver.ask(asked, 9)
    assert send(driver, 0, 3) == (0, 0)


def test_records_that_others_wrote_and_that_were_deleted_again(driver: BrokerDriver) -> None:
    delete(driver)
    create(driver)
    other = a_producer(driver)
    assert [send(driver, other, sequence)[0] for sequence in range(4)] == [0, 0, 0, 0]
    wanted = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=4)])
    assert driver.ask(DeleteRecordsRequest(topics=[wanted]), 2).topics[0].partitions[0].low_watermark == 4
    assert send(driver, 0, 3) == (0, 4)
    assert send(driver, other, 4) == (0, 5)


def test_a_partition_that_was_added_later(driver: BrokerDriver) -> None:
    delete(driver)
    create(driver)
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)], timeout_ms=1000)
    assert driver.ask(grow, 3).results[0].error_code == 0
    assert send(driver, 0, 9, partition=1) == (0, 0)


def test_a_producer_that_is_younger_than_the_topic_begins_at_zero(driver: BrokerDriver) -> None:
    delete(driver)
    create(driver)
    young = a_producer(driver)
    assert send(driver, young, 1)[0] == UNKNOWN
    assert send(driver, young, 0)[0] == 0


def test_deleted_and_created_twice(driver: BrokerDriver) -> None:
    delete(driver)
    create(driver)
    young = a_producer(driver)
    assert send(driver, young, 0) == (0, 0)
    delete(driver)
    create(driver)
    assert send(driver, young, 1) == (0, 0)
    assert send(driver, 0, 3) == (0, 1)


def test_a_topic_of_another_name_is_strict(driver: BrokerDriver) -> None:
    delete(driver)
    create(driver, "b")
    records = batch(producer_id=0, epoch=0, sequence=3)
    assert driver.ask(produce("b", records), 9).partitions[0].error_code == UNKNOWN


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_partition_that_has_lost_records_is_strict_for_good(driver: BrokerDriver, restarts: int) -> None:
    delete(driver)
    create(driver, partitions=2)
    assert [send(driver, 0, sequence)[0] for sequence in (3, 4)] == [0, 0]
    stop(driver)
    lose(driver)
    driver.start()
    if restarts == 2:
        driver.ask(produce("a", batch()), 9)
        wanted = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
        driver.ask(DeleteRecordsRequest(topics=[wanted]), 2)
        stop(driver)
        driver.start()
    assert send(driver, 0, 5)[0] == UNKNOWN
    assert send(driver, 0, 5, partition=1)[0] == 0, "the other partition has lost nothing"


def test_without_fsync_nobody_knows_what_an_unclean_stop_took() -> None:
    driver = with_old_producer(fsync="never")
    silent = a_producer(driver)
    delete(driver)
    create(driver)
    stop(driver)
    driver.start()
    assert send(driver, 0, 3) == (0, 0)
    driver.start()  # killed
    assert send(driver, 0, 4) == (0, 1)
    assert send(driver, silent, 4)[0] == UNKNOWN


def test_a_fresh_data_directory_is_strict(driver: BrokerDriver) -> None:
    fresh = BrokerDriver()
    create(fresh)
    assert send(fresh, 0, 3)[0] == UNKNOWN


def test_the_names_of_few_deleted_topics_are_remembered() -> None:
    names = DeletedNames().changed(added=[f"t{number}" for number in range(2001)])
    assert ("t0" in names, "t1" in names) == (False, True)
    names = names.changed(added=["t1"]).changed(added=["new"])
    assert ("t1" in names, "t2" in names) == (True, False)
    assert "t1" not in names.changed(removed=["t1"])
