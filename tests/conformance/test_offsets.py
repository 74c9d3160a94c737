"""Group offsets, plain and inside transactions (KIP-447). Expected answers: Apache Kafka 4.4 as observed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import topic_id, until
from tests.support.raw_client import Producer, RawClient


def commit(client: RawClient, group: str, topic: str, offset: int, version: int = 8) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
    )
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])

    def ask() -> object:
        return client.call(request, version).topics[0].partitions[0]

    return int(client.settled(ask).error_code)  # type: ignore[attr-defined]


def fetch(client: RawClient, group: str, topic: str, *, stable: bool = False, version: int = 8) -> tuple[int, int]:
    """(error code, offset) of partition 0."""
    if version < 8:
        old = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=group, topics=old, require_stable=stable)
        answer = client.call(request, version).topics[0].partitions[0]
    else:
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
        (found,) = client.call(request, version).groups
        assert found.error_code == 0
        answer = found.topics[0].partitions[0]
    return answer.error_code, answer.committed_offset


def send_offset(
    client: RawClient,
    name: str,
    me: Producer,
    group: str,
    topic: str,
    offset: int,
    *,
    version: int = 5,
    generation: int = -1,
    member: str = "",
) -> int:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        generation_id=generation,
        member_id=member,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )

    def ask() -> object:
        return client.call(request, version).topics[0].partitions[0]

    return int(client.settled(ask).error_code)  # type: ignore[attr-defined]


def test_plain_offsets(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = client.create_topic(broker.name("t")), broker.name("g")
    assert fetch(client, group, topic) == (0, -1)
    assert commit(client, group, topic, 7) == 0
    assert fetch(client, group, topic) == (0, 7)
    assert commit(client, group, topic, 3) == 0
    assert fetch(client, group, topic, stable=True) == (0, 3)
    assert fetch(client, group, topic, version=5) == (0, 3)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_offsets_pend_until_the_transaction_ends(broker: BrokerUnderTest, client: RawClient, committed: bool) -> None:
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    commit(client, group, topic, 1)
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5) == 0
    assert client.describe_transaction(name).transaction_state == "Ongoing"
    assert fetch(client, group, topic, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetch(client, group, topic, stable=True, version=7) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetch(client, group, topic) == (0, 1)
    assert client.end_transaction(name, me, commit=committed).error_code == 0
    client.wait_for_state(name, "CompleteCommit" if committed else "CompleteAbort")
    assert fetch(client, group, topic, stable=True) == (0, 5 if committed else 1)


def test_a_plain_commit_after_a_pending_one(broker: BrokerUnderTest, client: RawClient) -> None:
    """It is taken, the partition stays unstable, and as the later of the two it outlives the transaction's commit."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5) == 0
    assert commit(client, group, topic, 2) == 0
    assert fetch(client, group, topic) == (0, 2)
    assert fetch(client, group, topic, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert fetch(client, group, topic, stable=True) == (0, 2)


def test_offsets_are_enlisted_explicitly_before_v5(broker: BrokerUnderTest, client: RawClient) -> None:
    """K50: TxnOffsetCommit without AddOffsetsToTxn is 48 for v3, 120 for v4; v5 enlists the group itself."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5, version=3) == ErrorCode.INVALID_TXN_STATE
    assert send_offset(client, name, me, group, topic, 5, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=me.producer_id, producer_epoch=me.epoch, group_id=group
    )
    assert client.settled(lambda: client.call(request, 3)).error_code == 0
    assert send_offset(client, name, me, group, topic, 5, version=3) == 0
    topics = [(entry.topic, len(entry.partitions)) for entry in client.describe_transaction(name).topics]
    assert topics == [("__consumer_offsets", 1)]
    assert client.end_transaction(name, me, commit=True, version=3).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert fetch(client, group, topic, stable=True) == (0, 5)


def test_who_may_not_send_offsets(broker: BrokerUnderTest, client: RawClient) -> None:
    """K64: generation 3 without members: 22; old epoch: 47; foreign producer id or unknown id: 49."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5, generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert send_offset(client, name, me, "", topic, 5) == ErrorCode.INVALID_GROUP_ID
    foreign = Producer(me.producer_id + 100_000, 0)
    assert send_offset(client, name, foreign, group, topic, 5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert send_offset(client, broker.name("nobody"), me, group, topic, 5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.end_transaction(name, me, commit=False).error_code == 0
    client.wait_for_state(name, "CompleteAbort")
    assert send_offset(client, name, me, group, topic, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch(client, group, topic, stable=True) == (0, -1)


def test_whose_offsets_are_asked_in_order(broker: BrokerUnderTest, client: RawClient) -> None:
    """Group, id, producer, epoch, and what comes first is told: v0-5 answer alike. In a transaction that has begun, an
    old epoch under no id, or nobody's, is refused as well; under which name is in docs/differences-from-kafka.md."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    client.start_producer(name)
    me = client.start_producer(name)
    ids = ("", broker.name("nobody"), name)
    mine, others = (me.producer_id,), (-1, me.producer_id + 100_000)
    fenced, future = (-1, me.epoch - 1), (me.epoch + 1,)

    def answers(producer_ids: Iterable[int], epochs: Iterable[int]) -> set[tuple[int, ...]]:
        asked = product(range(6), producer_ids, epochs)
        return {
            tuple(answer(transactional_id, Producer(*pair), version) for transactional_id in ids)
            for version, *pair in asked
        }

    def answer(transactional_id: str, producer: Producer, version: int) -> int:
        return send_offset(client, transactional_id, producer, group, topic, 5, version=version)

    assert {
        send_offset(client, transactional_id, Producer(-1, -1), "", topic, 5, version=0) for transactional_id in ids
    } == {24}
    assert answers(mine, (*fenced, *future)) == {(42, 49, 47)}
    assert answers(others, (*fenced, me.epoch, *future)) == {(42, 49, 49)}
    assert answer(name, me, 5) == 0
    assert answers(mine, future) == {(42, 49, 47)}
    assert answers(others, (*fenced, me.epoch, *future)) == {(42, 49, 49)}
    assert answers(mine, fenced) <= {(42, 49, 47), (47, 47, 47)}
    assert client.end_transaction(name, me, commit=False).error_code == 0


# Edges


def fetch_all(client: RawClient, group: str, version: int, *, stable: bool = False) -> dict[str, tuple[int, int, str]]:
    """Everything the group has committed: (error, offset, metadata) of partition 0 by topic, or by topic id (v10)."""
    if version < 8:
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
        topics = client.call(request, version).topics
    else:
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        (found,) = client.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), version).groups
        assert found.error_code == 0
        topics = found.topics
    reported = {}
    for topic in topics:
        (only,) = topic.partitions
        name = topic.name if version < 10 else str(topic.topic_id)
        reported[name] = (only.error_code, only.committed_offset, only.metadata)
    return reported


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9, 10])
def test_everything_that_a_group_has_committed(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    group = broker.name("g")
    assert fetch_all(client, group, version) == {}
    names = [client.create_topic(broker.name("t")) for _ in range(2)]
    for offset, name in enumerate(names):
        assert commit(client, group, name, offset) == 0
    expected = {name: (0, offset, "note") for offset, name in enumerate(names)}
    if version >= 10:
        expected = {str(topic_id(client, name)): reported for name, reported in expected.items()}
    assert fetch_all(client, group, version) == expected


def test_topics_by_id_that_do_not_exist(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = client.create_topic(broker.name("t")), broker.name("g")
    assert commit(client, group, topic, 1) == 0
    nobody = uuid4()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
    known = OffsetCommitRequestTopic(topic_id=topic_id(client, topic), partitions=[partition])
    unknown = OffsetCommitRequestTopic(topic_id=nobody, partitions=[partition])
    answer = client.call(OffsetCommitRequest(group_id=group, topics=[known, unknown]), 10)
    errors = {str(entry.topic_id): entry.partitions[0].error_code for entry in answer.topics}
    assert errors == {str(topic_id(client, topic)): 0, str(nobody): ErrorCode.UNKNOWN_TOPIC_ID}
    wanted = [OffsetFetchRequestTopics(topic_id=uuid, partition_indexes=[0]) for uuid in (known.topic_id, nobody)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
    (found,) = client.call(request, 10).groups
    reported = {
        str(entry.topic_id): (entry.partitions[0].error_code, entry.partitions[0].committed_offset)
        for entry in found.topics
    }
    assert reported == {str(topic_id(client, topic)): (0, 2), str(nobody): (ErrorCode.UNKNOWN_TOPIC_ID, -1)}


def test_several_groups_in_one_fetch(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, groups = client.create_topic(broker.name("t")), [broker.name("g") for _ in range(2)]
    for offset, group in enumerate(groups, 5):
        assert commit(client, group, topic, offset) == 0
    asked = [*groups, broker.name("unknown")]
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 9])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in asked])
    found = {group_result.group_id: group_result for group_result in client.call(request, 8).groups}
    assert [found[group].error_code for group in asked] == [0, 0, 0]
    reported = [[(p.partition_index, p.committed_offset) for p in found[group].topics[0].partitions] for group in asked]
    assert reported == [[(0, 5), (9, -1)], [(0, 6), (9, -1)], [(0, -1), (9, -1)]]


def test_odd_commits(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = client.create_topic(broker.name("t")), broker.name("g")

    def send(offset: int, *, name: str = topic, metadata: str | None = "", group: str = group, **fields: Any) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        wanted = OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = OffsetCommitRequest(group_id=group, topics=[wanted], **fields)
        return int(client.call(request, 9).topics[0].partitions[0].error_code)

    assert send(1, name=broker.name("nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(1, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert send(1, metadata="x" * 4096) == 0
    assert send(1, metadata=None) == 0
    assert fetch_all(client, group, 9) == {topic: (0, 1, "")}
    assert send(-5) == 0
    assert send(3, generation_id_or_member_epoch=3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(3, generation_id_or_member_epoch=3, group=broker.name("new")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert send(3, member_id="nobody") == 0  # nobody is in the group, and no generation is named


@pytest.mark.parametrize("how", ["offset", "group"])
def test_what_is_deleted_while_it_pends_is_not_committed(broker: BrokerUnderTest, client: RawClient, how: str) -> None:
    """K62: OffsetDelete and DeleteGroups are taken, and the later commit of the transaction shows no offset."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5) == 0
    if how == "offset":
        wanted = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        answer = client.call(OffsetDeleteRequest(group_id=group, topics=[wanted]), 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    else:
        assert client.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert fetch(client, group, topic, stable=True) == (0, -1)


def test_offsets_go_with_their_topic(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = client.create_topic(broker.name("t")), broker.name("g")
    assert commit(client, group, topic, 5) == 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
    assert client.call(request, 6).responses[0].error_code == 0
    until(lambda: fetch_all(client, group, 9) == {})


def test_deleting_offsets(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = client.create_topic(broker.name("t")), broker.name("g")

    def delete(group: str, name: str, index: int = 0) -> tuple[int, list[int]]:
        wanted = OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        answer = client.call(OffsetDeleteRequest(group_id=group, topics=[wanted]), 0)
        return answer.error_code, [p.error_code for entry in answer.topics for p in entry.partitions]

    assert delete(group, topic) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert delete("", topic) == (ErrorCode.INVALID_GROUP_ID, [])
    assert delete(group, broker.name("nowhere")) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert commit(client, group, topic, 5) == 0
    assert delete(group, topic, 7) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete(group, broker.name("nowhere")) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert fetch(client, group, topic) == (0, 5)
    assert delete(group, topic) == (0, [0])
    assert delete(group, topic) == (0, [0])
    assert fetch(client, group, topic) == (0, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_a_leader_epoch_ends(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic = client.create_topic(broker.name("t"))
    client.produce(topic, [b"a", b"b", b"c"])

    def ask(epoch: int, current: int = -1, name: str = topic, index: int = 0) -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        asked = OffsetForLeaderTopic(topic=name, partitions=[wanted])
        (reported,) = (
            client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked]), version).topics[0].partitions
        )
        return reported.error_code, reported.leader_epoch, reported.end_offset

    assert ask(0) == (0, 0, 3)
    assert ask(0, current=0) == (0, 0, 3)
    assert ask(5) == (0, -1, -1)
    assert ask(-1) == (0, -1, -1)
    assert ask(0, current=7) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask(0, name=broker.name("nowhere")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(0, index=4) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
