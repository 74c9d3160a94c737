"""Share groups at run time (KIP-932): heartbeats, leaves and session timeouts.

The counterpart of `ConsumerGroups`. The groups are in the store. This module has their timers, and the version of the
topics that each group's epoch reflects. A member moves to its new assignment at once, without revocation, because
several members may read one partition.

Source: `GroupMetadataManager.shareGroupHeartbeat` of Apache Kafka 4.3.1. Differences: assignments are made at once, and
a target assignment is not written before its member receives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from fencepost.broker.coordinator.group.classic.rebalance import Out
from fencepost.broker.coordinator.group.config import GroupConfig, MemberTiming
from fencepost.broker.coordinator.group.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.records import GroupRecord
from fencepost.broker.coordinator.group.replay import GroupStore
from fencepost.broker.coordinator.group.requests import (
    ConsumerHeartbeatReply,
    DescribedShareGroup,
    GroupResult,
    Refusal,
    ShareHeartbeat,
)
from fencepost.broker.coordinator.group.share.assignor import assign
from fencepost.broker.coordinator.group.share.group import LEAVE_EPOCH, ShareGroup, ShareGroupMember, ShareGroupState
from fencepost.broker.coordinator.group.topics import Topics, metadata_hash
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.share_group_log import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupLogKey,
    ShareGroupLogValue,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
)

__all__ = ["ShareGroups", "check_request", "not_a_share_group"]

Targets = dict[str, frozenset[TopicIdPartition]]


_LONGEST_MEMBER_ID = 36  # of a UUID, as text


def check_request(request: ShareHeartbeat) -> Refusal | None:
    """Check a request by itself. Return the refusal, or None."""
    problem = None
    if not request.member_id.strip():
        problem = "The member id is empty."
    elif len(request.member_id) > _LONGEST_MEMBER_ID:
        problem = f"The member id is longer than {_LONGEST_MEMBER_ID} characters."
    elif not request.group_id.strip():
        problem = "The group id is empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "The rack id is empty."
    elif request.member_epoch < LEAVE_EPOCH:
        problem = f"A member epoch of {request.member_epoch} means nothing."
    elif request.member_epoch == 0 and not request.topic_names:
        problem = "A member that joins has to subscribe to topics."
    return None if problem is None else Refusal(ErrorCode.INVALID_REQUEST, problem)


class ShareGroups:
    """The share groups of a coordinator."""

    __slots__ = ("_config", "_deadlines", "_seen_topics", "_shares", "_store", "_timing", "_topics")

    def __init__(
        self,
        config: GroupConfig,
        store: GroupStore,
        deadlines: Deadlines[Deadline],
        topics: Topics,
        timing: Callable[[str], MemberTiming] | None,
    ) -> None:
        self._config = config
        self._store = store
        self._deadlines = deadlines
        self._topics = topics
        self._timing = timing or (lambda _: config.consumer_timing)
        self._seen_topics: dict[str, int] = {}
        self._shares: dict[str, tuple[object, Targets]] = {}
        """Target assignments by group, with the subscriptions and topics that they were made from."""

    def find(self, group_id: str) -> ShareGroup | None:
        """Return the share group with the id."""
        return self._store.share_groups.get(group_id)

    def load(self, now_ms: int) -> None:
        """Start all sessions after the records were replayed."""
        for group in self._store.share_groups.values():
            for member_id in group.members:
                self._touch(now_ms, group.group_id, member_id)

    def heartbeat(self, now_ms: int, request: ShareHeartbeat, out: Out) -> ConsumerHeartbeatReply:
        """Handle ShareGroupHeartbeat v1, already checked."""
        group = self.find(request.group_id)
        if group is None and request.member_epoch != 0:
            why = f"There is no share group {request.group_id}."
            return ConsumerHeartbeatReply.refusing(ErrorCode.GROUP_ID_NOT_FOUND, why)
        group = group or ShareGroup(request.group_id)
        member = group.members.get(request.member_id)
        if member is None and request.member_epoch != 0:
            why = f"Group {group.group_id} has no member {request.member_id}."
            return ConsumerHeartbeatReply.refusing(ErrorCode.UNKNOWN_MEMBER_ID, why)
        if request.member_epoch == LEAVE_EPOCH and member is not None:
            self._fence(group, member, out)
            return ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        if member is None and len(group.members) >= self._config.share_max_size:
            return ConsumerHeartbeatReply.refusing(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} is full.")
        before = member or ShareGroupMember(member_id=request.member_id)
        if member is not None and request.member_epoch not in (0, member.epoch, member.previous_epoch):
            return ConsumerHeartbeatReply.refusing(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member is in epoch {member.epoch}, not {request.member_epoch}: it has to join again.",
            )
        after = self._move(group, before, request, out)
        self._touch(now_ms, group.group_id, after.member_id)
        full = request.member_epoch == 0 or request.topic_names is not None
        return ConsumerHeartbeatReply(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._timing(group.group_id).heartbeat_interval_ms,
            assignment=after.assigned if full or after.assigned != before.assigned else None,
        )

    def on_deadline(self, deadline: Deadline, out: Out) -> None:
        """Remove a member whose session has expired."""
        group = self.find(deadline.group_id)
        member = group.members.get(deadline.member_id) if group is not None else None
        if group is not None and member is not None:
            self._fence(group, member, out)

    def make(self, group_id: str, out: GroupResult[Any]) -> Refusal | None:
        """Write a group without members unless it exists. Return a refusal if that is impossible."""
        group = self.find(group_id)
        if group is not None and group.members:
            return Refusal(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        if group is None:
            out.records.append(GroupRecord(ShareGroupKey(group_id), ShareGroupValue(0)))
        return None

    def delete(self, group: ShareGroup, out: Out) -> None:
        """Write the tombstone of a group without members."""
        out.records.append(GroupRecord(ShareGroupKey(group.group_id), None))
        self._seen_topics.pop(group.group_id, None)
        self._shares.pop(group.group_id, None)

    def describe(self, group_id: str, *, exists_otherwise: bool) -> DescribedShareGroup:
        """Describe one group for ShareGroupDescribe v1."""
        group = self.find(group_id)
        if group is None:
            why = f"Group {group_id} is not a share group." if exists_otherwise else f"Group {group_id} not found."
            return DescribedShareGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=why,
                state=ShareGroupState.DEAD,
            )
        return DescribedShareGroup(
            group_id=group_id, state=group.state, epoch=group.epoch, members=list(group.members.values())
        )

    def _move(self, group: ShareGroup, before: ShareGroupMember, request: ShareHeartbeat, out: Out) -> ShareGroupMember:
        """Return the member with its request and its part of the assignment, in the group's epoch."""
        draft = group.copy()

        def write(key: ShareGroupLogKey, value: ShareGroupLogValue) -> None:
            out.records.append(GroupRecord(key, value))
            draft.replay(key, value)

        group_id, member_id = group.group_id, before.member_id
        wants = _merge(before.wants, request)
        is_new = member_id not in group.members
        if is_new or wants != before.wants:
            write(ShareMemberKey(group_id, member_id), wants)
        subscribed = is_new or wants.topic_names != before.wants.topic_names
        if subscribed or self._seen_topics.get(group_id) != self._topics.version:
            names = {name for member in draft.members.values() for name in member.wants.topic_names}
            digest = metadata_hash(self._topics, names)
            if subscribed or digest != draft.metadata_hash:
                write(ShareGroupKey(group_id), ShareGroupValue(draft.epoch + 1, digest))
            else:  # with records, it is unknown if they will be written
                self._seen_topics[group_id] = self._topics.version
        share = self._shares_of(draft, member_id)[member_id]
        if before.epoch != draft.epoch or share != before.assigned:
            write(ShareCurrentKey(group_id, member_id), ShareCurrentValue(draft.epoch, before.epoch, share))
        return draft.members[member_id]

    def _shares_of(self, group: ShareGroup, asking: str) -> Targets:
        """Return the target assignment of each member. `asking` counts as the latest to send a heartbeat."""
        basis = (group.metadata_hash, frozenset((m.member_id, m.wants.topic_names) for m in group.members.values()))
        known = self._shares.get(group.group_id)
        if known is None or known[0] != basis:
            found = {
                name: topic
                for member in group.members.values()
                for name in member.wants.topic_names
                if (topic := self._topics.find(name)) is not None
            }
            subscriptions: dict[str, Sequence[UUID]] = {
                member_id: [found[name][0] for name in member.wants.topic_names if name in found]
                for member_id, member in group.members.items()
            }
            targets: Targets = {} if known is None else known[1]
            present = {name: targets.get(name, member.assigned) for name, member in group.members.items()}
            heard_ms = {name: self._session_end_ms(group.group_id, name) for name in group.members}
            heard_ms[asking] = max(heard_ms.values()) + 1
            known = (basis, assign(subscriptions, dict(found.values()), present, heard_ms))
            self._shares[group.group_id] = known
        return known[1]

    def _session_end_ms(self, group_id: str, member_id: str) -> int:
        """Return the end of a session.

        All sessions of a group have one length, so the ends order the members' heartbeats.
        """
        return self._deadlines.due_ms(Deadline(DeadlineKind.SHARE_SESSION, group_id, member_id)) or 0

    def _fence(self, group: ShareGroup, member: ShareGroupMember, out: Out) -> None:
        """Remove a member from the group. The other members are assigned anew with their next heartbeats."""
        out.records.append(GroupRecord(ShareCurrentKey(group.group_id, member.member_id), None))
        out.records.append(GroupRecord(ShareMemberKey(group.group_id, member.member_id), None))
        value = ShareGroupValue(group.epoch + 1, group.metadata_hash)
        out.records.append(GroupRecord(ShareGroupKey(group.group_id), value))

    def _touch(self, now_ms: int, group_id: str, member_id: str) -> None:
        timeout_ms = self._timing(group_id).session_timeout_ms
        self._deadlines.set(Deadline(DeadlineKind.SHARE_SESSION, group_id, member_id), now_ms + timeout_ms)


def _merge(wants: ShareMemberValue, request: ShareHeartbeat) -> ShareMemberValue:
    """Return the member's wishes. Fields that the request omits do not change."""
    changed = replace(wants, client_id=request.client_id, client_host=request.client_host)
    if request.rack_id is not None:
        changed = replace(changed, rack_id=request.rack_id)
    if request.topic_names is not None:
        changed = replace(changed, topic_names=tuple(sorted(set(request.topic_names))))
    return changed


def not_a_share_group(group_id: str) -> Refusal:
    """Return the refusal for a group of another kind."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
