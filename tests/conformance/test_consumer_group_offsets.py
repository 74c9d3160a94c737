"""Offsets of consumer groups (KIP-848): who may commit and fetch in which epoch, as Apache Kafka 4.4 answers."""

from __future__ import annotations

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.conformance.consumer_groups import alone, commit_as, stable
from tests.conformance.test_offsets import fetch, send_offset
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import RawMember, topic_id
from tests.support.raw_client import RawClient


def fetch_as(member: RawMember, topic: str, epoch: int, member_id: str | None, version: int = 9) -> tuple[int, int]:
    """(error of the group, offset of partition 0)."""
    named = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    if version >= 10:
        named = OffsetFetchRequestTopics(topic_id=topic_id(member.client, topic), partition_indexes=[0])
    wanted = OffsetFetchRequestGroup(group_id=member.group, member_id=member_id, member_epoch=epoch, topics=[named])
    (found,) = member.client.call(OffsetFetchRequest(groups=[wanted]), version).groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


def test_offsets_are_committed_by_members_in_their_epoch(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    member.until(lambda: stable(client, member.group))
    epoch = member.epoch
    assert commit_as(member, topic, 0, 1, epoch) == 0
    assert commit_as(member, topic, 0, 2, epoch, version=10) == 0
    assert commit_as(member, topic, 0, 9, epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit_as(member, topic, 0, 9, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(member, topic, 0, 9, epoch, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(member, topic, 0, 9, -1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(member, topic, 7, 9, epoch) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_as(member, topic, epoch, member.member_id) == (0, 2)
    assert fetch_as(member, topic, epoch, member.member_id, 10) == (0, 2)
    assert fetch_as(member, topic, -1, None) == (0, 2)
    assert fetch_as(member, topic, epoch + 1, member.member_id) == (ErrorCode.STALE_MEMBER_EPOCH, -1)
    assert fetch_as(member, topic, epoch - 1, member.member_id) == (ErrorCode.STALE_MEMBER_EPOCH, -1)
    assert fetch_as(member, topic, epoch, "stranger") == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
    assert fetch(client, member.group, topic) == (0, 2)


def test_an_old_epoch_commits_what_the_member_has_had_since(broker: BrokerUnderTest, client: RawClient) -> None:
    """A commit may be under way while a heartbeat raises the epoch: it is as good as before where nothing moved."""
    first, topic = alone(broker, client)
    first.until(lambda: stable(client, first.group))
    old = first.epoch
    before = first.owned
    second = RawMember(client, first.group, [topic])
    first.until(lambda: len(second.owned) == 2, second)
    first.until(lambda: stable(client, first.group), second)
    assert first.epoch > old
    retained = min(index for _, index in first.owned)
    lost = min(index for _, index in before - first.owned)
    assert commit_as(first, topic, retained, 1, old) == 0
    assert commit_as(first, topic, retained, 1, old - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(first, topic, lost, 1, old) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit_as(first, topic, lost, 1, first.epoch) == 0  # its own epoch is not checked further


def test_transactional_offsets_know_member_epochs(broker: BrokerUnderTest, client: RawClient) -> None:
    member, topic = alone(broker, client)
    member.until(lambda: stable(client, member.group))
    name = broker.name("tx")
    producer = client.start_producer(name)
    where = (client, name, producer, member.group, topic)
    wrong = send_offset(*where, 1, generation=member.epoch + 1, member=member.member_id)
    assert wrong == ErrorCode.ILLEGAL_GENERATION
    wrong = send_offset(*where, 1, generation=member.epoch, member="stranger")
    assert wrong == ErrorCode.UNKNOWN_MEMBER_ID
    assert send_offset(*where, 3, generation=member.epoch, member=member.member_id) == 0
    assert client.end_transaction(name, producer, commit=True).error_code == 0
    member.until(lambda: fetch(client, member.group, topic) == (0, 3))
