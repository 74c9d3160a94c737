"""Consumer groups at run time (KIP-848): heartbeats, leaves, session timeouts and revocation timeouts.

The counterpart of `ClassicGroups`. The groups are in the store. This module has their timers, and the version of the
topics that each group's epoch reflects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fencepost.broker.coordinator.group.classic.rebalance import Out
from fencepost.broker.coordinator.group.config import GroupConfig, MemberTiming, new_member_id
from fencepost.broker.coordinator.group.consumer import decide
from fencepost.broker.coordinator.group.consumer.group import AWAY_EPOCH, LEAVE_EPOCH, ConsumerGroup, ConsumerMember
from fencepost.broker.coordinator.group.consumer.migration import (
    check_classic,
    convert,
    join_classic,
    leaving,
    must_rejoin,
    share,
)
from fencepost.broker.coordinator.group.consumer.states import ConsumerGroupState, MemberState
from fencepost.broker.coordinator.group.consumer.tentative_group import TentativeGroup, tombstones
from fencepost.broker.coordinator.group.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.replay import GroupStore
from fencepost.broker.coordinator.group.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    LeftMember,
    Refusal,
    Synced,
    SyncGroup,
    Token,
)
from fencepost.broker.coordinator.group.topics import Topics
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.offsets_log import GroupMetadataValue

__all__ = ["ConsumerGroups"]


class ConsumerGroups:
    """The consumer groups of a coordinator."""

    __slots__ = ("_config", "_deadlines", "_member_left", "_new_uuid", "_seen_topics", "_store", "_timing", "_topics")

    def __init__(
        self,
        config: GroupConfig,
        store: GroupStore,
        deadlines: Deadlines[Deadline],
        new_uuid: Callable[[], str],
        topics: Topics,
        timing: Callable[[str], MemberTiming] | None,
        member_left: Callable[[int, ConsumerGroup, Out], None],
    ) -> None:
        """`member_left` is called with the group after a member has left permanently."""
        self._config = config
        self._store = store
        self._deadlines = deadlines
        self._new_uuid = new_uuid
        self._member_left = member_left
        self._topics = topics
        self._timing = timing or (lambda _: config.consumer_timing)
        self._seen_topics: dict[str, int] = {}  # version of the topics that a group's epoch reflects

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group with the id."""
        return self._store.consumer_groups.get(group_id)

    def load(self, now_ms: int) -> None:
        """Start all timers after the records were replayed: members get a full session and revocation timeout."""
        for group in self._store.consumer_groups.values():
            for member in group.members.values():
                self._touch(now_ms, group.group_id, member)
                self._watch_revocation(now_ms, group.group_id, member)

    def heartbeat(
        self, now_ms: int, request: ConsumerHeartbeat, out: Out, group: ConsumerGroup | None = None
    ) -> ConsumerHeartbeatReply:
        """Handle ConsumerGroupHeartbeat v0-1, already checked. `group`: one that is about to be stored."""
        group = group or self.find(request.group_id)
        if group is None:
            if request.member_epoch != 0:
                why = f"There is no consumer group {request.group_id}."
                return ConsumerHeartbeatReply.refusing(ErrorCode.GROUP_ID_NOT_FOUND, why)
            group = ConsumerGroup(request.group_id)
        draft = self._draft(now_ms, group)
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return self._leave(now_ms, draft, request, out)
        if len(group.members) >= self._config.consumer_max_size and request.member_id not in group.members:
            return ConsumerHeartbeatReply.refusing(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} is full.")
        if not request.member_id:
            request = replace(request, member_id=self._new_uuid())
        before = group.members.get(request.member_id)
        member = decide.decide_heartbeat(draft, request)
        if isinstance(member, Refusal):
            return ConsumerHeartbeatReply.refusing(*member)
        out.records.extend(draft.records)
        if not draft.records:  # with records, it is unknown if they will be written
            self._seen_topics[group.group_id] = self._topics.version
        self._touch(now_ms, group.group_id, member)
        if member != before:
            self._watch_revocation(now_ms, group.group_id, member)
        full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and (request.topic_names is not None or request.topic_regex is not None)
            and request.owned is not None
        )
        moved = before is None or before.assigned.keys() != member.assigned.keys()
        return ConsumerHeartbeatReply(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._timing(group.group_id).heartbeat_interval_ms,
            assignment=frozenset(member.assigned) if full or moved else None,
        )

    def on_deadline(self, now_ms: int, deadline: Deadline, out: Out) -> None:
        """Remove a member whose session or revocation timeout has expired."""
        group = self.find(deadline.group_id)
        member = group.members.get(deadline.member_id) if group is not None else None
        if group is None or member is None:
            return
        if deadline.kind == DeadlineKind.REVOCATION and not self._is_late(group, member):
            return
        draft = self._draft(now_ms, group)
        decide.fence(draft, member)
        out.records.extend(draft.records)
        self._member_left(now_ms, draft.group, out)

    # Members with the classic protocol

    def converted(self, now_ms: int, value: GroupMetadataValue, group_id: str) -> TentativeGroup | Refusal:
        """Return the consumer group that a classic group with members is converted to."""
        draft = self._draft(now_ms, ConsumerGroup(group_id))
        return convert(draft, value, now_ms, self._topics) or draft

    def watch(self, now_ms: int, group: ConsumerGroup) -> None:
        """Start the session and join timers of a converted group's members."""
        for member in group.members.values():
            self._touch(now_ms, group.group_id, member)

    def forget(self, group: ConsumerGroup) -> None:
        """Cancel the timers of a group that was converted to a classic one."""
        for member_id in group.members:
            self._forget(group.group_id, member_id)
        self._seen_topics.pop(group.group_id, None)

    def join(self, now_ms: int, group: ConsumerGroup, request: Join, token: Token, out: Out) -> None:
        """Answer JoinGroup at once, because the protocol has no join phase."""
        if len(group.members) >= self._config.consumer_max_size and request.member_id not in group.members:
            out.replies.append((token, Joined(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)))
            return
        draft = self._draft(now_ms, group)
        member_id = new_member_id(request.client_id, request.group_instance_id, self._new_uuid())
        member = join_classic(draft, request, member_id, self._topics)
        if isinstance(member, Joined):
            out.replies.append((token, member))
            return
        out.records.extend(draft.records)
        self._touch(now_ms, group.group_id, member)
        self._deadlines.cancel(Deadline(DeadlineKind.REVOCATION, group.group_id, member.member_id))
        answer = Joined(
            generation_id=member.epoch,
            protocol_type=request.protocol_type,
            protocol_name=request.protocols[0][0],
            member_id=member.member_id,
        )
        out.replies.append((token, answer))

    def sync(self, now_ms: int, group: ConsumerGroup, request: SyncGroup) -> Synced:
        """Answer SyncGroup at once."""
        member = check_classic(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return Synced(error_code=member)
        if group.epoch > member.epoch and member.state != MemberState.UNREVOKED:
            self._wait_for_join(now_ms, group, member)
            return Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._touch(now_ms, group.group_id, member)
        return share(member, request, self._topics)

    def classic_heartbeat(self, now_ms: int, group: ConsumerGroup, request: Heartbeat) -> ErrorCode:
        """Answer Heartbeat. REBALANCE_IN_PROGRESS asks the member to rejoin."""
        member = check_classic(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return member
        self._touch(now_ms, group.group_id, member)
        if not must_rejoin(group, member):
            return ErrorCode.NONE
        self._wait_for_join(now_ms, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def classic_leave(self, now_ms: int, group: ConsumerGroup, request: Leave, out: Out) -> Left:
        """Answer LeaveGroup of classic members, and of administrators."""
        draft = self._draft(now_ms, group)
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
        deadline = Deadline(DeadlineKind.REVOCATION, group.group_id, member.member_id)
        self._deadlines.set_if_absent(deadline, now_ms + member.wants.rebalance_timeout_ms)

    # Offsets

    def refused_commits(
        self, group: ConsumerGroup, request: CommitOffsets | CommitTransactionalOffsets
    ) -> dict[tuple[str, int], ErrorCode]:
        """Return the refused partitions: none, all, or those that the member has not owned since its old epoch."""
        verdict = decide.check_commit(group, request)
        refused: dict[tuple[str, int], ErrorCode] = {}
        if isinstance(verdict, ErrorCode):
            refused = {(wanted.topic, wanted.partition): verdict for wanted in request.offsets}
        elif verdict is not None:
            for wanted in request.offsets:
                topic = self._topics.find(wanted.topic)
                partition = TopicIdPartition(topic[0], wanted.partition) if topic is not None else None
                since = None
                if partition is not None:
                    since = verdict.assigned.get(partition, verdict.revoking.get(partition))
                if since is None or request.generation_id < since:
                    code = decide.stale_code(verdict, has_member_epochs=request.has_member_epochs)
                    refused[wanted.topic, wanted.partition] = code
        return refused

    # The group as a whole

    def delete(self, group: ConsumerGroup, out: Out) -> None:
        """Write the tombstones of an empty group. The caller deletes its offsets."""
        out.records.extend(tombstones(group))
        self._seen_topics.pop(group.group_id, None)

    def describe(self, group_id: str, exists_otherwise: bool) -> DescribedConsumerGroup:
        """Describe one group for ConsumerGroupDescribe v0-1."""
        group = self.find(group_id)
        if group is None:
            why = f"Group {group_id} is not a consumer group." if exists_otherwise else f"Group {group_id} not found."
            return DescribedConsumerGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=why,
                state=ConsumerGroupState.DEAD,
            )
        return DescribedConsumerGroup(
            group_id=group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=group.assignor(self._config.consumer_assignors[0]),
            members=[
                DescribedConsumerMember(member=member, target=group.target_of(member.member_id))
                for member in group.members.values()
            ],
        )

    def _draft(self, now_ms: int, group: ConsumerGroup) -> TentativeGroup:
        changed = self._seen_topics.get(group.group_id) != self._topics.version
        return TentativeGroup(group, self._topics, now_ms, self._config.consumer_assignors, topics_changed=changed)

    def _leave(
        self, now_ms: int, draft: TentativeGroup, request: ConsumerHeartbeat, out: Out
    ) -> ConsumerHeartbeatReply:
        refusal = decide.decide_leave(draft, request)
        if refusal is not None:
            return ConsumerHeartbeatReply.refusing(*refusal)
        out.records.extend(draft.records)
        if request.member_epoch == LEAVE_EPOCH:
            self._member_left(now_ms, draft.group, out)
        else:
            self._deadlines.cancel(Deadline(DeadlineKind.REVOCATION, request.group_id, request.member_id))
        return ConsumerHeartbeatReply(member_id=request.member_id, member_epoch=request.member_epoch)

    def _touch(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        classic = member.wants.classic
        timeout_ms = self._timing(group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        self._deadlines.set(Deadline(DeadlineKind.CONSUMER_SESSION, group_id, member.member_id), now_ms + timeout_ms)

    def _is_late(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        if member.wants.classic is not None:
            return must_rejoin(group, member)
        return member.state == MemberState.UNREVOKED

    def _watch_revocation(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        deadline = Deadline(DeadlineKind.REVOCATION, group_id, member.member_id)
        if member.state == MemberState.UNREVOKED and member.wants.classic is None:
            self._deadlines.set(deadline, now_ms + member.wants.rebalance_timeout_ms)
        else:
            self._deadlines.cancel(deadline)

    def _forget(self, group_id: str, member_id: str) -> None:
        self._deadlines.cancel(Deadline(DeadlineKind.CONSUMER_SESSION, group_id, member_id))
        self._deadlines.cancel(Deadline(DeadlineKind.REVOCATION, group_id, member_id))
