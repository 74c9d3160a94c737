"""Rebalances of classic groups: all members join, the leader assigns, and all members sync.

Late members are removed.

The methods of `Rebalancer` change the groups in memory (`group.py`), and put due answers and records into a
GroupResult. Source: `GroupMetadataManager` of Apache Kafka 4.x. Differences: with an initial delay of 0 the first join
phase ends at once, and a parked request is always answered, also where Kafka lets it run into the client's timeout (its
member left, or sent it again on another connection).
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import Joined, Out, Synced, Token
from fencepost.broker.coordinator.group.classic.group import ClassicGroupMember, Group
from fencepost.broker.coordinator.group.classic.states import GroupEvent, GroupState
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import GroupMetadataKey

__all__ = ["NAME", "Rebalancer"]

NAME: Final = "classic"
"""The name of this group kind."""


class Rebalancer:
    """Moves groups through their join and sync phases."""

    __slots__ = ("_deadlines", "_initial_delay_ms")

    def __init__(self, initial_delay_ms: int, deadlines: Deadlines[Deadline]) -> None:
        self._initial_delay_ms = initial_delay_ms
        self._deadlines = deadlines

    # Sessions

    def touch(self, now_ms: int, group: Group, member_id: str, timeout_ms: int) -> None:
        """Start the member's session anew: it ends in `timeout_ms`."""
        self._deadlines.set(Deadline(NAME, DeadlineKind.SESSION, group.group_id, member_id), now_ms + timeout_ms)

    def remove(self, group: Group, member_id: str, out: Out, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member or a handed-out id from the group. Its parked requests are answered with `error`."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(group, member, Joined(error_code=error), out)
            self.answer_sync(member, Synced(error_code=error), out)
        group.remove(member_id)
        self._deadlines.cancel(Deadline(NAME, DeadlineKind.SESSION, group.group_id, member_id))

    def session_ended(self, now_ms: int, group: Group, member_id: str, out: Out) -> None:
        """Remove the member of an expired session.

        A member with a parked request stays, because it cannot send heartbeats.
        """
        member = group.members.get(member_id)
        if member is not None and member.keeps_session:
            return
        if member is None and member_id not in group.pending_joins:
            return
        self.remove(group, member_id, out)
        if member is not None and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(now_ms, group, out)
        elif group.state == GroupState.PREPARING_REBALANCE and group.all_joined:
            self.complete_join(now_ms, group, out)

    # The join phase

    def members_changed(self, now_ms: int, group: Group, out: Out) -> None:
        """React to a changed member: start a rebalance, or continue the running one."""
        if group.state == GroupState.PREPARING_REBALANCE:
            self.try_complete_join(now_ms, group, out)
        else:
            self.prepare(now_ms, group, out)

    def prepare(self, now_ms: int, group: Group, out: Out) -> None:
        """Start a rebalance. Parked syncs are answered with a request to rejoin."""
        if group.state == GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                if self.answer_sync(member, Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out):
                    self.touch(now_ms, group, member.member_id, member.session_timeout_ms)
        group.pending_syncs.clear()
        self._deadlines.cancel(Deadline(NAME, DeadlineKind.SYNC, group.group_id))
        initial = group.state == GroupState.EMPTY
        group.advance(GroupEvent.MEMBERS_CHANGED, now_ms)
        delay_ms = self._initial_delay_ms
        if initial and delay_ms > 0:
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.new_member_added = False
            self._deadlines.set(Deadline(NAME, DeadlineKind.JOIN, group.group_id), now_ms + delay_ms)
        elif initial or group.all_joined:
            self.complete_join(now_ms, group, out)
        else:
            self._deadlines.set(Deadline(NAME, DeadlineKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)

    def try_complete_join(self, now_ms: int, group: Group, out: Out) -> None:
        """End the join phase if all members have joined. The first join phase of a group always lasts its delay."""
        if group.initial_remaining_ms is None and group.all_joined:
            self.complete_join(now_ms, group, out)

    def join_ended(self, now_ms: int, group: Group, out: Out) -> None:
        """End the join phase at its time limit. The first one is extended while new members arrive."""
        if group.state != GroupState.PREPARING_REBALANCE:
            return
        remaining_ms = group.initial_remaining_ms
        if remaining_ms and group.new_member_added:
            delay_ms = min(self._initial_delay_ms, remaining_ms)
            group.new_member_added = False
            group.initial_remaining_ms = remaining_ms - delay_ms
            self._deadlines.set(Deadline(NAME, DeadlineKind.JOIN, group.group_id), now_ms + delay_ms)
        else:
            self.complete_join(now_ms, group, out)

    def complete_join(self, now_ms: int, group: Group, out: Out) -> None:
        """End the join phase.

        Members that have not rejoined are removed, except static ones; the others get the generation.
        """
        self._deadlines.cancel(Deadline(NAME, DeadlineKind.JOIN, group.group_id))
        missing = [m for m in group.members.values() if m.join_token is None and m.group_instance_id is None]
        for member in missing:
            self.remove(group, member.member_id, out)
        if group.members and not group.elect():
            # Only static members are left, and none has rejoined: wait until their sessions end.
            group.initial_remaining_ms = None
            self._deadlines.set(Deadline(NAME, DeadlineKind.JOIN, group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.start_generation(now_ms)
        if group.state == GroupState.EMPTY:
            out.records.append(GroupRecord(GroupMetadataKey(group.group_id), group.to_value({})))
            return
        for member in group.members.values():
            self.answer_join(group, member, group.joined(member), out)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.touch(now_ms, group, member.member_id, member.session_timeout_ms)
        self._deadlines.set(Deadline(NAME, DeadlineKind.SYNC, group.group_id), now_ms + group.rebalance_timeout_ms)

    # The sync phase

    def synced(self, group: Group, member_id: str) -> None:
        """Note that the member has sent its sync for this generation."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._deadlines.cancel(Deadline(NAME, DeadlineKind.SYNC, group.group_id))

    def assign(self, now_ms: int, group: Group, assignments: dict[str, bytes], out: Out) -> None:
        """Store the leader's assignment and answer every parked sync.

        The group becomes stable when the record is replayed. The answers are sent when it is durable.
        """
        value = group.to_value(assignments)
        out.records.append(GroupRecord(GroupMetadataKey(group.group_id), value))
        for member in group.members.values():
            answer = Synced(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=assignments.get(member.member_id, b""),
            )
            if self.answer_sync(member, answer, out):
                self.touch(now_ms, group, member.member_id, member.session_timeout_ms)

    def sync_ended(self, now_ms: int, group: Group, out: Out) -> None:
        """End the sync phase at its time limit. Members without a sync are removed, and the others rebalance."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
            return
        for member_id in tuple(group.pending_syncs):
            self.remove(group, member_id, out)
        self.prepare(now_ms, group, out)

    # Parked requests

    def park_join(self, group: Group, member: ClassicGroupMember, token: Token, out: Out) -> None:
        """Park a join. An earlier join of the member is answered, because its client has given it up."""
        self.answer_join(group, member, Joined(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
        group.set_join_token(member, token)

    def park_sync(self, member: ClassicGroupMember, token: Token, out: Out) -> None:
        """Park a sync. An earlier sync of the member is answered, because its client has given it up."""
        self.answer_sync(member, Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
        member.sync_token = token

    def answer_join(self, group: Group, member: ClassicGroupMember, answer: Joined, out: Out) -> bool:
        """Answer the member's parked join, if there is one."""
        token = member.join_token
        if token is None:
            return False
        group.set_join_token(member, None)
        out.replies.append((token, answer))
        return True

    def answer_sync(self, member: ClassicGroupMember, answer: Synced, out: Out) -> bool:
        """Answer the member's parked sync, if there is one."""
        token = member.sync_token
        if token is None:
            return False
        member.sync_token = None
        out.replies.append((token, answer))
        return True
