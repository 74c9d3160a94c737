"""Groups that go over from one protocol to the other while they have members, as Apache Kafka 4.4 does it."""

from __future__ import annotations

from fencepost.client.group.assignors_wire import decode_assignment, encode_subscription
from fencepost.client.partition_assignor import Subscription
from fencepost.client.types import TopicPartition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.consumer_protocol import encode_assignment
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.consumer_groups import alone, listed, stable
from tests.conformance.test_groups import heartbeat
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import RawMember, describe, topic_id, until
from tests.support.raw_client import RawClient


class ClassicMember:
    """A consumer of the classic protocol, by raw requests, with cooperative rebalances: what it owns it says."""

    def __init__(self, client: RawClient, group: str, topic: str) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()

    def ask_to_join(self) -> JoinGroupResponse:
        wanted = Subscription([self.topic], [TopicPartition(self.topic, index) for index in sorted(self.owned)])
        protocol = JoinGroupRequestProtocol(name="cooperative-sticky", metadata=encode_subscription(wanted))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer: JoinGroupResponse = self.client.call(request, 9)
        return answer

    def join(self) -> JoinGroupResponse:
        answer = self.ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.ask_to_join()
        assert (answer.error_code, answer.member_id) == (0, self.member_id)
        self.generation = answer.generation_id
        return answer

    def sync(self, *given: tuple[str, bytes], generation: int | None = None) -> int:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in given],
        )
        answer = self.client.call(request, 5)
        if not answer.error_code:
            self.owned = frozenset(
                partition.partition for partition in decode_assignment(bytes(answer.assignment)).partitions
            )
        return int(answer.error_code)

    def heartbeat(self) -> int:
        return heartbeat(self.client, self.group, self.generation, self.member_id)

    def follow(self) -> None:
        """Do what a consumer does at its next heartbeat."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            assert self.sync() in (0, ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self) -> int:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        return int(self.client.call(request, 4).members[0].error_code)


def classic_group(broker: BrokerUnderTest, client: RawClient) -> ClassicMember:
    """A stable classic group: one member with four partitions."""
    topic = client.create_topic(broker.name("t"), 4)
    member = ClassicMember(client, broker.name("g"), topic)
    member.join()
    share = encode_assignment([TopicPartition(topic, index) for index in range(4)])
    assert member.sync((member.member_id, share)) == 0 and len(member.owned) == 4
    return member


def test_a_classic_group_goes_over_with_its_members(broker: BrokerUnderTest, client: RawClient) -> None:
    old = classic_group(broker, client)
    new = RawMember(client, old.group, [old.topic])
    new.beat()
    assert not new.assigned
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.sync() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.sync(generation=old.generation + 5) == ErrorCode.ILLEGAL_GENERATION
    shown = {member.member_id: member.member_type for member in describe(client, old.group).members}
    assert shown == {old.member_id: 0, new.member_id: 1}
    answer = old.join()
    assert (answer.leader, answer.protocol_name, list(answer.members)) == ("", "cooperative-sticky", [])
    until(lambda: len(new.owned) == 2, old.follow, new.follow)
    assert len(old.owned) == 2 and not {(topic_id(client, old.topic), index) for index in old.owned} & new.owned
    until(lambda: stable(client, old.group), old.follow, new.follow)
    assert old.generation == new.epoch == describe(client, old.group).group_epoch
    assert commit_classic(old, new.epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit_classic(old, new.epoch) == 0
    assert old.leave() == 0
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    new.until(lambda: len(new.owned) == 4)
    assert [member.member_type for member in describe(client, old.group).members] == [1]


def test_a_consumer_group_without_members_of_its_protocol_is_classic_again(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    new, topic = alone(broker, client)
    old = ClassicMember(client, new.group, topic)
    old.join()
    assert old.sync() in (0, ErrorCode.REBALANCE_IN_PROGRESS) and not old.owned
    until(lambda: len(old.owned) == 2, old.follow, new.follow)
    assert new.leave() == 0
    assert describe(client, new.group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    answer = old.join()
    assert (answer.leader, len(answer.members)) == (old.member_id, 1)
    share = encode_assignment([TopicPartition(topic, index) for index in range(4)])
    assert old.sync((old.member_id, share)) == 0 and len(old.owned) == 4
    assert listed(client)[new.group][2].lower() == "classic"


def test_a_member_that_was_thrown_out_does_not_come_back_with_what_it_had(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    """On purpose not as Kafka, which takes it in: until its next sync it would read what others have been given."""
    old = classic_group(broker, client)
    new = RawMember(client, old.group, [old.topic])
    new.beat()
    old.join()
    assert old.leave() == 0  # as if its session had ended: it goes on as if nothing had happened
    answer = old.ask_to_join()
    assert len(old.owned) == 4
    assert answer.error_code == (ErrorCode.UNKNOWN_MEMBER_ID if broker.is_ours else 0)
    old.member_id, old.owned = "", frozenset()
    assert old.join().error_code == 0


def commit_classic(member: ClassicMember, generation: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=min(member.owned), committed_offset=1)
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=member.topic, partitions=[partition])],
    )
    return int(member.client.call(request, 8).topics[0].partitions[0].error_code)
