"""Share groups at run time (KIP-932): heartbeats, leaves and session timeouts.

A member moves to its new assignment at once, without revocation, because several members may read one partition. A
share group has no committed offsets, and stays a share group.

Source: `GroupMetadataManager.shareGroupHeartbeat` of Apache Kafka 4.3.1. Differences: assignments are made at once, and
a target assignment is not written before its member receives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from fencepost.broker.coordinator.group.base.deadlines import DeadlineKind
from fencepost.broker.coordinator.group.base.draft import Draft
from fencepost.broker.coordinator.group.base.kind import GroupKind, KindContext, RecordedKind, refuse
from fencepost.broker.coordinator.group.base.records import GroupRecord, LogCodec
from fencepost.broker.coordinator.group.base.requests import (
    AssignmentReply,
    CommitOffsets,
    CommitTransactionalOffsets,
    Out,
    Refusal,
    is_blank,
    unknown_member,
)
from fencepost.broker.coordinator.group.base.topics import metadata_hash
from fencepost.broker.coordinator.group.share.assignor import assign
from fencepost.broker.coordinator.group.share.group import LEAVE_EPOCH, ShareGroup, ShareGroupMember, ShareGroupState
from fencepost.broker.coordinator.group.share.requests import LONGEST_MEMBER_ID, DescribedShareGroup, ShareHeartbeat
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.share_group_log import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
    decode_share_group_key,
    decode_share_group_value,
    encode_share_group_key,
    encode_share_group_value,
)

__all__ = ["ShareGroups"]

Targets = dict[str, frozenset[TopicIdPartition]]


class ShareGroups(RecordedKind[DescribedShareGroup, ShareGroup, ShareHeartbeat, AssignmentReply]):
    """The share groups of a coordinator."""

    name = "share"
    log = LogCodec(
        (ShareGroupKey, ShareMemberKey, ShareCurrentKey),
        encode_share_group_key,
        decode_share_group_key,
        encode_share_group_value,
        decode_share_group_value,
    )
    group_key = ShareGroupKey
    expires = False
    max_size_setting = "group.share.max.size"
    reply = AssignmentReply
    described = DescribedShareGroup
    dead = ShareGroupState.DEAD

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        self._seen_topics: dict[str, int] = {}  # version of the topics that a group's epoch reflects
        self._shares: dict[str, tuple[object, Targets]] = {}
        """Target assignments by group, with the subscriptions and topics that they were made from."""

    def new_group(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id)

    def load(self, now_ms: int, out: Out) -> None:
        for group in self._groups.values():
            for member_id in group.members:
                self._touch(now_ms, group.group_id, member_id)

    def takes_over(self, present: GroupKind[Any], group_id: str) -> bool:
        return False

    def check(self, request: ShareHeartbeat) -> Refusal | None:
        problem = None
        if is_blank(request.member_id):
            problem = "The member id is empty."
        elif len(request.member_id) > LONGEST_MEMBER_ID:
            problem = f"The member id is longer than {LONGEST_MEMBER_ID} characters."
        elif is_blank(request.group_id):
            problem = "The group id is empty."
        elif is_blank(request.rack_id):
            problem = "The rack id is empty."
        elif request.member_epoch < LEAVE_EPOCH:
            problem = f"A member epoch of {request.member_epoch} means nothing."
        elif request.member_epoch == 0 and not request.topic_names:
            problem = "A member that joins has to subscribe to topics."
        return None if problem is None else Refusal(ErrorCode.INVALID_REQUEST, problem)

    def heartbeat(self, now_ms: int, request: ShareHeartbeat, out: Out) -> AssignmentReply:
        """Handle ShareGroupHeartbeat v1, already checked."""
        group = self.find(request.group_id) or ShareGroup(request.group_id)
        member = group.members.get(request.member_id)
        if member is None and request.member_epoch != 0:
            return self.refusing(*unknown_member(group.group_id, request.member_id))
        if request.member_epoch == LEAVE_EPOCH and member is not None:
            self._fence(group, member, out)
            return AssignmentReply(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        full = self._full(group, request.member_id)
        if full is not None:
            return self.refusing(*full)
        before = member or ShareGroupMember(member_id=request.member_id)
        if member is not None and request.member_epoch not in (0, member.epoch, member.previous_epoch):
            return self.refusing(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member is in epoch {member.epoch}, not {request.member_epoch}: it has to join again.",
            )
        after = self._move(group, before, request, out)
        self._touch(now_ms, group.group_id, after.member_id)
        whole = request.member_epoch == 0 or request.topic_names is not None
        return AssignmentReply(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.of_group(group.group_id).number("share.heartbeat.interval.ms"),
            assignment=after.assigned if whole or after.assigned != before.assigned else None,
        )

    def expire(self, now_ms: int, group: ShareGroup, member: ShareGroupMember, kind: DeadlineKind, out: Out) -> None:
        self._fence(group, member, out)

    def make(self, group_id: str, out: Out) -> Refusal | None:
        """Write a group without members unless it exists. Return a refusal if that is impossible."""
        group = self.find(group_id)
        if group is not None and group.members:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        if group is None:
            out.records.append(GroupRecord(ShareGroupKey(group_id), ShareGroupValue(0)))
        return None

    def refused_commits(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> Mapping[tuple[str, int], ErrorCode]:
        return refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)

    def check_offset_delete(self, group_id: str) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def delete(self, group_id: str, out: Out) -> None:
        out.records.append(GroupRecord(ShareGroupKey(group_id), None))
        self._seen_topics.pop(group_id, None)
        self._shares.pop(group_id, None)

    def describe(self, group_id: str) -> DescribedShareGroup | None:
        group = self.find(group_id)
        if group is None:
            return None
        return DescribedShareGroup(
            group_id=group_id, state=group.state, epoch=group.epoch, members=list(group.members.values())
        )

    def _move(self, group: ShareGroup, before: ShareGroupMember, request: ShareHeartbeat, out: Out) -> ShareGroupMember:
        """Return the member with its request and its part of the assignment, in the group's epoch."""
        draft = Draft(group)
        group_id, member_id = group.group_id, before.member_id
        wants = _merge(before.wants, request)
        is_new = member_id not in group.members
        if is_new or wants != before.wants:
            draft.write(ShareMemberKey(group_id, member_id), wants)
        subscribed = is_new or wants.topic_names != before.wants.topic_names
        if subscribed or self._seen_topics.get(group_id) != self._topics.version:
            names = {name for member in draft.group.members.values() for name in member.wants.topic_names}
            digest = metadata_hash(self._topics, names)
            if subscribed or digest != draft.group.metadata_hash:
                draft.write(ShareGroupKey(group_id), ShareGroupValue(draft.group.epoch + 1, digest))
            else:  # with records, it is unknown if they will be written
                self._seen_topics[group_id] = self._topics.version
        share = self._shares_of(draft.group, member_id)[member_id]
        if before.epoch != draft.group.epoch or share != before.assigned:
            draft.write(ShareCurrentKey(group_id, member_id), ShareCurrentValue(draft.group.epoch, before.epoch, share))
        out.records.extend(draft.records)
        return draft.group.members[member_id]

    def _shares_of(self, group: ShareGroup, asking: str) -> Targets:
        """Return the target assignment of each member. `asking` counts as the latest to send a heartbeat."""
        basis = (group.metadata_hash, frozenset((m.member_id, m.wants.topic_names) for m in group.members.values()))
        known = self._shares.get(group.group_id)
        if known is None or known[0] != basis:
            topics_by_name = {
                name: topic
                for member in group.members.values()
                for name in member.wants.topic_names
                if (topic := self._topics.find(name)) is not None
            }
            subscriptions: dict[str, Sequence[UUID]] = {
                member_id: [topics_by_name[name][0] for name in member.wants.topic_names if name in topics_by_name]
                for member_id, member in group.members.items()
            }
            targets: Targets = {} if known is None else known[1]
            present = {name: targets.get(name, member.assigned) for name, member in group.members.items()}
            last_heartbeat_ms = {name: self._session_end_ms(group.group_id, name) for name in group.members}
            last_heartbeat_ms[asking] = max(last_heartbeat_ms.values()) + 1
            known = (basis, assign(subscriptions, dict(topics_by_name.values()), present, last_heartbeat_ms))
            self._shares[group.group_id] = known
        return known[1]

    def _session_end_ms(self, group_id: str, member_id: str) -> int:
        """Return the end of a session.

        All sessions of a group have one length, so the ends order the members' heartbeats.
        """
        return self._deadlines.due_ms(self._deadline(DeadlineKind.SESSION, group_id, member_id)) or 0

    def _fence(self, group: ShareGroup, member: ShareGroupMember, out: Out) -> None:
        """Remove a member from the group. The other members get new assignments with their next heartbeats."""
        out.records.append(GroupRecord(ShareCurrentKey(group.group_id, member.member_id), None))
        out.records.append(GroupRecord(ShareMemberKey(group.group_id, member.member_id), None))
        value = ShareGroupValue(group.epoch + 1, group.metadata_hash)
        out.records.append(GroupRecord(ShareGroupKey(group.group_id), value))

    def _touch(self, now_ms: int, group_id: str, member_id: str) -> None:
        timeout_ms = self._settings.of_group(group_id).number("share.session.timeout.ms")
        self._deadlines.set(self._deadline(DeadlineKind.SESSION, group_id, member_id), now_ms + timeout_ms)


def _merge(wants: ShareMemberValue, request: ShareHeartbeat) -> ShareMemberValue:
    """Return the member's request, in which omitted fields keep their previous values."""
    changed = replace(wants, client_id=request.client_id, client_host=request.client_host)
    if request.rack_id is not None:
        changed = replace(changed, rack_id=request.rack_id)
    if request.topic_names is not None:
        changed = replace(changed, topic_names=tuple(sorted(set(request.topic_names))))
    return changed
