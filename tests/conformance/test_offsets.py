"""Group offsets, plain and inside transactions (KIP-447). Expected answers: Apache Kafka 4.3.1 as observed."""

from __future__ import annotations

import pytest

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient

pytestmark = pytest.mark.timeout(90)


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
    """Section 5: TxnOffsetCommit without AddOffsetsToTxn is 48 for v3, 120 for v4; v5 enlists the group itself."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    me = client.start_producer(name)
    assert send_offset(client, name, me, group, topic, 5, version=3) == ErrorCode.INVALID_TXN_STATE
    assert send_offset(client, name, me, group, topic, 5, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=me.producer_id, producer_epoch=me.epoch, group_id=group
    )
    assert client.settled(lambda: client.call(request, 3)).error_code == 0
    assert send_offset(client, name, me, group, topic, 5, version=3) == 0
    topics = [(one.topic, len(one.partitions)) for one in client.describe_transaction(name).topics]
    assert topics == [("__consumer_offsets", 1)]
    assert client.end_transaction(name, me, commit=True, version=3).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert fetch(client, group, topic, stable=True) == (0, 5)


def test_who_may_not_send_offsets(broker: BrokerUnderTest, client: RawClient) -> None:
    """Section 6: generation 3 without members: 22; old epoch: 47; foreign producer id or unknown id: 49."""
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
