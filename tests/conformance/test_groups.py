"""Classic groups of one member, and who may send offsets in their name (KIP-447). As Apache Kafka 4.4 answers."""

from __future__ import annotations

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.test_offsets import fetch, send_offset
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient


def ask_to_join(client: RawClient, group: str, member: str = "", instance: str | None = None) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,  # longer than the start of any of Kafka's tools
        rebalance_timeout_ms=30_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"wants")],
    )
    answer: JoinGroupResponse = client.call(request, 7)
    return answer


def join(client: RawClient, group: str) -> JoinGroupResponse:
    """Both steps of KIP-394: the first answer is 79 with the member id to come back with."""
    first = ask_to_join(client, group)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED and first.member_id
    joined = ask_to_join(client, group, first.member_id)
    assert (joined.error_code, joined.member_id, joined.leader) == (0, first.member_id, first.member_id)
    return joined


def sync(client: RawClient, group: str, joined: JoinGroupResponse, generation: int | None = None) -> tuple[int, bytes]:
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"gets")
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id if generation is None else generation,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    answer = client.call(request, 5)
    return answer.error_code, answer.assignment


def heartbeat(client: RawClient, group: str, generation: int, member: str) -> int:
    return int(client.call(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 4).error_code)


def test_a_member_comes_and_goes(broker: BrokerUnderTest, client: RawClient) -> None:
    group = broker.name("g")
    joined = join(client, group)
    assert (joined.generation_id, joined.protocol_type, joined.protocol_name) == (1, "consumer", "range")
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"wants")]
    assert sync(client, group, joined, generation=7)[0] == ErrorCode.ILLEGAL_GENERATION
    assert sync(client, group, joined) == (0, b"gets")
    assert heartbeat(client, group, 1, joined.member_id) == 0
    assert heartbeat(client, group, 2, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(client, group, 1, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=joined.member_id)])
    left = client.call(leave, 5)
    assert (left.error_code, [member.error_code for member in left.members]) == (0, [0])
    assert heartbeat(client, group, 1, joined.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    again = client.call(leave, 5)
    assert [member.error_code for member in again.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_leader_that_joins_again_makes_a_new_generation(broker: BrokerUnderTest, client: RawClient) -> None:
    group = broker.name("g")
    joined = join(client, group)
    sync(client, group, joined)
    again = ask_to_join(client, group, joined.member_id)
    assert (again.error_code, again.generation_id) == (0, 2)
    assert heartbeat(client, group, 1, joined.member_id) == ErrorCode.ILLEGAL_GENERATION


def test_only_the_present_generation_sends_offsets(broker: BrokerUnderTest, client: RawClient) -> None:
    """TxnOffsetCommit: generation off by one 22, a stranger 25, nobody at all (generation -1) is let through."""
    topic, group, name = client.create_topic(broker.name("t")), broker.name("g"), broker.name("txn")
    joined = join(client, group)
    me = client.start_producer(name)

    def send(offset: int, generation: int, member: str) -> int:
        return send_offset(client, name, me, group, topic, offset, generation=generation, member=member)

    assert send(1, 1, joined.member_id) == 0  # before SyncGroup, too
    sync(client, group, joined)
    assert send(2, 0, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert send(2, 2, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert send(2, -1, joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert send(2, 1, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(2, 1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(3, 1, joined.member_id) == 0
    assert fetch(client, group, topic, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert send(4, -1, "") == 0
    assert client.end_transaction(name, me, commit=True).error_code == 0
    client.wait_for_state(name, "CompleteCommit")
    assert fetch(client, group, topic, stable=True) == (0, 4)


def test_a_static_member_fences_its_former_self(broker: BrokerUnderTest, client: RawClient) -> None:
    """KIP-345: the same instance id joins anew; the old member id is 82 from then on, in TxnOffsetCommit, too."""
    group = broker.name("g")
    first = ask_to_join(client, group, instance="one")
    assert first.error_code == 0  # a static member needs no second step
    sync(client, group, first)
    with broker.connect() as other:
        second = ask_to_join(other, group, instance="one")
    assert second.error_code == 0 and second.member_id != first.member_id
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id, group_instance_id="one")
    assert client.call(request, 4).error_code == ErrorCode.FENCED_INSTANCE_ID
