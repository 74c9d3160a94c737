"""Questions of tools to any cluster, answered by one node: reassignments, the quorum, resources with settings, tokens.

Expected answers: Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import fencepost
from fencepost.errors import KafkaError
from fencepost.protocol.messages import create_delegation_token as created
from fencepost.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from fencepost.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from fencepost.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from fencepost.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from fencepost.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.list_config_resources import ListConfigResourcesRequest
from fencepost.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from fencepost.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from fencepost.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient
from tests.support.waiting import until

NOT_HERE = "This server does not host this topic-partition."
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.mark.parametrize("version", [1, 2])
def test_in_which_directory_a_partition_can_be(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, absent, long = client.create_topic(broker.name("t"), 2), broker.name("absent"), "x" * 214
    (own,) = client.call(DescribeLogDirsRequest(topics=None), 4).results
    asked = {own.log_dir: {topic: [0, 7], absent: [0], long: [0]}, "/elsewhere": {topic: [1], absent: [1], "": [0]}}
    dirs = [
        AlterReplicaLogDir(
            path=path,
            topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        for path, topics in asked.items()
    ]
    results = client.call(AlterReplicaLogDirsRequest(dirs=dirs), version).results
    answered = {
        (each.topic_name, part.partition_index): part.error_code for each in results for part in each.partitions
    }
    assert answered == {
        (topic, 0): 0,
        (topic, 1): 57,
        (topic, 7): 3,
        (absent, 0): 3,
        (absent, 1): 57,
        (long, 0): 17,
        ("", 0): 57,
    }
    assert len(results) == len({each.topic_name for each in results}), "one entry for each topic"


def test_the_last_directory_asked_for_counts(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), 1)
    (own,) = client.call(DescribeLogDirsRequest(topics=None), 4).results
    wanted = [AlterReplicaLogDirTopic(name=topic, partitions=[0, 0])]
    for paths, code in ((("/elsewhere", own.log_dir), 0), ((own.log_dir, "/elsewhere"), 57)):
        dirs = [AlterReplicaLogDir(path=path, topics=wanted) for path in paths]
        (result,) = client.call(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
        assert [(part.partition_index, part.error_code) for part in result.partitions] == [(0, code)]


def assignment(message: str) -> tuple[int, str]:
    return 39, f"The manual partition assignment includes {message}"


@pytest.mark.parametrize("version", [0, 1])
def test_where_a_partition_can_be(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, absent = client.create_topic(broker.name("t"), 2), broker.name("absent")
    no_partition = (3, f"Unable to find partition {topic}:7.")
    no_topic = (3, f"Unable to find a topic named {absent}.")
    asked: list[tuple[str, int, Sequence[int] | None, tuple[int, str | None]]] = [
        (topic, 0, [1], (0, None)),
        (topic, 1, None, (85, None)),
        (topic, 0, [2], assignment("broker 2, but no such broker is registered.")),
        (topic, 0, [1, -1], assignment("broker -1, but no such broker is registered.")),
        (topic, 1, [1, 1], assignment("the broker 1 more than once.")),
        (topic, 1, [], assignment("an empty replica list.")),
        (topic, 7, [1], no_partition),
        (topic, 7, None, no_partition),
        (absent, 0, [1], no_topic),
        (absent, 0, None, no_topic),
    ]
    topics = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        for name, index, replicas, _ in asked
    ]
    answer = client.call(AlterPartitionReassignmentsRequest(topics=topics), version)
    assert answer.error_code == 0
    found = [
        (topic.name, (partition.error_code, partition.error_message))
        for topic in answer.responses
        for partition in topic.partitions
    ]
    assert found == [(name, expected) for name, _, _, expected in asked]


def test_nothing_is_on_its_way(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9]) for name in (topic, "absent")]
    for topics in (None, named):
        answer = client.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])


def quorum(client: RawClient, version: int, *topics: tuple[str, list[int]]) -> DescribeQuorumResponse:
    asked = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in indexes])
        for name, indexes in topics
    ]
    answer: DescribeQuorumResponse = client.call(DescribeQuorumRequest(topics=asked), version)
    assert answer.error_code == 0
    return answer


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_node_is_the_quorum(client: RawClient, version: int) -> None:
    answer = quorum(client, version, ("__cluster_metadata", [0]))
    ((topic,), (partition,)) = (answer.topics, answer.topics[0].partitions)
    assert (topic.topic_name, partition.partition_index, partition.error_code) == ("__cluster_metadata", 0, 0)
    (voter,) = partition.current_voters
    assert (partition.leader_id, voter.replica_id, partition.observers) == (1, 1, [])
    assert voter.log_end_offset == partition.high_watermark
    assert (voter.last_caught_up_timestamp > 0) == (version > 0)
    assert [node.node_id for node in answer.nodes] == ([1] if version == 2 else [])
    assert all(listener.port & 0xFFFF > 0 for node in answer.nodes for listener in node.listeners)


@pytest.mark.parametrize(
    "topics",
    [
        [("other", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [])],
        [("__cluster_metadata", []), ("__cluster_metadata", [0])],
        [("__cluster_metadata", [0]), ("other", [0])],
        [],
    ],
)
def test_of_nothing_else_there_is_a_quorum(client: RawClient, topics: list[tuple[str, list[int]]]) -> None:
    answer = quorum(client, 2, *topics)
    assert answer.nodes == []
    assert [
        (
            topic.topic_name,
            [
                (partition.partition_index, partition.error_code, partition.error_message)
                for partition in topic.partitions
            ],
        )
        for topic in answer.topics
    ] == [(name, [(index, 3, NOT_HERE) for index in indexes]) for name, indexes in topics]


def test_what_has_settings(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group, plain = client.create_topic(broker.name("t")), broker.name("g"), broker.name("plain")
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    wanted = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    assert client.call(IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses[0].error_code == 0

    def listed(*kinds: int, version: int = 1) -> tuple[int, set[tuple[int, str]]]:
        answer = client.call(ListConfigResourcesRequest(resource_types=kinds), version)
        return answer.error_code, {
            (resource.resource_type, resource.resource_name) for resource in answer.config_resources
        }

    # Apache Kafka's controller answers a change before the broker has it.
    until(lambda: (GROUP, group) in listed()[1])
    code, everything = listed()
    assert code == 0
    assert everything >= {(TOPIC, topic), (TOPIC, "__consumer_offsets"), (BROKER, "1"), (GROUP, group)}
    assert (GROUP, plain) not in everything
    assert {kind for kind, _ in everything} == {TOPIC, BROKER, GROUP, LOGGER}
    by_kind = {kind: listed(kind, kind) for kind in (TOPIC, BROKER, GROUP)}
    lasting = everything & listed()[1]  # topics and groups of others come and go
    for kind, (code, found) in by_kind.items():
        assert (code, {each for each, _ in found}) == (0, {kind})
        assert found >= {resource for resource in lasting if resource[0] == kind}
    assert listed(BROKER, CLIENT_METRICS) == (0, {(BROKER, "1")})
    assert listed(TOPIC, 99) == listed(0) == (35, set())
    assert listed(version=0) == (0, set())


def test_a_broker_that_is_not_there(client: RawClient) -> None:
    for broker_id in (2, -1):
        answer = client.call(UnregisterBrokerRequest(broker_id=broker_id), 0)
        expected = (102, f"Broker ID {broker_id} is not currently registered")
        assert (answer.error_code, answer.error_message) == expected


@pytest.mark.parametrize("broker", ["fencepost"], indirect=True)  # Kafka would forget its only broker
def test_the_only_broker_stays(client: RawClient) -> None:
    assert client.call(UnregisterBrokerRequest(broker_id=1), 0).error_code == 42


def test_nobody_asks_for_a_token(client: RawClient) -> None:
    """Nobody has said who he is."""
    for version in (1, 2, 3):
        answer = client.call(created.CreateDelegationTokenRequest(), version)
        reported = (answer.error_code, answer.principal_type, answer.principal_name)
        assert reported == (64, "User", "ANONYMOUS")
        requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
        assert requester == (("User", "ANONYMOUS") if version == 3 else ("", ""))
        assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
    for_another = created.CreateDelegationTokenRequest(owner_principal_type="Group", owner_principal_name="ops")
    answer = client.call(for_another, 3)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (64, "Group", "ops")
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", "ANONYMOUS")
    assert client.call(RenewDelegationTokenRequest(hmac=b"x"), 2).error_code == 64
    assert client.call(ExpireDelegationTokenRequest(hmac=b"x"), 2).error_code == 64
    for owners in (None, ()):
        assert client.call(DescribeDelegationTokenRequest(owners=owners), 3).error_code == 64


def test_the_admin_s_calls(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), 2)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        quorum = admin.describe_metadata_quorum()
        (voter,) = quorum.voters
        assert (quorum.leader_id, voter.replica_id, quorum.observers) == (1, 1, ())
        assert voter.log_end_offset == quorum.high_watermark
        assert voter.last_fetch_ms == voter.last_caught_up_ms > 0
        admin.alter_partition_reassignments({(topic, 0): [1], (topic, 1): (1,)})
        for partition, replicas, code in (((topic, 0), [2], 39), ((topic, 1), None, 85), ((topic, 7), [1], 3)):
            with pytest.raises(KafkaError) as raised:
                admin.alter_partition_reassignments({partition: replicas}, api_timeout_ms=5_000)
            assert raised.value.code == code
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments([(topic, 0), (topic, 1)]) == {}
