"""Decisions about ConsumerGroupHeartbeat: checks, then records.

Only replayed records change a group.

A heartbeat that is not a leave goes through five steps. Identify the member (new, known, or a returning static member).
Record its request if it changed. Raise the group's epoch if subscriptions or topics changed. Make the target assignment
of that epoch. Move the member one step towards its target.

Source: `GroupMetadataManager.consumerGroupHeartbeat` of Apache Kafka 4.3.1 and its checks of requests. Differences: a
regular expression is resolved at once, and the assignment is made at once (Kafka does both in the background and tells
the member with a later heartbeat).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fencepost.broker.coordinator.group.base import reconciliation
from fencepost.broker.coordinator.group.base.member_states import MemberEvent, MemberState, member_step
from fencepost.broker.coordinator.group.base.reconciliation import Holding
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    Refusal,
    is_blank,
    unknown_member,
)
from fencepost.broker.coordinator.group.consumer.group import AWAY_EPOCH, LEAVE_EPOCH, ConsumerGroup, ConsumerMember
from fencepost.broker.coordinator.group.consumer.requests import ConsumerHeartbeat
from fencepost.broker.coordinator.group.consumer.tentative_group import TentativeGroup
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import (
    CurrentAssignmentKey,
    MemberKey,
    MemberValue,
    TargetMemberKey,
    TargetMemberValue,
    TopicIdPartition,
)
from fencepost.protocol.re2 import InvalidPattern, compile_pattern

__all__ = [
    "check_commit",
    "check_fetch",
    "check_request",
    "continue_as",
    "decide_heartbeat",
    "decide_leave",
    "fence",
    "reconcile",
    "settle",
    "stale_code",
]

_FIRST_WITH_OWN_MEMBER_ID = 1


def check_request(request: ConsumerHeartbeat, assignors: Sequence[str]) -> Refusal | None:
    """Return the error of a request that is invalid by itself, or None."""
    problem = _problem(request)
    if problem is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no assignor {request.server_assignor!r}; there are {known}."
        )
    return None


def _check_regex(pattern: str | None) -> Refusal | None:
    if pattern:
        try:
            compile_pattern(pattern)
        except InvalidPattern as error:
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r}: {error}")
    return None


def _problem(request: ConsumerHeartbeat) -> str | None:
    epoch = request.member_epoch
    needs_id = request.api_version >= _FIRST_WITH_OWN_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and is_blank(request.member_id):
        return "The member id is empty."
    if is_blank(request.group_id):
        return "The group id is empty."
    if is_blank(request.instance_id):
        return "The instance id is empty."
    if is_blank(request.rack_id):
        return "The rack id is empty."
    if epoch < AWAY_EPOCH:
        return f"A member epoch of {epoch} means nothing."
    if epoch == AWAY_EPOCH and request.instance_id is None:
        return "Only a member with an instance id can leave for a while."
    if epoch != 0:
        return None
    if request.rebalance_timeout_ms == -1:
        return "A member that joins has to give its rebalance timeout."
    if request.owned is None or request.owned:
        return "A member that joins has no partitions, and has to say so."
    if request.topic_names is None and request.topic_regex is None:
        return "A member that joins has to subscribe, to topics or by a regular expression."
    return None


def decide_heartbeat(draft: TentativeGroup, request: ConsumerHeartbeat) -> ConsumerMember | Refusal:
    """Decide a heartbeat. Return the resulting member, or the refusal."""
    member = _identify(draft, request)
    if isinstance(member, Refusal):
        return member
    refusal = _check_regex(request.topic_regex)
    if refusal is not None:
        return refusal
    wants = _merge(member.wants, request)
    return settle(draft, member.member_id, wants, request.owned, request.may_see)


def settle(
    draft: TentativeGroup,
    member_id: str,
    wants: MemberValue,
    owned: frozenset[TopicIdPartition] | None,
    may_see: Callable[[str], bool] | None,
) -> ConsumerMember:
    """Apply a member's identified request, from the group's epoch to the member's step.

    Return the resulting member.

    Without `may_see`, regular expressions are not resolved again, because no caller's permissions apply.
    """
    group_id = draft.group.group_id
    known = draft.group.members.get(member_id)
    subscribed = known is None or _subscription(wants) != _subscription(known.wants)
    if known is None or wants != known.wants:
        draft.write(MemberKey(group_id, member_id), wants)
    if subscribed or draft.topics_changed:
        if may_see is not None:
            subscribed = draft.look_up(may_see) or subscribed
        draft.next_epoch(forced=subscribed)
    draft.assign()
    group = draft.group
    before = group.members[member_id]
    after = reconcile(before, group.target_of(member_id), group.assignment_epoch, owned, group.owners)
    if after != before:
        draft.write(CurrentAssignmentKey(group_id, member_id), after.current())
    return draft.group.members[member_id]


def reconcile(
    member: ConsumerMember,
    target: frozenset[TopicIdPartition],
    target_epoch: int,
    owned: frozenset[TopicIdPartition] | None,
    owners: Mapping[TopicIdPartition, str],
) -> ConsumerMember:
    """Return the member one step closer to its target, or unchanged if it cannot move.

    `owned` has the partitions that the member reports. `owners` has the member that owns each partition or has not
    revoked it.
    """
    before = Holding(member.state, member.epoch, member.previous_epoch, member.assigned, member.revoking)

    def is_free(partition: TopicIdPartition) -> bool:
        return owners.get(partition, member.member_id) == member.member_id

    after = reconciliation.reconcile(before, target, target_epoch, owned, is_free)
    return member if after is before else replace(member, **after._asdict())


def _step_out(member: ConsumerMember) -> ConsumerMember:
    """Let a static member leave temporarily. It keeps its partitions, except for those it had to revoke."""
    member_step(MemberState.AWAY if member.away else member.state, MemberEvent.LEFT_TEMPORARILY)
    return replace(member, state=MemberState.STABLE, epoch=AWAY_EPOCH, revoking={})


def decide_leave(draft: TentativeGroup, request: ConsumerHeartbeat) -> Refusal | None:
    """Decide a leave (epoch -1), or a temporary one of a static member (-2)."""
    group = draft.group
    if request.instance_id is None:
        member = group.members.get(request.member_id)
    else:
        member = group.static_member(request.instance_id)
    if member is None:
        return unknown_member(group.group_id, request.member_id)
    if request.instance_id is not None and member.member_id != request.member_id:
        return _fenced_instance(request, member)
    if request.member_epoch == AWAY_EPOCH:
        draft.write(CurrentAssignmentKey(group.group_id, member.member_id), _step_out(member).current())
    else:
        fence(draft, member)
    return None


def fence(draft: TentativeGroup, member: ConsumerMember) -> None:
    """Remove a member from the group. The other members are assigned anew with their next heartbeats."""
    draft.remove(member)
    draft.drop_unused_regexes()
    draft.next_epoch(forced=True)


def check_commit(
    group: ConsumerGroup, request: CommitOffsets | CommitTransactionalOffsets
) -> ErrorCode | ConsumerMember | None:
    """Check a commit of offsets.

    Returns:
        None if all offsets may be committed, or the error for all of them. The member if the request has an old epoch
        of it: then it may commit the partitions that it has owned without interruption since that epoch.
    """
    transactional, epoch = isinstance(request, CommitTransactionalOffsets), request.generation_id
    if epoch < 0 and not group.members:
        return None
    if transactional and epoch == LEAVE_EPOCH and not request.member_id and request.group_instance_id is None:
        return None
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    classic = member.wants.classic is not None
    if not transactional and not classic and not request.has_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return None
    return stale_code(member, has_member_epochs=request.has_member_epochs) if epoch > member.epoch else member


def stale_code(member: ConsumerMember, *, has_member_epochs: bool) -> ErrorCode:
    """Return the code for another epoch. Classic members, and requests without member epochs, know generations only."""
    if has_member_epochs and member.wants.classic is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error of a fetch of offsets. Allowed are clients without a member, and members in their epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else stale_code(member, has_member_epochs=True)


def _identify(draft: TentativeGroup, request: ConsumerHeartbeat) -> ConsumerMember | Refusal:
    group = draft.group
    joins = request.member_epoch == 0
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None and not joins:
            return unknown_member(group.group_id, request.member_id)
    else:
        member = group.static_member(request.instance_id)
        if joins and member is not None:
            return _come_back(draft, request, member)
        if not joins and member is None:
            return unknown_member(group.group_id, request.member_id)
        if member is not None and member.member_id != request.member_id:
            return _fenced_instance(request, member)
    if member is None:
        member_step(MemberState.ABSENT, MemberEvent.JOINED)
        return ConsumerMember(member_id=request.member_id)
    return _check_epoch(member, request) or member


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> Refusal | None:
    """Check the epoch: the member's own, or the one before if the answer with the new one may have been lost."""
    epoch = request.member_epoch
    lost = epoch == member.previous_epoch and request.owned is not None and request.owned <= member.assigned.keys()
    if epoch in (0, member.epoch) or (epoch < member.epoch and lost):
        return None
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member is in epoch {member.epoch}, not {epoch}: it has to give up its partitions and to join again.",
    )


def continue_as(draft: TentativeGroup, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Let a static member continue under a new id, with the assignment and the target of the old one."""
    group_id = draft.group.group_id
    target = draft.group.target_of(old.member_id)
    draft.remove(old)
    state = member_step(MemberState.ABSENT, MemberEvent.JOINED)
    member = replace(old, member_id=member_id, state=state, epoch=0, previous_epoch=0)
    draft.write(MemberKey(group_id, member_id), member.wants)
    draft.write(TargetMemberKey(group_id, member_id), TargetMemberValue(target))
    draft.write(CurrentAssignmentKey(group_id, member_id), member.current())
    return member


def _come_back(draft: TentativeGroup, request: ConsumerHeartbeat, old: ConsumerMember) -> ConsumerMember | Refusal:
    """Let a static member return. Its old id must have left temporarily, or use the classic protocol."""
    if old.away or old.wants.classic is not None:
        return continue_as(draft, old, request.member_id)
    return Refusal(
        ErrorCode.UNRELEASED_INSTANCE_ID, f"Member {old.member_id} has instance id {request.instance_id} still."
    )


def _merge(wants: MemberValue, request: ConsumerHeartbeat) -> MemberValue:
    """Return the member's wishes. Fields that the request leaves out do not change."""
    names = wants.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    timeout_ms = request.rebalance_timeout_ms
    return MemberValue(
        instance_id=wants.instance_id if request.instance_id is None else request.instance_id,
        rack_id=wants.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=names,
        topic_regex=wants.topic_regex if request.topic_regex is None else request.topic_regex,
        rebalance_timeout_ms=wants.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=wants.server_assignor if request.server_assignor is None else request.server_assignor,
    )


def _subscription(wants: MemberValue) -> tuple[tuple[str, ...], str]:
    return wants.topic_names, wants.topic_regex or ""


def _fenced_instance(request: ConsumerHeartbeat, holder: ConsumerMember) -> Refusal:
    message = f"Instance id {request.instance_id} belongs to member {holder.member_id}, not to {request.member_id}."
    return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
