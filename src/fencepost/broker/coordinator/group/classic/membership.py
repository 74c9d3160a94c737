"""Classic groups at run time: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: `GroupMetadataManager.classicGroup*` of Apache Kafka 4.x; KIP-345 (static members), KIP-389 (size limit),
KIP-394 (a member joins with an id it was given), KIP-559 (protocol fields), KIP-814 (a returning static leader skips
its assignment). One difference: a join that is refused creates no group (Kafka leaves an empty one behind). KIP-429
(cooperative rebalancing) is the clients' affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.coordinator.group.base.kind import DefaultKind, KindContext, refuse
from fencepost.broker.coordinator.group.base.records import GroupRecord, LogCodec, LogKey, MismatchedRecord
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeavingMember,
    Left,
    LeftMember,
    ListedGroup,
    Out,
    Synced,
    SyncGroup,
    Token,
)
from fencepost.broker.coordinator.group.classic import checks
from fencepost.broker.coordinator.group.classic.describe import DescribedGroup, describe
from fencepost.broker.coordinator.group.classic.group import ClassicGroupMember, Group
from fencepost.broker.coordinator.group.classic.rebalance import NAME, Rebalancer
from fencepost.broker.coordinator.group.classic.states import GroupEvent, GroupState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    StoredMember,
    decode_group_value,
    decode_key,
    encode_group_value,
    encode_key,
)
from fencepost.values import Value

__all__ = ["ClassicGroups"]

_FIRST_JOIN_WITH_KNOWN_ID = 4  # KIP-394
_FIRST_JOIN_THAT_SKIPS_ASSIGNMENT = 9  # KIP-814
_NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000  # a constant in Kafka too


class StoredGroup(Value):
    """A group's last record, with its members by id."""

    value: GroupMetadataValue
    members: dict[str, StoredMember]


_NEVER_JOINED = StoredGroup(GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None), {})


def _decode_key(data: bytes | memoryview) -> GroupMetadataKey | None:
    key = decode_key(data)
    return key if isinstance(key, GroupMetadataKey) else None


class ClassicGroups(DefaultKind[DescribedGroup]):
    """The classic groups of a coordinator, and the groups that have only offsets.

    *Stored*: each group as of its last completed rebalance. Only `replay` changes it. *In memory*: groups that have
    members or are about to get them, with parked requests. Requests and time change these at once, but a step that
    depends on a record (a group becomes stable, a group is gone) is taken when that record is replayed.
    """

    name = NAME
    log = LogCodec(
        (GroupMetadataKey,), encode_key, _decode_key, encode_group_value, lambda _key, data: decode_group_value(data)
    )
    decides_once = False

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        settings = context.settings
        self._max_size = settings.number("group.max.size")
        self._stored: dict[str, StoredGroup] = {}
        self._groups: dict[str, Group] = {}
        self.groups = (self._stored, self._groups)
        self._rebalancer = Rebalancer(settings.number("group.initial.rebalance.delay.ms"), context.deadlines)

    # The groups

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def find(self, group_id: str) -> Group | None:
        """Return the group from memory or as stored; None if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            stored = self._stored.get(group_id)
            if stored is not None:
                group = Group.stored(group_id, stored.value)
        return group

    def snapshot(self) -> Mapping[str, object]:
        return {group_id: stored.value for group_id, stored in self._stored.items()}

    def listed(self) -> Iterable[ListedGroup]:
        groups = (self.find(group_id) for group_id in list(self._stored.keys() | self._groups.keys()))
        return [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.label, self.name)
            for group in groups
            if group is not None
        ]

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self.find(group_id)
        stored = self._stored.get(group_id)
        return None if group is None else describe(group, {} if stored is None else stored.members)

    def missing(self, group_id: str, message: str) -> DescribedGroup:
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=message,
            group_state=GroupState.DEAD.label,
        )

    def delete(self, group_id: str, out: Out) -> None:
        out.records.append(GroupRecord(GroupMetadataKey(group_id), None))

    # Replay of the log

    def replay(self, key: LogKey, value: object) -> None:
        if value is None:
            self._stored.pop(key.group_id, None)
        elif isinstance(value, GroupMetadataValue):
            self._stored[key.group_id] = StoredGroup(value, {member.member_id: member for member in value.members})
        else:
            raise MismatchedRecord(f"{key} with a {type(value).__name__}")
        group = self._groups.get(key.group_id)
        if group is None:
            return
        if value is None:
            for member_id in group.pending_joins:
                self._deadlines.cancel(self._deadline(DeadlineKind.SESSION, group.group_id, member_id))
            group.advance(GroupEvent.DELETED, group.state_timestamp_ms)
            del self._groups[key.group_id]
        elif group.state == GroupState.COMPLETING_REBALANCE and value.generation == group.generation:
            group.advance(GroupEvent.ASSIGNED, value.current_state_timestamp_ms)
        else:
            self._forget_if_empty(group)

    def has_offsets(self, group_id: str) -> None:
        # Offsets alone make a group, because a consumer with manual assignment never joins.
        self._stored.setdefault(group_id, _NEVER_JOINED)

    def has_other_kind(self, group_id: str) -> None:
        self._stored.pop(group_id, None)  # a group with members was ended by its own tombstone

    def load(self, now_ms: int, out: Out) -> None:
        """Start the members' sessions.

        A stored group without a leader was converted from another kind, and its first rebalance is still due.
        """
        for group_id, stored in self._stored.items():
            if not stored.members:
                continue
            group = self._restore(now_ms, group_id, stored.value)
            if len(group.members) > self._max_size or stored.value.leader is None:
                self._rebalancer.prepare(now_ms, group, out)

    def _restore(self, now_ms: int, group_id: str, value: GroupMetadataValue) -> Group:
        group = self._groups[group_id] = Group.stored(group_id, value)
        for member in group.members.values():
            self._rebalancer.touch(now_ms, group, member.member_id, member.session_timeout_ms)
        return group

    def _forget_if_empty(self, group: Group) -> None:
        """Remove an empty group from memory once its record describes it completely."""
        stored = self._stored.get(group.group_id)
        if (
            group.is_unused
            and stored is not None
            and not stored.members
            and stored.value.generation == group.generation
        ):
            self._groups.pop(group.group_id, None)

    # Changes of a group's kind

    def gives_way(self, group_id: str) -> bool:
        """Return true for an empty group: its application returns with a newer protocol."""
        group = self.find(group_id)
        return group is not None and group.is_empty

    def last_generation(self, group_id: str) -> GroupMetadataValue | None:
        """Return the last stored generation of a group, with its present members; None if none is stored."""
        group, stored = self.find(group_id), self._stored.get(group_id)
        if group is None or stored is None:
            return None
        members = tuple(member for member in stored.value.members if member.member_id in group.members)
        return replace(
            stored.value, protocol_type=group.protocol_type or "", generation=group.generation, members=members
        )

    def replaced(self, now_ms: int, group_id: str, out: Out) -> None:
        """Write the group's tombstone. Members with parked requests are told to rejoin."""
        self.delete(group_id, out)
        group = self._groups.get(group_id)
        if group is None or group.is_empty:
            return  # the replayed tombstone ends it
        del self._groups[group_id]
        again = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            self._rebalancer.answer_join(group, member, Joined(error_code=again, member_id=member.member_id), out)
            self._rebalancer.answer_sync(member, Synced(error_code=again), out)
        for member_id in (*group.members, *group.pending_joins):
            self._deadlines.cancel(self._deadline(DeadlineKind.SESSION, group_id, member_id))
        for kind in (DeadlineKind.JOIN, DeadlineKind.SYNC):
            self._deadlines.cancel(self._deadline(kind, group_id))
        group.advance(GroupEvent.CONVERTED, now_ms)

    def adopt(self, now_ms: int, group_id: str, value: GroupMetadataValue, out: Out) -> None:
        """Take over a group converted from another kind, and ask its members to rejoin."""
        out.records.append(GroupRecord(GroupMetadataKey(group_id), value))
        self._rebalancer.prepare(now_ms, self._restore(now_ms, group_id, value), out)

    # JoinGroup

    def join(self, now_ms: int, request: Join, token: Token, out: Out) -> None:
        """Answer `token` in `out`, or park it in the group."""
        group = self.find(request.group_id)
        if group is None:
            if request.member_id:
                self._refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, token, out)
                return
            group = Group(request.group_id)
            group.state_timestamp_ms = now_ms
        if not checks.accepts_member(group, request.member_id, self._max_size):
            # A member beyond the group's size limit is removed.
            self._rebalancer.remove(group, request.member_id, out)
            self._refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED, "", token, out)
            if group.state == GroupState.PREPARING_REBALANCE:
                self._rebalancer.try_complete_join(now_ms, group, out)
        elif not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
            self._refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, token, out)
        elif request.member_id:
            self._join_known(now_ms, group, request, token, out)
        else:
            if request.group_id not in self._stored and request.group_id not in self._groups:
                # From now on the group exists, even if the coordinator restarts before the first generation.
                key = GroupMetadataKey(group.group_id)
                out.records.append(GroupRecord(key, group.to_value({})))
            self._groups[request.group_id] = group
            self._join_unknown(now_ms, group, request, token, out)

    def _join_unknown(self, now_ms: int, group: Group, request: Join, token: Token, out: Out) -> None:
        member_id = request.new_member_id(self._new_uuid())
        if request.group_instance_id is not None:
            holder = group.static_ids.get(request.group_instance_id)
            if holder is not None:
                self._rejoin_static(now_ms, group, group.members[holder], member_id, request, token, out)
                return
        elif request.api_version >= _FIRST_JOIN_WITH_KNOWN_ID:
            group.pending_joins.add(member_id)
            self._rebalancer.touch(now_ms, group, member_id, request.session_timeout_ms)
            self._refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id, token, out)
            return
        self._add_member(now_ms, group, member_id, request, token, out)

    def _join_known(self, now_ms: int, group: Group, request: Join, token: Token, out: Out) -> None:
        member_id = request.member_id
        if member_id in group.pending_joins and request.group_instance_id is None:
            self._add_member(now_ms, group, member_id, request, token, out)
            return
        error = checks.check_member(group, member_id, request.group_instance_id)
        if error:
            self._refuse_join(error, member_id, token, out)
            return
        member = group.members[member_id]
        protocols = _protocols(request)
        unchanged = list(protocols.items()) == list(member.protocols.items())
        # A repeated join of a follower returns the current generation, because its first answer may be lost. The
        # leader's does so only before its assignment; afterwards a join means that the data it assigns has changed.
        if unchanged and (
            group.state == GroupState.COMPLETING_REBALANCE
            or (group.state == GroupState.STABLE and group.leader != member_id)
        ):
            out.replies.append((token, group.joined(member)))
            return
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        self._rebalancer.park_join(group, member, token, out)
        self._rebalancer.members_changed(now_ms, group, out)

    def _add_member(self, now_ms: int, group: Group, member_id: str, request: Join, token: Token, out: Out) -> None:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            _protocols(request),
        )
        member.is_new = True
        group.add(member, request.protocol_type, token)
        if group.initial_remaining_ms is not None:
            group.new_member_added = True
        self._rebalancer.touch(now_ms, group, member_id, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancer.members_changed(now_ms, group, out)

    def _rejoin_static(
        self, now_ms: int, group: Group, old: ClassicGroupMember, member_id: str, request: Join, token: Token, out: Out
    ) -> None:
        """Let a static member return without its id. The old id, if still in use, is fenced."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalancer.answer_join(group, old, Joined(error_code=fenced, member_id=old.member_id), out)
        self._rebalancer.answer_sync(old, Synced(error_code=fenced), out)
        self._deadlines.cancel(self._deadline(DeadlineKind.SESSION, group.group_id, old.member_id))
        old_leader = group.leader
        member = group.replace_static(old, member_id)
        group.update(member, _protocols(request), _rebalance_timeout_ms(request), request.session_timeout_ms)
        self._rebalancer.touch(now_ms, group, member_id, member.session_timeout_ms)
        if group.state == GroupState.STABLE and group.select_protocol() == group.protocol_name:
            # The assignment does not change: the new id takes over the old id's role and assignment.
            known = self._stored[group.group_id].members
            assignments = {id_: stored.assignment for id_, stored in known.items()}
            assignments[member_id] = assignments.pop(old.member_id, b"")
            out.records.append(GroupRecord(GroupMetadataKey(group.group_id), group.to_value(assignments)))
            out.replies.append((token, _returned(group, member, old_leader, request.api_version)))
            return
        group.set_join_token(member, token)
        # While the leader assigns, it knows only the old id. Its assignment would omit the new one, so all members
        # rejoin.
        self._rebalancer.members_changed(now_ms, group, out)

    def _refuse_join(self, error: ErrorCode, member_id: str, token: Token, out: Out) -> None:
        out.replies.append((token, Joined(error_code=error, member_id=member_id)))

    # SyncGroup

    def sync(self, now_ms: int, request: SyncGroup, token: Token, out: Out) -> None:
        """Answer `token` in `out`, or park it until the leader has assigned."""
        group = self._groups.get(request.group_id)
        if group is None or group.state == GroupState.EMPTY:
            out.replies.append((token, Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
            return
        error = checks.check_sync(group, request)
        if not error and group.state == GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            out.replies.append((token, Synced(error_code=error)))
            return
        self._rebalancer.synced(group, request.member_id)
        if group.state == GroupState.STABLE:
            out.replies.append((token, self._stored_share(group, request.member_id)))
            return
        self._rebalancer.park_sync(group.members[request.member_id], token, out)
        if group.leader == request.member_id:
            self._rebalancer.assign(now_ms, group, dict(request.assignments), out)

    def _stored_share(self, group: Group, member_id: str) -> Synced:
        stored = self._stored[group.group_id].members.get(member_id)
        if stored is None:
            # A static member took over its role, but the record was not written: it must join again.
            return Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return Synced(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=stored.assignment
        )

    # Heartbeat

    def member_heartbeat(self, now_ms: int, request: Heartbeat) -> ErrorCode:
        """Extend the session. REBALANCE_IN_PROGRESS asks the member to rejoin."""
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = checks.check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._extend_session(now_ms, group, request.member_id)
        if group.state == GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _extend_session(self, now_ms: int, group: Group, member_id: str) -> None:
        """Extend the member's session after a heartbeat or a commit."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancer.touch(now_ms, group, member_id, member.session_timeout_ms)

    # LeaveGroup

    def leave(self, now_ms: int, request: Leave, out: Out) -> Left:
        """Remove members, by id or by instance id."""
        group = self._groups.get(request.group_id)
        left = [self._leave_member(group, member, out) for member in request.members]
        if group is not None and any(not member.error_code for member in left):
            if group.state == GroupState.PREPARING_REBALANCE:
                self._rebalancer.try_complete_join(now_ms, group, out)
            elif group.state != GroupState.EMPTY:
                self._rebalancer.prepare(now_ms, group, out)
            self._forget_if_empty(group)
        return Left(members=left)

    def _leave_member(self, group: Group | None, leaving: LeavingMember, out: Out) -> LeftMember:
        member_id: str | None = leaving.member_id
        if group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif not leaving.member_id:
            member_id = group.static_ids.get(leaving.group_instance_id or "")
            error = ErrorCode.NONE if member_id is not None else ErrorCode.UNKNOWN_MEMBER_ID
        elif leaving.member_id in group.pending_joins:
            error = ErrorCode.NONE
        else:
            error = checks.check_member(group, leaving.member_id, leaving.group_instance_id)
        if group is not None and member_id is not None and not error:
            self._rebalancer.remove(group, member_id, out)
        return LeftMember(leaving.member_id, leaving.group_instance_id, error)

    # Offsets

    def refused_commits(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Return all partitions or none."""
        group, transactional = self.find(request.group_id), isinstance(request, CommitTransactionalOffsets)
        if group is None:
            return refuse(request, _without_group(request))
        error = checks.check_offset_commit(
            group, request.member_id, request.group_instance_id, request.generation_id, transactional=transactional
        )
        if not error and not transactional and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._extend_session(now_ms, group, request.member_id)
        return refuse(request, error)

    def check_offset_delete(self, group_id: str) -> ErrorCode:
        group = self.find(group_id)
        return ErrorCode.NONE if group is None else checks.check_offset_delete(group)

    # Time

    def on_deadline(self, now_ms: int, deadline: Deadline, out: Out) -> None:
        """React to an expired deadline of a group."""
        group = self._groups.get(deadline.group_id)
        if group is None:
            return
        if deadline.kind == DeadlineKind.SESSION:
            self._rebalancer.session_ended(now_ms, group, deadline.member_id, out)
        elif deadline.kind == DeadlineKind.JOIN:
            self._rebalancer.join_ended(now_ms, group, out)
        else:
            self._rebalancer.sync_ended(now_ms, group, out)
        self._forget_if_empty(group)


def _without_group(request: CommitOffsets | CommitTransactionalOffsets) -> ErrorCode:
    """Return the code of a commit to a group that does not exist. Only a commit without a member may create it."""
    if request.generation_id < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if request.has_member_epochs else ErrorCode.ILLEGAL_GENERATION


def _protocols(request: Join) -> dict[str, bytes]:
    protocols: dict[str, bytes] = {}
    for name, metadata in request.protocols:
        protocols.setdefault(name, metadata)
    return protocols


def _rebalance_timeout_ms(request: Join) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _returned(group: Group, member: ClassicGroupMember, old_leader: str | None, api_version: int) -> Joined:
    """Return the answer to a static member that took over its role in a stable group.

    A client that cannot be told to skip the assignment (below v9) must not act as the leader. It receives the leader's
    old id and no members.
    """
    skips = api_version >= _FIRST_JOIN_THAT_SKIPS_ASSIGNMENT
    leads = group.leader == member.member_id
    return Joined(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.leader if skips else old_leader) or "",
        skip_assignment=skips and leads,
        member_id=member.member_id,
        members=group.joined_members() if skips and leads else (),
    )
