"""Malicious or faulty requests of clients. The answers are those of Apache Kafka 4.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchPartition, FetchPartitionResult
from fencepost.protocol.messages import alter_client_quotas as quotas
from fencepost.protocol.messages import consumer_group_heartbeat as consumer
from fencepost.protocol.messages import describe_groups as groups
from fencepost.protocol.messages import describe_topic_partitions as pages
from fencepost.protocol.messages import find_coordinator, join_group, list_offsets
from fencepost.protocol.messages import offset_for_leader_epoch as epochs
from fencepost.protocol.messages import share_group_heartbeat as share
from fencepost.protocol.messages import streams_group_heartbeat as streams
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.batches import batch
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient
from tests.support.txn_requests import add_partition


def fetch(
    client: RawClient, *partitions: tuple[str, FetchPartition], version: int = 12, **more: Any
) -> fetch_wire.FetchResponse:
    topics = [fetch_wire.FetchTopic(topic, None, [partition]) for topic, partition in partitions]
    request = fetch_wire.FetchRequest(max_wait_ms=0, topics=topics, **more)
    body = b"".join(fetch_wire.encode_request(request, version))
    return fetch_wire.decode_response(client.exchange(1, version, body), version)


def fetched(client: RawClient, topic: str, partition: FetchPartition, **more: Any) -> FetchPartitionResult:
    ((result,),) = [topic.partitions for topic in fetch(client, (topic, partition), **more).topics]
    return result


def produce(
    client: RawClient, *partitions: tuple[str, int, bytes], acks: int = -1, version: int = 12
) -> list[tuple[int, int, int]]:
    """(error code, base offset, log start offset) of each."""
    wanted = [produce_wire.ProducePartition(topic, None, index, records) for topic, index, records in partitions]
    request = produce_wire.ProduceRequest(None, acks, 30_000, wanted)
    body = b"".join(produce_wire.encode_request(request, version))
    answer = produce_wire.decode_response(client.exchange(0, version, body), version)
    return [
        (partition.error_code, partition.base_offset, partition.log_start_offset) for partition in answer.partitions
    ]


# --- records ---


@pytest.mark.parametrize(
    ("last_epoch", "offset", "code", "diverging"),
    [
        (-1, 3, 1, None),
        (0, 2, 0, None),
        (0, 3, 0, (0, 2)),
        (0, 100, 0, (0, 2)),
        (0, -1, 1, None),
        (1, 0, 1, None),
        (5, 2, 1, None),
        (-2, 0, 0, None),
    ],
)
def test_a_reader_that_names_the_epoch_it_read_last(
    broker: BrokerUnderTest,
    client: RawClient,
    last_epoch: int,
    offset: int,
    code: int,
    diverging: tuple[int, int] | None,
) -> None:
    topic = client.create_topic(broker.name("t"))
    client.produce(topic, [b"a", b"b"])
    found = fetched(client, topic, FetchPartition(0, offset, 1000, last_fetched_epoch=last_epoch))
    assert (found.error_code, found.diverging) == (code, diverging)
    assert found.high_watermark == (-1 if code else 2)


def test_a_partition_that_is_named_twice_counts_once(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, missing = client.create_topic(broker.name("t")), broker.name("missing")
    assert produce(client, (topic, 0, batch(b"a", b"b")), (topic, 0, batch(b"c"))) == [(0, 0, 0)]
    assert produce(client, (missing, 0, batch(b"a")), (missing, 0, batch(b"b"))) == [(3, -1, -1)]
    assert client.fetch(topic).values == [b"c"]
    answer = fetch(client, (topic, FetchPartition(0, 0, 1000)), (topic, FetchPartition(0, 9, 1000)))
    assert [[partition.error_code for partition in part.partitions] for part in answer.topics] == [[1]]


def test_aborted_transactions_of_what_is_not_there(broker: BrokerUnderTest, client: RawClient) -> None:
    """None are listed, which is not the same as null."""
    topic = client.create_topic(broker.name("t"))
    for index, offset, aborted in ((9, 0, []), (0, 9, None)):
        assert fetched(client, topic, FetchPartition(index, offset, 1000)).aborted == aborted


@pytest.mark.parametrize(("leader_epoch", "code"), [(-1, 6), (0, 75), (1, 75)])
def test_nobody_fetches_as_a_replica(broker: BrokerUnderTest, client: RawClient, leader_epoch: int, code: int) -> None:
    topic = client.create_topic(broker.name("t"))
    wanted = FetchPartition(0, 0, 1000, current_leader_epoch=leader_epoch)
    assert fetched(client, topic, wanted, replica_id=5).error_code == code


def test_a_leader_epoch_before_the_first(broker: BrokerUnderTest, client: RawClient) -> None:
    """Fetch takes it for none."""
    topic = client.create_topic(broker.name("t"))
    client.produce(topic, [b"a"])
    assert fetched(client, topic, FetchPartition(0, 0, 1000, current_leader_epoch=-2)).error_code == 0
    offset = list_offsets.ListOffsetsPartition(partition_index=0, current_leader_epoch=-2, timestamp=-1)
    asked = list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[offset])])
    assert client.call(asked, 7).topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    expected = ((-2, 0, 74, -1, -1), (-1, -2, 0, -2, 0), (-1, -1, 0, -1, -1), (-1, 0, 0, 0, 1), (0, 5, 0, -1, -1))
    for current, epoch, *answer in expected:
        partition = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        wanted = epochs.OffsetForLeaderTopic(topic=topic, partitions=[partition])
        found = client.call(epochs.OffsetForLeaderEpochRequest(topics=[wanted]), 4).topics[0].partitions[0]
        assert [found.error_code, found.leader_epoch, found.end_offset] == answer, (current, epoch)


def test_what_is_wrong_first(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    good, torn = batch(b"a"), bytearray(batch(b"a"))
    wrong_crc = bytearray(batch(b"a"))
    wrong_crc[-1] ^= 1
    torn[16] = 3  # a magic that there is not
    assert produce(client, ("missing", 0, good), acks=2) == [(3, -1, -1)]
    assert produce(client, (topic, 9, good), acks=2) == [(3, -1, -1)]
    assert produce(client, (topic, 0, good), acks=2) == [(21, -1, -1)]
    assert produce(client, ("missing", 0, bytes(torn))) == [(2, -1, -1)]
    assert produce(client, (topic, 0, bytes(torn)), ("missing", 0, good)) == [(2, -1, -1)] * 2
    assert produce(client, (topic, 0, bytes(wrong_crc))) == [(2, -1, -1)]
    assert produce(client, (topic, 0, good + good)) == [(87, -1, -1)]
    assert produce(client, (topic, 0, good[:-1])) == [(87, -1, -1)]
    assert client.end_offset(topic) == 0


# --- topics and settings ---


def test_a_page_that_begins_nowhere(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), 2)

    def ask(names: Sequence[str], begin: str, index: int) -> list[tuple[int, str, int]]:
        request = pages.DescribeTopicPartitionsRequest(
            topics=[pages.TopicRequest(name=name) for name in names],
            cursor=pages.Cursor(topic_name=begin, partition_index=index),
        )
        return [(entry.error_code, entry.name, len(entry.partitions)) for entry in client.call(request, 0).topics]

    assert ask([topic], topic, 1) == [(0, topic, 1)]
    assert ask([topic], topic, 9) == [(0, topic, 0)]
    assert ask([topic, topic], topic, -1) == [(42, topic, 0)] * 2
    assert ask([topic], "another", 0) == [(42, topic, 0)]
    assert ask([], topic, -1) == []


def test_a_quota_or_its_owner_named_twice(broker: BrokerUnderTest, client: RawClient) -> None:
    user, op = broker.name("u"), quotas.OpData(key="producer_byte_rate", value=1000.0, remove=False)
    entity = [quotas.EntityData(entity_type="user", entity_name=user)]
    once, twice = quotas.EntryData(entity=entity, ops=[op]), quotas.EntryData(entity=entity, ops=[op, op])
    for entries in ([once, once], [twice]):
        answer = client.call(quotas.AlterClientQuotasRequest(entries=entries, validate_only=True), 1)
        assert [entry.error_code for entry in answer.entries] == [ErrorCode.INVALID_REQUEST]


def test_nobody_has_the_producer_id_that_stands_for_none(broker: BrokerUnderTest, client: RawClient) -> None:
    name, topic = broker.name("txn"), client.create_topic(broker.name("t"))
    me = client.start_producer(name)
    assert add_partition(client, name, me, topic) == 0
    for wanted, found in (([me.producer_id], [name]), ([-1], [])):
        listed = client.call(ListTransactionsRequest(producer_id_filters=wanted), 1).transaction_states
        assert [listing.transactional_id for listing in listed] == found


# --- groups ---


@pytest.mark.parametrize(("version", "message"), [(3, "NONE"), (6, "")])
def test_a_coordinator_comes_with_a_message(client: RawClient, version: int, message: str) -> None:
    request = find_coordinator.FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])
    answer = client.settled(lambda: client.call(request, version)) if version < 4 else client.call(request, version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.error_message) == (0, message)


def test_what_may_be_done_with_no_group(broker: BrokerUnderTest, client: RawClient) -> None:
    client.find_coordinators()
    request = groups.DescribeGroupsRequest(groups=[broker.name("g")], include_authorized_operations=True)
    (found,) = client.call(request, 6).groups
    assert (found.error_code, found.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, -(2**31))


def heartbeat(group_id: str, **more: Any) -> consumer.ConsumerGroupHeartbeatRequest:
    asked = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 5000, "topic_partitions": [], **more}
    return consumer.ConsumerGroupHeartbeatRequest(group_id=group_id, **asked)


def test_a_regular_expression_is_read_when_it_is_used(broker: BrokerUnderTest, client: RawClient) -> None:
    client.find_coordinators()
    group_id = broker.name("g")
    for epoch, code in ((5, 69), (-1, 69), (0, 128)):
        request = heartbeat(group_id, member_epoch=epoch, subscribed_topic_regex="(")
        assert client.call(request, 1).error_code == code


def test_a_group_of_another_kind_names_no_member(broker: BrokerUnderTest, client: RawClient) -> None:
    client.find_coordinators()
    group_id = broker.name("g")
    client.call(heartbeat(group_id, subscribed_topic_names=["t"]), 1)
    request = join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        member_id="m2",
        protocol_type="connect",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answer = client.call(request, 5)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


def test_ids_of_share_group_members_are_short(broker: BrokerUnderTest, client: RawClient) -> None:
    client.find_coordinators()
    for length, code in ((36, 69), (37, 42)):
        request = share.ShareGroupHeartbeatRequest(
            group_id=broker.name("g"), member_id="x" * length, member_epoch=-1, subscribed_topic_names=None
        )
        assert client.call(request, 1).error_code == code


@pytest.mark.parametrize("field", ["group_id", "member_id", "rack_id"])
@pytest.mark.parametrize(
    ("text", "blank"), [("", True), (" ", True), ("\0", True), ("\t\x1f\n", True), ("\u00a0", False), ("\u2003", False)]
)
def test_blank_ids_are_those_that_java_trims(
    broker: BrokerUnderTest, client: RawClient, field: str, text: str, blank: bool
) -> None:
    """Characters up to the space, and no other. A text that is not blank is looked for, and not found."""
    client.find_coordinators()
    ids: dict[str, Any] = {"group_id": broker.name("g"), "member_id": "m", field: text}
    leaving = consumer.ConsumerGroupHeartbeatRequest(member_epoch=-1, **ids)
    asked = (
        (leaving, 1),
        (share.ShareGroupHeartbeatRequest(member_epoch=-1, **ids), 1),
        (streams.StreamsGroupHeartbeatRequest(member_epoch=-1, **ids), 0),
    )
    codes = [client.call(request, version).error_code for request, version in asked]
    assert codes == [ErrorCode.INVALID_REQUEST if blank else ErrorCode.GROUP_ID_NOT_FOUND] * 3


def test_tasks_of_streams_groups(broker: BrokerUnderTest, client: RawClient) -> None:
    """All kinds or none; asked before it is looked whether there is such a group."""
    client.find_coordinators()
    tasks = [streams.TaskIds(subtopology_id="0", partitions=[0])]
    for active, standby, warmup, code in (
        (None, None, None, 69),
        (tasks, tasks, (), 69),
        (tasks, None, None, 42),
        (tasks, tasks, None, 42),
        ((), (), tasks, 42 if broker.is_before(4, 4) else 69),
    ):
        request = streams.StreamsGroupHeartbeatRequest(
            group_id=broker.name("g"),
            member_id="m",
            member_epoch=2,
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=warmup,
            task_offsets=None,
            task_end_offsets=None,
        )
        assert client.call(request, 0).error_code == code
