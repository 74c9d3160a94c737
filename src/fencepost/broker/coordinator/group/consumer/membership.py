"""Consumer groups at run time (KIP-848): heartbeats, leaves, session timeouts and revocation timeouts.

A group may also have members with the classic protocol (`migration.py`). A classic group becomes a consumer group when
a member with the consumer protocol joins, and a consumer group becomes a classic one when only members with the classic
protocol are left. `group.consumer.migration.policy` limits both for groups with members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fencepost.arguments import brief_repr
from fencepost.broker.coordinator.group.base.deadlines import DeadlineKind
from fencepost.broker.coordinator.group.base.kind import GroupKind, KindContext, RecordedKind, refuse
from fencepost.broker.coordinator.group.base.member_states import MemberState
from fencepost.broker.coordinator.group.base.records import LogCodec
from fencepost.broker.coordinator.group.base.requests import (
    AssignmentReply,
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    LeftMember,
    Out,
    Refusal,
    Synced,
    SyncGroup,
    Token,
)
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.consumer import decide
from fencepost.broker.coordinator.group.consumer.assignors import ASSIGNORS
from fencepost.broker.coordinator.group.consumer.group import (
    AWAY_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
)
from fencepost.broker.coordinator.group.consumer.migration import (
    all_classic,
    check_classic,
    convert,
    join_classic,
    leaving,
    must_rejoin,
    share,
    to_classic,
)
from fencepost.broker.coordinator.group.consumer.requests import (
    ConsumerHeartbeat,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from fencepost.broker.coordinator.group.consumer.tentative_group import TentativeGroup, tombstones
from fencepost.broker.settings.table import InvalidSetting
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import (
    ConsumerGroupKey,
    CurrentAssignmentKey,
    MemberKey,
    RegexKey,
    TargetKey,
    TargetMemberKey,
    TopicIdPartition,
    decode_consumer_group_key,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
)

__all__ = ["ConsumerGroups"]

_DISABLED = "disabled"
_MAY_UPGRADE = ("upgrade", "bidirectional")
_MAY_DOWNGRADE = ("downgrade", "bidirectional")


class ConsumerGroups(RecordedKind[DescribedConsumerGroup, ConsumerGroup, ConsumerHeartbeat, AssignmentReply]):
    """The consumer groups of a coordinator."""

    name = "consumer"
    log = LogCodec(
        (ConsumerGroupKey, MemberKey, TargetKey, TargetMemberKey, CurrentAssignmentKey, RegexKey),
        encode_consumer_group_key,
        decode_consumer_group_key,
        encode_consumer_group_value,
        decode_consumer_group_value,
    )
    group_key = ConsumerGroupKey
    max_size_setting = "group.consumer.max.size"
    reply = AssignmentReply
    described = DescribedConsumerGroup
    dead = ConsumerGroupState.DEAD

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        settings = context.settings
        self._classic = context.kinds.get(ClassicGroups)
        self._classic_max_size = settings.number("group.max.size")
        self._policy = settings.text("group.consumer.migration.policy")
        self._assignors = _assignors(settings.text("group.consumer.assignors"))
        self._seen_topics: dict[str, int] = {}  # version of the topics that a group's epoch reflects

    def new_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id)

    def load(self, now_ms: int, out: Out) -> None:
        for group in self._groups.values():
            for member in group.members.values():
                self._touch(now_ms, group.group_id, member)
                self._watch_revocation(now_ms, group.group_id, member)

    # The heartbeat

    def check(self, request: ConsumerHeartbeat) -> Refusal | None:
        return decide.check_request(request, self._assignors)

    def takes_over(self, present: GroupKind[Any], group_id: str) -> bool:
        return present is self._classic

    def heartbeat(self, now_ms: int, request: ConsumerHeartbeat, out: Out) -> AssignmentReply:
        """Handle ConsumerGroupHeartbeat v0-1, already checked."""
        group = self.find(request.group_id)
        if group is not None:
            return self._heartbeat(now_ms, request, out, group)
        classic = self._classic.find(request.group_id)
        if classic is None or classic.is_empty:
            return self._heartbeat(now_ms, request, out, ConsumerGroup(request.group_id))
        draft = self._converted(now_ms, request.group_id, len(classic.members))
        if isinstance(draft, Refusal):
            return self.refusing(*draft)
        out.records.extend(draft.records)
        reply = self._heartbeat(now_ms, request, out, draft.group)
        if reply.error_code:
            out.records.clear()
        else:
            for member in draft.group.members.values():
                self._touch(now_ms, draft.group.group_id, member)
        return reply

    def _heartbeat(self, now_ms: int, request: ConsumerHeartbeat, out: Out, group: ConsumerGroup) -> AssignmentReply:
        """Handle a heartbeat to a group that is stored, or about to be."""
        draft = self._draft(now_ms, group)
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._leave(now_ms, draft, request, out)
        full = self._full(group, request.member_id)
        if full is not None:
            return self.refusing(*full)
        if not request.member_id:
            request = replace(request, member_id=self._new_uuid())
        before = group.members.get(request.member_id)
        member = decide.decide_heartbeat(draft, request)
        if isinstance(member, Refusal):
            return self.refusing(*member)
        out.records.extend(draft.records)
        if not draft.records:  # with records, it is unknown if they will be written
            self._seen_topics[group.group_id] = self._topics.version
        self._touch(now_ms, group.group_id, member)
        if member != before:
            self._watch_revocation(now_ms, group.group_id, member)
        whole = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and (request.topic_names is not None or request.topic_regex is not None)
            and request.owned is not None
        )
        moved = before is None or before.assigned.keys() != member.assigned.keys()
        return AssignmentReply(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.of_group(group.group_id).number("consumer.heartbeat.interval.ms"),
            assignment=frozenset(member.assigned) if whole or moved else None,
        )

    def expire(self, now_ms: int, group: ConsumerGroup, member: ConsumerMember, kind: DeadlineKind, out: Out) -> None:
        if kind == DeadlineKind.REVOCATION and not self._is_late(group, member):
            return
        draft = self._draft(now_ms, group)
        decide.fence(draft, member)
        out.records.extend(draft.records)
        self._member_left(now_ms, draft.group, out)

    # Members with the classic protocol

    def _converted(self, now_ms: int, group_id: str, size: int) -> TentativeGroup | Refusal:
        """Return the consumer group that a classic group with `size` members is converted to, or the refusal."""
        value = self._classic.last_generation(group_id)
        if self._policy not in _MAY_UPGRADE or value is None or size > self._max_size:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        draft = self._draft(now_ms, ConsumerGroup(group_id))
        return convert(draft, value, now_ms, self._topics) or draft

    def _member_left(self, now_ms: int, group: ConsumerGroup, out: Out) -> None:
        """Convert the group to a classic one if only classic members are left."""
        allowed = self._policy in _MAY_DOWNGRADE and len(group.members) <= self._classic_max_size
        value = to_classic(group, self._topics, now_ms) if allowed and all_classic(group) else None
        if value is not None:
            out.records.extend(tombstones(group))
            for member_id in group.members:
                for kind in (DeadlineKind.SESSION, DeadlineKind.REVOCATION):
                    self._deadlines.cancel(self._deadline(kind, group.group_id, member_id))
            self._seen_topics.pop(group.group_id, None)
            self._classic.adopt(now_ms, group.group_id, value, out)

    def join(self, now_ms: int, request: Join, token: Token, out: Out) -> None:
        """Answer JoinGroup at once, because the protocol has no join phase. An empty group becomes a classic one."""
        group = self._groups[request.group_id]
        if not group.members:
            self.delete(request.group_id, out)
            self._classic.join(now_ms, request, token, out)
            return
        if self._policy == _DISABLED:
            super().join(now_ms, request, token, out)
            return
        if self._full(group, request.member_id) is not None:
            out.replies.append((token, Joined(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)))
            return
        draft = self._draft(now_ms, group)
        member_id = request.new_member_id(self._new_uuid())
        member = join_classic(draft, request, member_id, self._topics)
        if isinstance(member, Joined):
            out.replies.append((token, member))
            return
        out.records.extend(draft.records)
        self._touch(now_ms, group.group_id, member)
        self._deadlines.cancel(self._deadline(DeadlineKind.REVOCATION, group.group_id, member.member_id))
        answer = Joined(
            generation_id=member.epoch,
            protocol_type=request.protocol_type,
            protocol_name=request.protocols[0][0],
            member_id=member.member_id,
        )
        out.replies.append((token, answer))

    def sync(self, now_ms: int, request: SyncGroup, token: Token, out: Out) -> None:
        out.replies.append((token, self._sync(now_ms, self._groups[request.group_id], request)))

    def _sync(self, now_ms: int, group: ConsumerGroup, request: SyncGroup) -> Synced:
        member = check_classic(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return Synced(error_code=member)
        if group.epoch > member.epoch and member.state != MemberState.UNREVOKED:
            self._wait_for_join(now_ms, group, member)
            return Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._touch(now_ms, group.group_id, member)
        return share(member, request, self._topics)

    def member_heartbeat(self, now_ms: int, request: Heartbeat) -> ErrorCode:
        group = self._groups[request.group_id]
        member = check_classic(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return member
        self._touch(now_ms, group.group_id, member)
        if not must_rejoin(group, member):
            return ErrorCode.NONE
        self._wait_for_join(now_ms, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, now_ms: int, request: Leave, out: Out) -> Left:
        """Answer LeaveGroup of classic members, and of administrators."""
        draft = self._draft(now_ms, self._groups[request.group_id])
        answers = []
        for wanted in request.members:
            member = leaving(draft.group, wanted)
            error = member if isinstance(member, ErrorCode) else ErrorCode.NONE
            answers.append(LeftMember(wanted.member_id, wanted.group_instance_id, error))
            if not isinstance(member, ErrorCode):
                decide.fence(draft, member)
        if draft.records:
            out.records.extend(draft.records)
            self._member_left(now_ms, draft.group, out)
        return Left(members=answers)

    def _wait_for_join(self, now_ms: int, group: ConsumerGroup, member: ConsumerMember) -> None:
        deadline = self._deadline(DeadlineKind.REVOCATION, group.group_id, member.member_id)
        self._deadlines.set_if_absent(deadline, now_ms + member.wants.rebalance_timeout_ms)

    # Offsets

    def refused_commits(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Return none, all, or the partitions that the member has not owned since its old epoch."""
        verdict = decide.check_commit(self._groups[request.group_id], request)
        if verdict is None or isinstance(verdict, ErrorCode):
            return refuse(request, verdict or ErrorCode.NONE)
        refused: dict[tuple[str, int], ErrorCode] = {}
        for wanted in request.offsets:
            topic = self._topics.find(wanted.topic)
            since = None
            if topic is not None:
                partition = TopicIdPartition(topic[0], wanted.partition)
                since = verdict.assigned.get(partition, verdict.revoking.get(partition))
            if since is None or request.generation_id < since:
                code = decide.stale_code(verdict, has_member_epochs=request.has_member_epochs)
                refused[wanted.topic, wanted.partition] = code
        return refused

    def check_fetch(self, request: FetchOffsets) -> ErrorCode:
        return decide.check_fetch(self._groups[request.group_id], request.member_id, request.member_epoch)

    # The group as a whole

    def delete(self, group_id: str, out: Out) -> None:
        out.records.extend(tombstones(self._groups[group_id]))
        self._seen_topics.pop(group_id, None)

    def describe(self, group_id: str) -> DescribedConsumerGroup | None:
        group = self.find(group_id)
        if group is None:
            return None
        return DescribedConsumerGroup(
            group_id=group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=group.assignor(self._assignors[0]),
            members=[
                DescribedConsumerMember(member=member, target=group.target_of(member.member_id))
                for member in group.members.values()
            ],
        )

    def _draft(self, now_ms: int, group: ConsumerGroup) -> TentativeGroup:
        changed = self._seen_topics.get(group.group_id) != self._topics.version
        return TentativeGroup(group, self._topics, now_ms, self._assignors, topics_changed=changed)

    def _leave(self, now_ms: int, draft: TentativeGroup, request: ConsumerHeartbeat, out: Out) -> AssignmentReply:
        refusal = decide.decide_leave(draft, request)
        if refusal is not None:
            return self.refusing(*refusal)
        out.records.extend(draft.records)
        if request.member_epoch == LEAVE_EPOCH:
            self._member_left(now_ms, draft.group, out)
        else:
            self._deadlines.cancel(self._deadline(DeadlineKind.REVOCATION, request.group_id, request.member_id))
        return AssignmentReply(member_id=request.member_id, member_epoch=request.member_epoch)

    def _touch(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        classic = member.wants.classic
        if classic is None:
            timeout_ms = self._settings.of_group(group_id).number("consumer.session.timeout.ms")
        else:
            timeout_ms = classic.session_timeout_ms
        self._deadlines.set(self._deadline(DeadlineKind.SESSION, group_id, member.member_id), now_ms + timeout_ms)

    def _is_late(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        if member.wants.classic is not None:
            return must_rejoin(group, member)
        return member.state == MemberState.UNREVOKED

    def _watch_revocation(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        deadline = self._deadline(DeadlineKind.REVOCATION, group_id, member.member_id)
        if member.state == MemberState.UNREVOKED and member.wants.classic is None:
            self._deadlines.set(deadline, now_ms + member.wants.rebalance_timeout_ms)
        else:
            self._deadlines.cancel(deadline)


def _assignors(text: str) -> tuple[str, ...]:
    """Return the assignors of a list. Raises InvalidSetting for an empty list and for an unknown assignor."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise InvalidSetting(f"group.consumer.assignors: {brief_repr(text)}; known are {', '.join(ASSIGNORS)}")
    return names
