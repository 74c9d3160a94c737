"""Limits on the number of objects that clients create. Every client reports a refusal to its application at once."""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.broker.disk.changes import carry_out
from fencepost.broker.embedded import Broker
from fencepost.errors import KafkaError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.broker_driver import BrokerDriver

REFUSED = ErrorCode.POLICY_VIOLATION
HOUR_MS = 3_600_000


def commit(driver: BrokerDriver, group: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    (topic,) = driver.ask(OffsetCommitRequest(group_id=group, topics=topics), 8).topics
    return int(topic.partitions[0].error_code)


def commit_in_transaction(driver: BrokerDriver, group: str) -> int:
    given = init(driver, "x")
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    (topic,) = driver.ask(request, 5).topics
    return int(topic.partitions[0].error_code)


def join(driver: BrokerDriver, group: str) -> int:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return int(driver.ask(request, 9).error_code)


def join_consumer(driver: BrokerDriver, group: str) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return int(driver.ask(request, 1).error_code)


def init(driver: BrokerDriver, name: str | None) -> Any:
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
    )
    return driver.ask(request, 4)


def groups_driver() -> BrokerDriver:
    driver = BrokerDriver({"max.groups": 2})
    carry_out(driver.core.topics.create("t", 1, {}))
    return driver


def test_there_are_no_more_groups_than_that(caplog: pytest.LogCaptureFixture) -> None:
    driver = groups_driver()
    assert commit(driver, "a") == 0
    assert join(driver, "b") == ErrorCode.MEMBER_ID_REQUIRED
    with caplog.at_level(logging.WARNING):
        ways = (commit, commit_in_transaction, join, join_consumer)
        assert [way(driver, "c") for way in ways] == [REFUSED] * 4
    (line,) = [record.getMessage() for record in caplog.records if "max.groups" in record.getMessage()]
    assert line == "refused group 'c': there are 2 already (max.groups); 1 since the last such message"
    assert driver.core.metrics.values["refused_groups"] == 4
    assert [commit(driver, "a"), join(driver, "a"), join(driver, "b")] == [0, 79, 79]
    driver.start()
    assert commit(driver, "c") == REFUSED
    gone = driver.ask(DeleteGroupsRequest(groups_names=["a"]), 2)
    assert gone.results[0].error_code == 0
    assert commit(driver, "c") == 0


def test_a_group_of_the_other_kind_takes_the_place_of_an_empty_one() -> None:
    driver = groups_driver()
    assert [commit(driver, "a"), join_consumer(driver, "b")] == [0, 0]
    assert join_consumer(driver, "a") == 0
    assert join_consumer(driver, "c") == REFUSED


def test_there_are_no_more_transactional_ids_than_that() -> None:
    driver = BrokerDriver({"max.transactional.ids": 2, "transactional.id.expiration.ms": HOUR_MS})
    assert [init(driver, name).error_code for name in ("a", "b", "c", "a")] == [0, 0, REFUSED, 0]
    assert init(driver, None).error_code == 0, "who is idempotent only has no id that is remembered"
    driver.start()
    assert [init(driver, name).error_code for name in ("c", "b")] == [REFUSED, 0]
    assert driver.core.metrics.values["refused_transactional_ids"] == 1
    driver.pass_time(2 * HOUR_MS)
    assert init(driver, "c").error_code == 0


def create(driver: BrokerDriver, name: str, partitions: int) -> tuple[int, str | None]:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (result,) = driver.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
    return result.error_code, result.error_message


def test_there_are_no_more_partitions_than_that() -> None:
    driver = BrokerDriver({"max.partitions": 10})
    assert create(driver, "a", 6) == (0, None)
    assert create(driver, "b", 5) == (REFUSED, "There is room for 4 more partitions (max.partitions).")
    assert create(driver, "b", 3) == (0, None)
    grown = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in (("a", 7), ("b", 4))]
    answer = driver.ask(CreatePartitionsRequest(topics=grown, timeout_ms=1000), 3)
    assert [result.error_code for result in answer.results] == [0, REFUSED]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="c")], allow_auto_topic_creation=True)
    (topic,) = driver.ask(asked, 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.core.metrics.values["refused_topics"] == 3
    assert init(driver, "x").error_code == 0, "the broker's own topics come into being all the same"
    driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000), 6)
    carry_out(driver.core.topics.delete_all([driver.core.topics.internal("__transaction_state")]))
    assert create(driver, "c", 7) == (0, None)


def poll_on(consumer: fencepost.Consumer) -> None:
    for _ in range(100):
        consumer.poll(100)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_is_told(protocol: str) -> None:
    with Broker({"max.groups": 1}) as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        first = fencepost.Consumer(broker.bootstrap_servers, group_id="a", group_protocol=protocol)
        second = fencepost.Consumer(broker.bootstrap_servers, group_id="b", group_protocol=protocol)
        with first, second:
            first.subscribe(["t"])
            while not first.assignment():
                first.poll(100)
            second.subscribe(["t"])
            with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
                poll_on(second)
        strange = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "c", "group.protocol": protocol}
        )
        strange.subscribe(["t"])
        reported = None
        for _ in range(300):
            message = strange.poll(0.1)
            if message is not None and message.error() is not None:
                reported = message.error()
                break
        strange.close()
        assert reported is not None and "Policy violation" in reported.str()


def test_a_producer_is_told() -> None:
    with Broker({"max.transactional.ids": 1}) as broker:
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="a") as producer:
            producer.init_transactions()
        with (
            fencepost.Producer(broker.bootstrap_servers, transactional_id="b") as late,
            pytest.raises(KafkaError, match="POLICY_VIOLATION"),
        ):
            late.init_transactions()
        strange = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "c"})
        with pytest.raises(confluent_kafka.KafkaException) as reported:
            strange.init_transactions(1)
        assert "Policy violation" in reported.value.args[0].str()
