"""Versions of requests that came with Apache Kafka 4.4: one body for both brokers, and what 4.4 answers."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.describe_cluster import DescribeClusterRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from fencepost.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.records.encoding import encode_batch
from tests.support.apache_kafka import VERSION
from tests.support.brokers import BrokerUnderTest
from tests.support.older_kafka import version
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.skipif(
    version(VERSION) < (4, 4), reason="KAFKA_RELEASE chooses a release before these versions"
)

MEMBER = "mmmmmmmmmmmmmmmmmmmmmm"
NO_TOPIC = UUID(int=5)


@pytest.mark.parametrize(
    ("cluster", "node", "code"),
    [
        (str, 0, 0),
        (str, 1, 129),
        (lambda _: "x", 0, 129),
        (lambda _: "", 0, 129),
        (str, -3, 129),
        (lambda _: None, 1, 42),
        (lambda _: "x", None, 42),
        (str, None, 42),
        (lambda _: None, None, 0),
    ],
)
def test_a_client_that_names_the_node_it_means(
    client: RawClient, cluster: Callable[[str], str | None], node: int | None, code: int
) -> None:
    """KIP-1242. `node`: how far from the true id; None: it names none."""
    described = client.call(DescribeClusterRequest(), 0)
    request = ApiVersionsRequest(
        client_software_name="a",
        client_software_version="1",
        cluster_id=cluster(described.cluster_id),
        node_id=-1 if node is None else described.brokers[0].broker_id + node,
    )
    answer = client.call(request, 5)
    assert (answer.error_code, len(answer.api_keys) > 60) == (code, code == 0)


def commit_by_id(
    broker: BrokerUnderTest,
    client: RawClient,
    group: str,
    topic_id: UUID | None,
    partitions: tuple[int, ...] = (0,),
    *,
    version: int = 6,
    member: str = "",
    epoch: int = -1,
    name: str = "",
) -> list[tuple[UUID | None, list[tuple[int, int]]]]:
    transactional_id = broker.name("x")
    producer = client.start_producer(transactional_id)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=epoch,
        member_id=member,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=4, committed_metadata="")
                    for index in partitions
                ],
            )
        ],
    )
    answer = client.call(request, version)
    assert [topic.name for topic in answer.topics] == [name]
    return [(t.topic_id, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics]


def id_of(client: RawClient, topic: str) -> UUID:
    found = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics[0].topic_id
    assert isinstance(found, UUID)
    return found


def test_offsets_of_a_transaction_by_topic_id(broker: BrokerUnderTest, client: RawClient) -> None:
    """KIP-1319."""
    group, topic_id = broker.name("g"), id_of(client, client.create_topic(broker.name("t")))
    assert commit_by_id(broker, client, group, topic_id) == [(topic_id, [(0, 0)])]
    assert commit_by_id(broker, client, group, topic_id, (0, 1)) == [(topic_id, [(1, 3), (0, 0)])]
    assert commit_by_id(broker, client, group, NO_TOPIC, (0, 1)) == [(NO_TOPIC, [(0, 100), (1, 100)])]
    assert commit_by_id(broker, client, "", topic_id) == [(topic_id, [(0, 24)])]


def test_offsets_of_a_transaction_without_a_group(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    topic_id = id_of(client, topic)
    assert commit_by_id(broker, client, broker.name("g"), topic_id, epoch=3) == [(topic_id, [(0, 69)])]
    old = commit_by_id(broker, client, broker.name("g"), None, epoch=3, version=5, name=topic)
    assert old == [(None, [(0, 22)])]


@pytest.mark.parametrize(("api_version", "code"), [(5, 22), (6, 113)])
def test_offsets_in_another_epoch_of_the_member(
    broker: BrokerUnderTest, client: RawClient, api_version: int, code: int
) -> None:
    group, topic = broker.name("g"), client.create_topic(broker.name("t"))
    joined = client.call(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        ),
        1,
    )
    assert joined.error_code == 0
    asked = (None, topic) if api_version < 6 else (id_of(client, topic), "")
    for member, epoch, expected in (
        (MEMBER, joined.member_epoch - 1, code),
        (MEMBER, joined.member_epoch + 1, code),
        (MEMBER, joined.member_epoch, 0),
        ("another", joined.member_epoch, 25),
    ):
        answer = commit_by_id(
            broker, client, group, asked[0], version=api_version, member=member, epoch=epoch, name=asked[1]
        )
        assert answer == [(asked[0], [(0, expected)])]


def test_deleted_groups_have_room_for_a_message(broker: BrokerUnderTest, client: RawClient) -> None:
    absent = broker.name("g")
    answer = client.call(DeleteGroupsRequest(groups_names=[absent]), 3)
    assert [(each.group_id, each.error_code, each.error_message) for each in answer.results] == [(absent, 69, None)]


def test_streams_members_are_told_a_lag_in_64_bits(broker: BrokerUnderTest, client: RawClient) -> None:
    """KIP-1331, KIP-1357: v0 has the old field, which 4.4 leaves at 0; nobody is asked to describe its topology."""
    group, topic = broker.name("g"), client.create_topic(broker.name("t"))

    def heartbeat(api_version: int, member_epoch: int) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=MEMBER,
            member_epoch=member_epoch,
            rebalance_timeout_ms=10_000,
            topology=Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )
        answer = client.call(request, api_version)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        return answer

    reported = [heartbeat(api_version, 0) for api_version in (0, 1)]
    assert [each.error_code for each in reported] == [0, 0]
    assert [each.acceptable_recovery_lag for each in reported] == [0, 10_000]
    assert [each.task_offset_interval_ms for each in reported] == [60_000, 60_000]
    assert [each.topology_description_required for each in reported] == [False, False]
    assert heartbeat(1, 17).acceptable_recovery_lag == -1
    found = []
    for api_version, asked in ((0, False), (1, False), (1, True)):
        request = StreamsGroupDescribeRequest(group_ids=[group], include_topology_description=asked)
        found += client.call(request, api_version).groups
    assert [each.topology_description for each in found] == [None, None, None]
    assert [each.topology_description_status for each in found] == [0, 0, 1]
    assert [each.assignor_name for each in found] == [None, "sticky", "sticky"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_is_bounded_when_it_is_decompressed(broker: BrokerUnderTest, client: RawClient, codec: str) -> None:
    """Only of batches that are compressed, and by the record, not the batch."""
    topic = client.create_topic(broker.name("t"), 1, **{"max.decompressed.message.bytes": "1000"})

    def code(*sizes: int) -> int:
        values = [b"x" * size for size in sizes]
        batch = encode_batch(values=values, keys=[None] * len(sizes), timestamps=1_700_000_000_000, compression=codec)
        return client.produce(topic, bytes(batch)).error_code

    assert code(993) == 0
    assert code(*[300] * 10) == 0
    assert code(994) == (0 if codec == "none" else 87)
    assert code(1, 2000, 1) == (0 if codec == "none" else 87)
