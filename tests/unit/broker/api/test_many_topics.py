"""Requests that name thousands of topics: one write of the catalogue for each request, or for each 200 settings."""

from __future__ import annotations

from typing import Any

from fencepost.broker.disk.changes import Change
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker_driver import BrokerDriver

NAMES = [f"orders.of_{number}" for number in range(2000)]


class Writes:
    """Counts the writes of the catalogue."""

    def __init__(self, topics: TopicCatalogue) -> None:
        self.count = 0
        inner = topics._file.save

        def save(payload: dict[str, Any]) -> Change[None]:
            self.count += 1
            return inner(payload)

        topics._file.save = save  # type: ignore[method-assign,assignment]


def test_each_request_writes_the_catalogue_once_or_now_and_then() -> None:
    driver = BrokerDriver()
    writes = Writes(driver.core.topics)
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    created = driver.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 7)
    assert [result.error_code for result in created.topics] == [0] * 2000
    assert len({result.topic_id for result in created.topics}) == 2000
    assert writes.count == 1
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
    resources = [AlterConfigsResource(resource_type=2, resource_name=name, configs=[setting]) for name in NAMES]
    sent = driver.send(IncrementalAlterConfigsRequest(resources=resources), 1)
    driver.pass_time(10)
    assert [result.error_code for result in driver.answer(sent).responses] == [0] * 2000
    assert {topic.config.text("retention.ms") for topic in driver.core.topics} == {"12345"}
    assert writes.count == 11, "one for each 200 of them"
    grown = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in NAMES]
    answer = driver.ask(CreatePartitionsRequest(topics=grown, timeout_ms=1000), 3)
    assert [result.error_code for result in answer.results] == [0] * 2000
    assert writes.count == 12
    assert all(len(topic.partitions) == 3 for topic in driver.core.topics)
    doomed = [DeleteTopicState(name=name) for name in NAMES]
    gone = driver.ask(DeleteTopicsRequest(topics=doomed, timeout_ms=1000), 6)
    assert [result.error_code for result in gone.responses] == [0] * 2000
    assert writes.count == 13
    assert list(driver.core.topics) == []


def test_what_is_asked_for_comes_into_being_with_one_write() -> None:
    driver = BrokerDriver()
    writes = Writes(driver.core.topics)
    asked = [MetadataRequestTopic(name=name) for name in (*NAMES, NAMES[0], "__consumer_offsets")]
    answer = driver.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
    assert [topic.error_code for topic in answer.topics] == [0] * 2001  # each topic once, as Kafka has it
    assert len(answer.topics[-1].partitions) == 50
    assert writes.count == 1


def test_metadata_makes_no_more_than_one_request_may() -> None:
    driver = BrokerDriver({"num.partitions": 6000})
    asked = [MetadataRequestTopic(name=name) for name in "abc"]
    answers = []
    for _ in range(3):
        answer = driver.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
        answers.append([topic.error_code for topic in answer.topics])
    assert answers == [[0, 5, 5], [0, 0, 5], [0, 0, 0]]


def test_names_that_differ_by_dots_only_in_one_request() -> None:
    driver = BrokerDriver()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a.b", "a_b", "c.d")]
    created = driver.ask(CreateTopicsRequest(topics=wanted, timeout_ms=1000), 7)
    assert [(result.name, result.error_code) for result in created.topics] == [("a.b", 0), ("a_b", 17), ("c.d", 0)]
    again = driver.ask(CreateTopicsRequest(topics=[wanted[1]], timeout_ms=1000), 7)
    assert again.topics[0].error_message == "Topic 'a_b' collides with existing topic: a.b"
    driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a.b")], timeout_ms=1000), 6)
    assert driver.ask(CreateTopicsRequest(topics=[wanted[1]], timeout_ms=1000), 7).topics[0].error_code == 0


def test_a_topic_named_by_name_and_by_id_is_deleted_once() -> None:
    driver = BrokerDriver()
    wanted = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    (created,) = driver.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
    both = [DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=created.topic_id)]
    gone = driver.ask(DeleteTopicsRequest(topics=both, timeout_ms=1000), 6)
    assert [result.error_code for result in gone.responses] == [0, 100]
