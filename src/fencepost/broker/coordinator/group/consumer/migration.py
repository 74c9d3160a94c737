"""Conversion between classic and consumer groups with members (KIP-848).

A consumer group may have members with the classic protocol. For them, JoinGroup replaces a full heartbeat, SyncGroup
returns the assignment, Heartbeat asks them to rejoin, and the member epoch is the generation. There is no leader,
because the coordinator assigns.

Source: `GroupMetadataManager.classicGroup*ToConsumerGroup`, `ConsumerGroup.fromClassicGroup`,
`ClassicGroup.fromConsumerGroup` of Apache Kafka 4.x. One difference: a member that joins and never syncs is not removed
for that, but only when its session ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.coordinator.group.base.member_states import MemberEvent, MemberState, member_step
from fencepost.broker.coordinator.group.base.requests import Join, Joined, LeavingMember, Refusal, Synced, SyncGroup
from fencepost.broker.coordinator.group.base.subscription import read_assignment, read_subscription
from fencepost.broker.coordinator.group.base.topics import Topics
from fencepost.broker.coordinator.group.consumer.decide import continue_as, settle
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from fencepost.broker.coordinator.group.consumer.tentative_group import TentativeGroup
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment
from fencepost.protocol.logs.consumer_group_log import (
    ClassicProtocols,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    MemberKey,
    MemberValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
    TopicIdPartition,
)
from fencepost.protocol.logs.offsets_log import GroupMetadataValue, StoredMember

__all__ = ["all_classic", "check_classic", "convert", "join_classic", "leaving", "must_rejoin", "share", "to_classic"]

_FIRST_JOIN_WITH_KNOWN_ID = 4  # KIP-394


def convert(draft: TentativeGroup, value: GroupMetadataValue, now_ms: int, topics: Topics) -> Refusal | None:
    """Fill the draft's new group with the state of the classic group in its last generation."""
    if value.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {draft.group.group_id} is of {value.protocol_type!r}.")
    group_id = draft.group.group_id
    draft.write(ConsumerGroupKey(group_id), ConsumerGroupValue(value.generation))
    assignments = [read_assignment(member.assignment) for member in value.members]
    taken = {partition for assigned in assignments for partition in assigned or ()}
    for member, assigned in zip(value.members, assignments, strict=True):
        subscription = read_subscription(member.subscription)
        if subscription is None or assigned is None:
            reason = f"The subscription or the assignment of member {member.member_id} cannot be read."
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        protocols = ((value.protocol or "", member.subscription),)
        wants = MemberValue(
            instance_id=member.group_instance_id,
            rack_id=subscription.rack or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(set(subscription.topics))),
            topic_regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicProtocols(member.session_timeout_ms, protocols),
        )
        # A cooperative member may not have revoked partitions that it owned at its last join and that no member was
        # assigned.
        unrevoked = [partition for partition in subscription.owned if partition not in taken]
        taken.update(unrevoked)
        has = dict.fromkeys(_by_id([*assigned, *unrevoked], topics), value.generation)
        current = CurrentAssignmentValue(value.generation, value.generation, MemberState.STABLE, has, {})
        draft.write(MemberKey(group_id, member.member_id), wants)
        draft.write(TargetMemberKey(group_id, member.member_id), TargetMemberValue(frozenset(has)))
        draft.write(CurrentAssignmentKey(group_id, member.member_id), current)
    draft.write(TargetKey(group_id), TargetValue(value.generation, now_ms))
    return None


def all_classic(group: ConsumerGroup) -> bool:
    """Return true if the group has members and all use the classic protocol."""
    return bool(group.members) and all(member.wants.classic is not None for member in group.members.values())


def to_classic(group: ConsumerGroup, topics: Topics, now_ms: int) -> GroupMetadataValue | None:
    """Return the classic group for a consumer group of classic members, or None if they have no protocol in common.

    Each member's assignment is its present partitions, not its target, because a new consumer may join before the
    member has revoked any. The group has no leader: the partitions of the last consumer-protocol member are unassigned,
    so a rebalance is due, also after a restart of the coordinator.
    """
    offered = [dict(m.wants.classic.protocols) for m in group.members.values() if m.wants.classic is not None]
    common = [name for name in offered[0] if all(name in protocol for protocol in offered)]
    if not common:
        return None
    protocol = common[0]
    members = []
    for member in group.members.values():
        classic = member.wants.classic
        if classic is None:
            continue
        metadata = dict(classic.protocols)[protocol]
        subscription = read_subscription(metadata)
        version = subscription.version if subscription is not None else 0
        owned = _by_name({*member.assigned, *member.revoking}, topics)
        members.append(
            StoredMember(
                member.member_id,
                member.wants.instance_id,
                member.wants.client_id,
                member.wants.client_host,
                member.wants.rebalance_timeout_ms,
                classic.session_timeout_ms,
                metadata,
                encode_assignment(sorted(owned), version),
            )
        )
    # The group's epoch rose when the last consumer-protocol member left, and no member has seen the new one.
    generation = group.assignment_epoch
    return GroupMetadataValue(CONSUMER_PROTOCOL_TYPE, generation, protocol, None, now_ms, tuple(members))


def join_classic(draft: TentativeGroup, request: Join, new_id: str, topics: Topics) -> ConsumerMember | Joined:
    """Handle a JoinGroup at a consumer group. Return the resulting member, or the refusal."""
    subscription = None
    if request.protocols and request.protocol_type == CONSUMER_PROTOCOL_TYPE and _supported(draft.group, request):
        subscription = read_subscription(request.protocols[0][1])
    if subscription is None:
        return Joined(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or new_id
    dynamic = request.group_instance_id is None
    if dynamic and not request.member_id and request.api_version >= _FIRST_JOIN_WITH_KNOWN_ID:
        return Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    if request.group_instance_id is not None:
        holder = draft.group.static_member(request.group_instance_id)
        if request.member_id and (holder is None or holder.member_id != request.member_id):
            error = ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
            return Joined(error_code=error, member_id=request.member_id)
        if holder is not None and not request.member_id:
            continue_as(draft, holder, member_id)
    if member_id not in draft.group.members:
        if dynamic and subscription.owned:
            # The member was removed without its knowledge, and its partitions belong to other members now.
            return Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
        member_step(MemberState.ABSENT, MemberEvent.JOINED)
    wants = MemberValue(
        instance_id=request.group_instance_id,
        rack_id=subscription.rack or None,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex=None,
        rebalance_timeout_ms=(
            request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        ),
        server_assignor=None,
        classic=ClassicProtocols(request.session_timeout_ms, tuple(request.protocols)),
    )
    return settle(draft, member_id, wants, _by_id(subscription.owned, topics), None)


def must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return true if a classic member must rejoin: new epoch, revocation, or awaited partitions became free."""
    if member.epoch < group.epoch or member.state == MemberState.UNREVOKED:
        return True
    if member.state != MemberState.UNRELEASED:
        return False
    missing = group.target_of(member.member_id).difference(member.assigned)
    return not any(partition in group.owners for partition in missing)


def check_classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None = None
) -> ConsumerMember | ErrorCode:
    """Return the classic member that sent a request, or the error. A given `generation` must match."""
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.member_id != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    if member.wants.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation is not None and generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def share(member: ConsumerMember, request: SyncGroup, topics: Topics) -> Synced:
    """Return SyncGroup's answer for a classic member: its assignment, in the version of its protocol."""
    protocol, metadata = member.wants.classic.protocols[0] if member.wants.classic is not None else ("", b"")
    strange_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if strange_type or request.protocol_name not in (None, protocol):
        return Synced(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    subscription = read_subscription(metadata)
    version = subscription.version if subscription is not None else 0
    return Synced(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
        assignment=encode_assignment(sorted(_by_name(member.assigned, topics)), version),
    )


def leaving(group: ConsumerGroup, member: LeavingMember) -> ConsumerMember | ErrorCode:
    """Return the member that a LeaveGroup names, or the error.

    A member itself is a classic one. Administrators give an instance id alone, of a member of any protocol.
    """
    if not member.member_id and member.group_instance_id is not None:
        return group.static_member(member.group_instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    return check_classic(group, member.member_id, member.group_instance_id)


def _supported(group: ConsumerGroup, request: Join) -> bool:
    """Return true if a protocol of the request is supported by all classic members, which a conversion back needs."""
    others = [
        {name for name, _ in member.wants.classic.protocols}
        for member in group.members.values()
        if member.wants.classic is not None and member.member_id != request.member_id
    ]
    return any(all(name in theirs for theirs in others) for name, _ in request.protocols)


def _by_id(partitions: Iterable[tuple[str, int]], topics: Topics) -> frozenset[TopicIdPartition]:
    found = ((topics.find(name), index) for name, index in partitions)
    return frozenset(TopicIdPartition(topic[0], index) for topic, index in found if topic is not None)


def _by_name(partitions: Iterable[TopicIdPartition], topics: Topics) -> list[tuple[str, int]]:
    """Return topic names and partitions. Deleted topics are omitted."""
    found = ((topics.name_of(partition.topic_id), partition.partition) for partition in partitions)
    return [(name, index) for name, index in found if name is not None]
