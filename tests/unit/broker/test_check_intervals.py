"""Settings of how often the broker looks for what is too old: they count, so that a program need not wait."""

from __future__ import annotations

import logging

import pytest

from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.broker_driver import BrokerDriver, batch, produce


def with_topic(partitions: int = 1, **settings: object) -> BrokerDriver:
    driver = BrokerDriver({name.replace("_", "."): value for name, value in settings.items()})
    topic = CreatableTopic(name="a", num_partitions=partitions, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    return driver


def position(driver: BrokerDriver) -> int:
    wanted = OffsetFetchRequestTopic(name="a", partition_indexes=[0])
    answer = driver.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize(("interval_ms", "after_ms"), [(1_000, 4_000), (600_000, 601_000)])
def test_offsets_that_are_too_old(interval_ms: int, after_ms: int) -> None:
    driver = with_topic(offsets_retention_check_interval_ms=interval_ms)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    commit = OffsetCommitRequest(
        group_id="g", retention_time_ms=2_000, topics=[OffsetCommitRequestTopic(name="a", partitions=[offset])]
    )
    assert driver.ask(commit, 2).topics[0].partitions[0].error_code == 0
    driver.pass_time(1_500)
    assert position(driver) == 7
    driver.pass_time(after_ms - 1_500)
    assert position(driver) == -1


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 1_000])
def test_an_offset_with_the_longest_retention_stays(retention_ms: int) -> None:
    """Its end is no timestamp: now and the retention exceed 64 bits together."""
    driver = with_topic(offsets_retention_check_interval_ms=1_000)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [OffsetCommitRequestTopic(name="a", partitions=[offset])]
    commit = OffsetCommitRequest(group_id="g", retention_time_ms=retention_ms, topics=topics)
    assert driver.ask(commit, 2).topics[0].partitions[0].error_code == 0
    driver.pass_time(100_000)
    assert position(driver) == 7


def known(driver: BrokerDriver) -> list[int]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])])
    return [each.producer_id for each in driver.ask(request, 0).topics[0].partitions[0].active_producers]


@pytest.mark.parametrize(("interval_ms", "gone_after_ms"), [(1_000, 3_000), (3_600_000, 3_600_000)])
def test_producers_that_are_idle(interval_ms: int, gone_after_ms: int) -> None:
    settings = {"producer_id_expiration_check_interval_ms": interval_ms, "producer_id_expiration_ms": 2_000}
    driver = with_topic(**settings)
    me = driver.ask(InitProducerIdRequest(), 4).producer_id
    records = batch(producer_id=me, epoch=0, sequence=0, timestamp_ms=driver.now_ms)
    driver.ask(produce("a", records), 9)
    driver.pass_time(gone_after_ms - 1_001)
    assert known(driver) == [me]
    driver.pass_time(1_001)
    assert known(driver) == []


def test_the_size_of_a_page_of_partitions() -> None:
    driver = with_topic(5, max_request_partition_size_limit=2)
    answer = driver.ask(DescribeTopicPartitionsRequest(response_partition_limit=100), 0)
    assert len(answer.topics[0].partitions) == 2
    assert answer.next_cursor.partition_index == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("group.share.min.session.timeout.ms", "share.session.timeout.ms has no lower bound here but 1"),
        ("group.consumer.min.heartbeat.interval.ms", "consumer.heartbeat.interval.ms has no lower bound here but 1"),
        ("group.streams.min.session.timeout.ms", "streams.session.timeout.ms has no lower bound here but 1"),
        ("group.consumer.max.session.timeout.ms", "consumer.session.timeout.ms has no upper bound here but 2147483647"),
        ("num.io.threads", "makes no difference to this broker"),
    ],
)
def test_a_bound_that_is_not_needed_is_told_as_such(name: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        BrokerConfig({name: 1})
    assert message in caplog.text
