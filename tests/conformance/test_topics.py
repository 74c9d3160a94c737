"""Topics: created, grown, deleted, listed, emptied. Expected answers: Apache Kafka 4.4."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import alter_partition_reassignments as ar
from fencepost.protocol.messages import create_partitions as cp
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_records as dr
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages import describe_cluster as dc
from fencepost.protocol.messages import describe_log_dirs as ld
from fencepost.protocol.messages import describe_topic_partitions as tp
from fencepost.protocol.messages import elect_leaders as el
from fencepost.protocol.messages import list_offsets as lo
from fencepost.protocol.messages import metadata as md
from fencepost.protocol.records.encoding import encode_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

ILLEGAL = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
NO_BROKER = "The manual partition assignment includes broker 2, but no such broker is registered."


def create(client: RawClient, name: str, *, version: int = 7, validate: bool = False, **fields: Any) -> Any:
    topic = ct.CreatableTopic(name=name, **{"num_partitions": 1, "replication_factor": 1, **fields})
    request = ct.CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate)
    (answer,) = client.call(request, version).topics
    return answer


def assigned(*replicas: tuple[int, list[int]]) -> dict[str, Any]:
    assignments = [ct.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in replicas]
    return {"assignments": assignments, "num_partitions": -1, "replication_factor": -1}


def configured(**configs: str | None) -> dict[str, Any]:
    return {"configs": [ct.CreatableTopicConfig(name=key.replace("_", "."), value=configs[key]) for key in configs]}


def metadata(client: RawClient, *, version: int = 12, **topic: Any) -> Any:
    request = md.MetadataRequest(topics=[md.MetadataRequestTopic(**topic)], allow_auto_topic_creation=False)
    (answer,) = client.call(request, version).topics
    return answer


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"num_partitions": 0}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"num_partitions": -2}, 37, "Number of partitions was set to an invalid non-positive value."),
        ({"replication_factor": 0}, 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            {"replication_factor": 2},
            38,
            "The target replication factor of 2 cannot be reached because only 1 broker(s)",
        ),
        (configured(nope="1"), 40, "Unknown topic config name: nope"),
        (configured(retention_ms="x"), 40, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (configured(retention_ms=None), 40, "Null value not supported for topic configs: retention.ms"),
        (
            {**assigned((0, [1])), "num_partitions": 2, "replication_factor": 1},
            42,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (assigned((1, [1])), 39, "partitions should be a consecutive 0-based integer sequence"),
        (assigned((0, [2])), 39, NO_BROKER),
        (assigned((0, [1, 1])), 39, "The manual partition assignment includes the broker 1 more than once."),
        (assigned((0, [])), 39, "The manual partition assignment includes an empty replica list."),
    ],
)
def test_a_topic_that_cannot_be(
    broker: BrokerUnderTest, client: RawClient, fields: dict[str, Any], code: int, message: str
) -> None:
    name = broker.name("t")
    for validate in (True, False):
        answer = create(client, name, validate=validate, **fields)
        assert answer.error_code == code, answer
        assert message in answer.error_message
        assert (answer.num_partitions, answer.replication_factor, answer.topic_id) == (-1, -1, None)
    assert metadata(client, name=name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("bad name", f"'bad name' {ILLEGAL}"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_a_name_that_is_none(broker: BrokerUnderTest, client: RawClient, name: str, why: str) -> None:
    answer = create(client, name)
    assert (answer.error_code, answer.error_message) == (17, f"Topic name is invalid: {why}")


def test_a_topic_is_there_once(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("t").replace("-", ".")
    result = create(client, name, num_partitions=3, **configured(retention_ms="5"))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
    assert {each.name: each.config_source for each in result.configs}["retention.ms"] == 1
    assert len(result.configs) == (33 if broker.is_before(4, 4) else 37)
    again = create(client, name)
    assert (again.error_code, again.error_message) == (36, f"Topic '{name}' already exists.")
    flat = name.replace(".", "_")
    collided = create(client, flat)
    assert (collided.error_code, collided.error_message) == (17, f"Topic '{flat}' collides with existing topic: {name}")
    assert create(client, "__consumer_offsets").error_code == 36
    twice = ct.CreatableTopic(name=broker.name("twice"), num_partitions=1, replication_factor=1)
    fine = ct.CreatableTopic(name=broker.name("fine"), num_partitions=-1, replication_factor=-1)
    answers = client.call(ct.CreateTopicsRequest(topics=[twice, twice, fine], timeout_ms=30_000), 7).topics
    assert {(each.name, each.error_code, each.error_message) for each in answers} == {
        (twice.name, 42, "Duplicate topic name."),
        (fine.name, 0, None),
    }
    assert len(answers) == 2
    given = create(client, broker.name("given"), **assigned((0, [1]), (1, [1])))
    assert (given.error_code, given.num_partitions) == (0, 2)


def grow(
    client: RawClient, name: str, count: int, assignments: Sequence[list[int]] | None = None, **options: Any
) -> Any:
    new_assignments = (
        None if assignments is None else [cp.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    topic = cp.CreatePartitionsTopic(name=name, count=count, assignments=new_assignments)
    request = cp.CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, **options)
    (answer,) = client.call(request, 3).results
    return answer.error_code, answer.error_message


def test_a_topic_grows_and_never_shrinks(broker: BrokerUnderTest, client: RawClient) -> None:
    name = client.create_topic(broker.name("t"), 3)
    assert grow(client, name, 4, validate_only=True) == (0, None)
    assert grow(client, name, 5) == (0, None)
    assert grow(client, name, 5) == (37, "Topic already has 5 partition(s).")
    for count in (4, 0, -1):
        message = f"The topic {name} currently has 5 partition(s); {count} would not be an increase."
        assert grow(client, name, count) == (37, message)
    assert grow(client, broker.name("missing"), 4)[0] == 3
    message = "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."
    assert grow(client, name, 6, [[1], [1]]) == (39, message)
    assert grow(client, name, 6, [[2]]) == (39, NO_BROKER)
    assert grow(client, name, 6, [[1]]) == (0, None)
    client.settled(lambda: client._offsets(name, 5, -1, False), frozenset({3, 5, 6}))
    assert client.produce(name, [b"x"], partition=5).error_code == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_is_refused_whole_and_changes_nothing(
    broker: BrokerUnderTest, client: RawClient, timeout_ms: int
) -> None:
    """Also what would be refused for another reason, and what is only validated."""
    old, new, absent = client.create_topic(broker.name("t"), 2), broker.name("new"), broker.name("absent")
    for version, validate_only in ((2, False), (7, False), (7, True)):
        topics = [ct.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (new, "")]
        creation = ct.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
        created = client.call(creation, version).topics
        assert [(each.name, each.error_code, each.num_partitions) for each in created] == [(new, 7, -1), ("", 7, -1)]
    partitions = [cp.CreatePartitionsTopic(name=name, count=4, assignments=None) for name in (old, absent)]
    growth = cp.CreatePartitionsRequest(topics=partitions, timeout_ms=timeout_ms)
    assert [(each.name, each.error_code) for each in client.call(growth, 3).results] == [(old, 7), (absent, 7)]
    doomed = [dt.DeleteTopicState(name=name) for name in (old, absent, None)]
    deletion = dt.DeleteTopicsRequest(topics=doomed, timeout_ms=timeout_ms)
    assert [each.error_code for each in client.call(deletion, 6).responses] == [7, 7, 7]
    moved = [ar.ReassignableTopic(name=old, partitions=[ar.ReassignablePartition(partition_index=0, replicas=[1])])]
    moving = client.call(ar.AlterPartitionReassignmentsRequest(topics=moved, timeout_ms=timeout_ms), 1)
    assert (moving.error_code, moving.allow_replication_factor_change) == (7, True)
    assert [(each.name, each.partitions[0].error_code) for each in moving.responses] == [(old, 7)]
    named = [el.TopicPartitions(topic=old, partitions=[0])]
    elected = client.call(el.ElectLeadersRequest(topic_partitions=named, timeout_ms=timeout_ms), 2)
    assert elected.error_code == 7
    assert [result.error_code for each in elected.replica_election_results for result in each.partition_result] == [7]
    assert len(metadata(client, name=old).partitions) == 2
    assert metadata(client, name=new).error_code == 3


def delete(client: RawClient, *wanted: tuple[str | None, uuid.UUID | None]) -> Any:
    topics = [dt.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in wanted]
    answers = client.call(dt.DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6).responses
    return [(each.name, each.error_code, each.error_message) for each in answers]


def test_topics_are_deleted_by_name_or_id(broker: BrokerUnderTest, client: RawClient) -> None:
    by_name, by_id = (client.create_topic(broker.name("t")) for _ in range(2))
    topic_id = metadata(client, name=by_id).topic_id
    missing = broker.name("missing")
    assert delete(client, (missing, None)) == [(missing, 3, "This server does not host this topic-partition.")]
    assert delete(client, (None, uuid.uuid4())) == [(None, 100, "This server does not host this topic ID.")]
    assert delete(client, (by_name, None), (by_name, None)) == [(by_name, 42, "Duplicate topic name.")]
    assert delete(client, (by_name, topic_id)) == [(by_name, 42, "You may not specify both topic name and topic id.")]
    assert delete(client, (None, None)) == [(None, 42, "Neither topic name nor id were specified.")]
    done = [(by_name, 0, None), (by_id, 0, None)]
    assert sorted(delete(client, (by_name, None), (None, topic_id))) == sorted(done)

    class Gone:
        def __init__(self) -> None:
            found = [metadata(client, name=name).error_code for name in (by_name, by_id)]
            self.error_code = 0 if found == [3, 3] else ErrorCode.NOT_COORDINATOR

    assert client.settled(Gone).error_code == 0
    assert metadata(client, name=None, topic_id=topic_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_records_are_deleted_from_the_front(broker: BrokerUnderTest, client: RawClient) -> None:
    name = client.create_topic(broker.name("t"))
    assert client.produce(name, [b"0", b"1", b"2"]).error_code == 0

    def cut(topic: str, partition: int, offset: int) -> tuple[int, int]:
        asked = dr.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [dr.DeleteRecordsTopic(name=topic, partitions=[asked])]
        (answer,) = client.call(dr.DeleteRecordsRequest(topics=topics, timeout_ms=30_000), 2).topics[0].partitions
        return answer.error_code, answer.low_watermark

    assert cut(name, 0, 2) == (0, 2)
    assert cut(name, 0, 1) == (0, 2)
    assert cut(name, 0, 4) == (1, -1)
    assert cut(name, 0, -2) == (1, -1)
    assert cut(name, 5, 0) == (3, -1)
    assert cut(broker.name("missing"), 0, 0) == (3, -1)
    assert cut(name, 0, -1) == (0, 3)
    assert client.fetch(name, 2).result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch(name, 3).values == []
    assert cut("__consumer_offsets", 0, 0) == (17, -1)
    compacted = client.create_topic(broker.name("c"), cleanup_policy="compact")
    assert cut(compacted, 0, 0) == (44, -1)
    both = client.create_topic(broker.name("b"), cleanup_policy="compact,delete")
    assert cut(both, 0, 0) == (0, 0)


def test_offsets_by_time_in_every_version(broker: BrokerUnderTest, client: RawClient) -> None:
    name = client.create_topic(broker.name("t"))
    before_ms = int(time.time() * 1000)
    for later_ms in (0, 1, 2):
        batch = encode_batch(keys=[None], values=[b"x"], timestamps=before_ms + later_ms)
        assert client.produce(name, bytes(batch)).error_code == 0

    def listed(timestamp: int, version: int) -> tuple[int, int, bool, int]:
        """(code, offset, whether there is a timestamp, leader epoch)."""
        asked = lo.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(name=name, partitions=[asked])])
        (found,) = client.call(request, version).topics[0].partitions
        return found.error_code, found.offset, found.timestamp >= before_ms, found.leader_epoch

    since = {-3: 7, -4: 8, -5: 9, -6: 11, -7: 99}
    expected = {-1: (3, False), -2: (0, False), -3: (2, True), -4: (0, False), -5: (-1, False), -6: (-1, False)}
    expected |= {before_ms - 1000: (0, True), before_ms + 1: (1, True), 2**60: (-1, False)}
    checked = 0
    for version in range(1, 12):
        for timestamp in (*expected, -7):
            found = listed(timestamp, version)
            checked += 1
            if version < since.get(timestamp, 1):
                assert found == (ErrorCode.UNSUPPORTED_VERSION, -1, False, -1), (timestamp, version)
                continue
            offset, stamped = expected[timestamp]
            epoch = 0 if version >= 4 and offset >= 0 else -1
            assert found == (0, offset, stamped, epoch), (timestamp, version)
    assert checked == 110


def test_a_topic_s_partitions_come_in_pages(broker: BrokerUnderTest, client: RawClient) -> None:
    prefix = broker.name("p")
    names = [client.create_topic(f"{prefix}-{letter}", 3) for letter in "ab"]

    def page(limit: int, cursor: tp.Cursor | None = None) -> Any:
        topics = [tp.TopicRequest(name=name) for name in reversed(names)]
        request = tp.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        answer = client.call(request, 0)
        found = [(topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions]
        return found, answer.next_cursor

    every = [(name, index) for name in names for index in range(3)]
    found, after = page(100)
    assert (found, after) == (every, None)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        found, after = page(2, cursor)
        seen += found
        if after is None:
            break
        cursor = tp.Cursor(topic_name=after.topic_name, partition_index=after.partition_index)
    assert seen == every


def test_the_cluster_and_its_log_directory(broker: BrokerUnderTest, client: RawClient) -> None:
    name = client.create_topic(broker.name("t"), 2)
    assert client.produce(name, [b"x" * 1000]).error_code == 0
    for version in (0, 1, 2):
        cluster = client.call(dc.DescribeClusterRequest(endpoint_type=1), version)
        assert (cluster.error_code, len(cluster.brokers), cluster.brokers[0].broker_id) == (0, 1, 1)
        assert cluster.cluster_id
    controllers = client.call(dc.DescribeClusterRequest(endpoint_type=2), 1)
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    wanted = ld.DescribableLogDirTopic(topic=name, partitions=[0, 1])
    (found,) = client.call(ld.DescribeLogDirsRequest(topics=[wanted]), 4).results
    assert found.error_code == 0
    sizes = {each.partition_index: each.partition_size for topic in found.topics for each in topic.partitions}
    assert sizes[0] > 1000 and sizes[1] == 0


def test_the_broker_s_own_topics_stay_as_they_are(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka lets its own topics grow, and even go."""
    code, _ = grow(client, "__consumer_offsets", 200, validate_only=True)
    assert code == (ErrorCode.INVALID_PARTITIONS if broker.is_ours else 0)
    if broker.is_ours:
        ((_, code, message),) = delete(client, ("__consumer_offsets", None))
        assert (code, message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The broker's own topics cannot be deleted.")
