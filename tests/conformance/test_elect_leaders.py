"""ElectLeaders on one node: every leader may stay. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
VERSIONS_AND_TYPES = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]


def found(answer: ElectLeadersResponse) -> list[tuple[str, int, int, str | None]]:
    return [
        (topic.topic, partition.partition_id, partition.error_code, partition.error_message)
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    ]


@pytest.mark.parametrize(("version", "election_type"), VERSIONS_AND_TYPES)
def test_no_election_is_needed(broker: BrokerUnderTest, client: RawClient, version: int, election_type: int) -> None:
    topic, absent = client.create_topic(broker.name("t"), 2), broker.name("absent")
    wanted = [TopicPartitions(topic=topic, partitions=[0, 1, 7]), TopicPartitions(topic=absent, partitions=[0])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=30_000)
    answer = client.call(request, version)
    assert answer.error_code == 0
    assert found(answer) == [
        (topic, 0, *NOT_NEEDED),
        (topic, 1, *NOT_NEEDED),
        (topic, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-7"),
        (absent, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {absent}"),
    ]


@pytest.mark.parametrize(("version", "election_type"), VERSIONS_AND_TYPES)
def test_of_all_partitions_only_the_topics_are_named(
    broker: BrokerUnderTest, client: RawClient, version: int, election_type: int
) -> None:
    topic = client.create_topic(broker.name("t"), 2)
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=None, timeout_ms=30_000)
    answer = client.call(request, version)
    assert answer.error_code == 0
    assert topic in [result.topic for result in answer.replica_election_results]
    assert found(answer) == []


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_type_of_election(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic = client.create_topic(broker.name("t"))
    for wanted, code, partitions in (
        ([TopicPartitions(topic=topic, partitions=[0])], 42, [(topic, 0, 42, "Unknown election type 5")]),
        (None, 42, []),
        ([], 0, []),
    ):
        request = ElectLeadersRequest(election_type=5, topic_partitions=wanted, timeout_ms=30_000)
        answer = client.call(request, version)
        assert (answer.error_code, found(answer)) == (code, partitions)
