"""The group coordinator: the broker's answers to members of groups, without clock, log or sockets.

Every request method takes the time and a typed request, and returns a `GroupResult`. The caller then does the following
before the next call:

1. It appends each record of the result to the partition `coordinator_partition(record.group_id, partitions)` of
   `__consumer_offsets`.
2. It passes each record with its offset to `replay`.

When the records are durable, the caller sends the reply, and the answers to parked requests. A join or a sync may be
parked. Its `token`, an object that identifies the request, is returned exactly once, in `replies` of this or a later
result. The caller calls `on_time` at the time that `next_deadline_ms` returns.

At start, the caller calls `replay` for every record and `complete_transaction` for every marker in the log. Then it
calls `load`.

A group has one kind. Each kind has a folder, and one row in the table in `kinds.py`. All kinds have the interface in
`base/kind.py`. The coordinator finds the kind of a group and passes the request on; its code names no kind.

A transactional commit is a record in a batch of its producer. It is pending until the marker in its partition. The
caller calls `complete_transaction` for the marker. The caller also checks the owner of the transaction, the existence
of topics, and permissions. A closed connection does not change a group: the member's session expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from fencepost.broker.coordinator.group import offsets
from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind, Failed, run_deadline
from fencepost.broker.coordinator.group.base.kind import (
    G,
    GroupKind,
    K,
    KindContext,
    Kinds,
    Q,
    R,
    RecordedKind,
    refuse,
)
from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    DeletedGroup,
    FetchedOffsets,
    FetchOffsets,
    GroupResult,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    ListedGroup,
    OffsetsDeleted,
    PartitionError,
    Refusal,
    Synced,
    SyncGroup,
    Token,
)
from fencepost.broker.coordinator.group.base.settings import CoordinatorSettings
from fencepost.broker.coordinator.group.base.topics import Topics
from fencepost.broker.coordinator.group.kinds import DEFAULT_KIND, OTHER_KINDS
from fencepost.broker.coordinator.group.offset_store import OffsetStore, StoredOffset
from fencepost.broker.timing.clock import ClockJumps
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import OffsetCommitKey
from fencepost.topic_partition import TopicPartition

__all__ = ["GroupCoordinator"]

D = TypeVar("D")

_FIRST_SYNC_THAT_NAMES_ITS_PROTOCOL = 5
_OFFSETS = Deadline("", DeadlineKind.OFFSETS)
AGAIN_MS: Final = 1000
"""A removed member is gone once its record is written.

Its deadline is set again by this many ms, in case the disk refuses it.
"""


class GroupCoordinator:
    """All groups and their offsets.

    `new_uuid` returns the unique part of a member id, and `topics` has the existing topics. `refused(now_ms, group_id)`
    is called for a new group beyond the limit.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_uuid: Callable[[], str],
        topics: Topics,
        refused: Callable[[int, str], None] = lambda _now_ms, _group_id: None,
        deadline_signal: DeadlineSignal | None = None,
    ) -> None:
        self._refused = refused
        self._max_groups = settings.number("max.groups")
        self._session_ms = range(
            settings.number("group.min.session.timeout.ms"), settings.number("group.max.session.timeout.ms") + 1
        )
        self._metadata_bytes = settings.number("offset.metadata.max.bytes")
        self._retention_ms = settings.number("offsets.retention.minutes") * 60_000
        self._expiry_interval_ms = settings.number("offsets.retention.check.interval.ms")
        self._offsets = OffsetStore(settings.number("offsets.topic.num.partitions"))
        self._deadlines = Deadlines[Deadline](deadline_signal)
        self._jumps = ClockJumps()
        self._kinds = Kinds()
        context = KindContext(settings, self._deadlines, topics, new_uuid, self._kinds)
        self._default = DEFAULT_KIND(context)
        self._kinds.add(self._default)
        for kind in OTHER_KINDS:
            self._kinds.add(kind(context))
        self._by_key: dict[type, GroupKind[Any]] = {key: kind for kind in self._kinds for key in kind.log.keys}

    def kind(self, kind: type[K]) -> K:
        """Return the groups of a kind."""
        return self._kinds.get(kind)

    # The log

    def set_offsets_topic_partitions(self, count: int) -> None:
        """Set the real number of partitions of `__consumer_offsets` before the first record.

        The topic keeps the number it was created with. With a wrong number, markers would not find their offsets.
        Raises ValueError once offsets are pending.
        """
        self._offsets.set_offsets_topic_partitions(count)

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record stored at `offset` of its group's partition. Raises MismatchedRecord."""
        key = record.key
        if isinstance(key, OffsetCommitKey):  # most records
            self._offsets.replay(key, record, offset)
            if record.value is not None and self._kinds.of(key.group_id) in (None, self._default):
                self._default.has_offsets(key.group_id)
            return
        kind = self._by_key[type(key)]
        kind.replay(key, record.value)
        if kind is not self._default and key.group_id in kind:
            # A compacted log may have offsets of the group before its first record.
            self._default.has_other_kind(key.group_id)

    def pending_producers(self, group_id: str) -> set[int]:
        """Return the producer ids whose open transactions hold offsets of the group."""
        return self._offsets.pending_producers(group_id)

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, offsets_partition: int, marker_ms: int = -1
    ) -> int:
        """Apply a marker of that partition of `__consumer_offsets`, and return the number of pending offsets it ended.

        Offsets pending under a higher epoch than the marker's belong to a later transaction and stay.
        """
        return self._offsets.complete_transaction(producer_id, producer_epoch, commit, offsets_partition, marker_ms)

    def load(self, now_ms: int) -> GroupResult[None]:
        """Start all sessions after the log was replayed."""
        out: GroupResult[None] = GroupResult(None)
        for kind in self._kinds:
            kind.load(now_ms, out)
        self._deadlines.set(_OFFSETS, now_ms + self._expiry_interval_ms)
        return out

    # Time

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next deadline, or None."""
        return self._deadlines.next_ms()

    def on_time(self, now_ms: int, *, failed: Failed | None = None) -> GroupResult[None]:
        """Do the due work: end sessions and phases of rebalances, expire offsets.

        `failed` is called for a group whose decision raises. No part of that decision takes effect, and it is retried
        in a second.
        """
        out: GroupResult[None] = GroupResult(None)
        expire = False
        decided: set[str] = set()
        later: list[Deadline] = []
        for deadline in self._deadlines.pop_due(now_ms):
            if deadline == _OFFSETS:
                expire = True
                continue
            kind = self._kinds.named(deadline.owner)
            if kind.decides_once and deadline.group_id in decided:
                later.append(deadline)
                continue
            before = len(out.records)
            if not run_deadline(partial(kind.on_deadline, now_ms, deadline, out), deadline.group_id, out, failed):
                self._deadlines.set(deadline, now_ms + AGAIN_MS)
            elif kind.decides_once and len(out.records) > before:
                decided.add(deadline.group_id)
                self._deadlines.set(deadline, now_ms + AGAIN_MS)
        for deadline in later:
            self._deadlines.set(deadline, now_ms)
        if expire:
            self._deadlines.set(_OFFSETS, now_ms + self._expiry_interval_ms)
            # One pass over all groups every ten minutes, as in Kafka. A timer per offset would cost more than it saves.
            for kind in self._kinds:
                for group_id in list(kind):
                    run_deadline(partial(self._expire, kind, now_ms, group_id, out), group_id, out, failed)
        return out

    def time_jumped(self, now_ms: int, by_ms: int) -> None:
        """Extend all deadlines after a forward jump of the clock, so that they keep their remaining time."""
        self._jumps.add(now_ms, by_ms)
        self._deadlines.put_off(by_ms)

    # Members with the classic protocol

    def join_group(self, now_ms: int, request: Join, token: Token) -> GroupResult[None]:
        """Handle JoinGroup v0-9. The answer, a Joined, is returned under `token`, now or later."""
        out: GroupResult[None] = GroupResult(None)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif request.session_timeout_ms not in self._session_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif not self._has_room(now_ms, request.group_id):
            error = ErrorCode.POLICY_VIOLATION
        if error:
            out.replies.append((token, Joined(error_code=error, member_id=request.member_id)))
        else:
            self._kind_of(request.group_id).join(now_ms, request, token, out)
        return out

    def sync_group(self, now_ms: int, request: SyncGroup, token: Token) -> GroupResult[None]:
        """Handle SyncGroup v0-5. The answer, a Synced, is returned under `token`, now or later."""
        out: GroupResult[None] = GroupResult(None)
        named = request.protocol_type is not None and request.protocol_name is not None
        error = ErrorCode.NONE
        if request.api_version >= _FIRST_SYNC_THAT_NAMES_ITS_PROTOCOL and not named:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        if error:
            out.replies.append((token, Synced(error_code=error)))
        else:
            self._kind_of(request.group_id).sync(now_ms, request, token, out)
        return out

    def member_heartbeat(self, now_ms: int, request: Heartbeat) -> GroupResult[ErrorCode]:
        """Handle Heartbeat v0-4."""
        if not request.group_id:
            return GroupResult(ErrorCode.INVALID_GROUP_ID)
        return GroupResult(self._kind_of(request.group_id).member_heartbeat(now_ms, request))

    def leave_group(self, now_ms: int, request: Leave) -> GroupResult[Left]:
        """Handle LeaveGroup v0-5."""
        if not request.group_id:
            return GroupResult(Left(error_code=ErrorCode.INVALID_GROUP_ID))
        out = GroupResult(Left())
        out.reply = self._kind_of(request.group_id).leave(now_ms, request, out)
        return out

    # Members of the other kinds

    def heartbeat(self, now_ms: int, kind: type[RecordedKind[D, G, Q, R]], request: Q) -> GroupResult[R]:
        """Handle the heartbeat of a kind, including joins and leaves."""
        own, group_id = self._kinds.get(kind), request.group_id
        joins = request.member_epoch == 0
        present = self._kinds.of(group_id)
        other = None if present is own else present
        takes_over = other is not None and joins and own.takes_over(other, group_id)
        refusal = own.check(request)
        if refusal is None and not takes_over:
            refusal = self._refusal_of_other_kind(own, group_id)
        if refusal is None and not joins and present is None:
            refusal = Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no {own.name} group {group_id}.")
        if refusal is None and joins:
            refusal = self._no_room(now_ms, group_id)
        if refusal is not None:
            return GroupResult(own.refusing(*refusal))
        joined: GroupResult[None] = GroupResult(None)
        out = GroupResult(own.heartbeat(now_ms, request, joined))
        if other is not None and joined.records:
            other.replaced(now_ms, group_id, out)
        out.records.extend(joined.records)
        out.replies.extend(joined.replies)
        return out

    def admit(self, now_ms: int, kind: type[GroupKind[D]], group_id: str) -> Refusal | None:
        """Return the refusal if there can be no group of this kind with the id."""
        return self._refusal_of_other_kind(self._kinds.get(kind), group_id) or self._no_room(now_ms, group_id)

    # Offsets

    def commit_offsets(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> GroupResult[list[PartitionError]]:
        """Handle OffsetCommit v2-10 and TxnOffsetCommit v0-6.

        OffsetCommit may have an empty group id, as in Kafka. Below v3, TxnOffsetCommit has neither member nor
        generation: leave their defaults.
        """
        owner, retention_ms = (-1, -1), -1
        if isinstance(request, CommitTransactionalOffsets):
            owner = (request.producer_id, request.producer_epoch)
        else:
            retention_ms = request.retention_ms
        if not request.group_id and isinstance(request, CommitTransactionalOffsets):
            refused = refuse(request, ErrorCode.INVALID_GROUP_ID)
        else:
            refused = self._kind_of(request.group_id).refused_commits(now_ms, request)
        if not refused and not self._has_room(now_ms, request.group_id):
            refused = refuse(request, ErrorCode.POLICY_VIOLATION)
        records, answers = offsets.commit(
            self._metadata_bytes,
            now_ms,
            request.group_id,
            request.offsets,
            refused,
            retention_ms=retention_ms,
            owner=owner,
        )
        return GroupResult(answers, records)

    def fetch_offsets(self, request: FetchOffsets) -> FetchedOffsets:
        """Handle OffsetFetch v1-10 for one group."""
        error = self._kind_of(request.group_id).check_fetch(request)
        return FetchedOffsets(request.group_id, error) if error else offsets.fetch(self._offsets, request)

    def committed_offsets(self) -> Iterator[tuple[str, Mapping[TopicPartition, StoredOffset]]]:
        """Yield each group id with its committed offsets."""
        return iter(self._offsets.committed.items())

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> GroupResult[OffsetsDeleted]:
        """Handle OffsetDelete v0."""
        if not group_id:
            return GroupResult(OffsetsDeleted(ErrorCode.INVALID_GROUP_ID))
        kind = self._kind_of(group_id)
        group = kind.find(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else kind.check_offset_delete(group_id)
        if group is None or error:
            return GroupResult(OffsetsDeleted(error))
        records, answers = offsets.delete_some(self._offsets, group, partitions)
        return GroupResult(OffsetsDeleted(partitions=answers), records)

    def delete_partitions(self, partitions: Iterable[tuple[str, int]]) -> GroupResult[None]:
        """Delete all groups' offsets of deleted partitions."""
        gone = {TopicPartition(topic, index) for topic, index in partitions}
        out: GroupResult[None] = GroupResult(None)
        for group_id in self._offsets.group_ids():
            out.records.extend(offsets.delete_for(self._offsets, group_id, gone))
        return out

    # Administration

    def delete_groups(self, group_ids: Iterable[str]) -> GroupResult[list[DeletedGroup]]:
        """Handle DeleteGroups v0-2. Only groups without members are deleted, with all their offsets."""
        out: GroupResult[list[DeletedGroup]] = GroupResult([])
        for group_id in dict.fromkeys(group_ids):
            kind = self._kind_of(group_id)
            group = kind.find(group_id)
            error = ErrorCode.NONE
            if group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                out.records.extend(offsets.delete_all(self._offsets, group_id))
                kind.delete(group_id, out)
            out.reply.append(DeletedGroup(group_id, error))
        return out

    def describe(self, kind: type[GroupKind[D]], group_id: str) -> D:
        """Describe one group for the describe request of a kind."""
        own = self._kinds.get(kind)
        described = own.describe(group_id)
        if described is not None:
            return described
        reason = "not found." if self._kinds.of(group_id) is None else f"is not a {own.name} group."
        return own.missing(group_id, f"Group {group_id} {reason}")

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """List groups for ListGroups v0-5. Filters ignore case. An empty filter matches all, an unknown name none."""
        wanted_states, wanted_types = ({name.lower() for name in names} for names in (states, types))
        return [
            group
            for kind in self._kinds
            for group in kind.listed()
            if (not wanted_types or group.group_type in wanted_types)
            and (not wanted_states or group.group_state.lower() in wanted_states)
        ]

    def snapshot(self) -> object:
        """Return the persisted state as a comparable value."""
        groups = {name: (kind.name, state) for kind in self._kinds for name, state in kind.snapshot().items()}
        return groups, *self._offsets.snapshot()

    @property
    def count(self) -> int:
        """Return the number of groups, including those that have only offsets."""
        return sum(len(kind) for kind in self._kinds)

    def _kind_of(self, group_id: str) -> GroupKind[Any]:
        """Return the kind that answers requests for the id."""
        kind = self._kinds.of(group_id)
        return self._default if kind is None else kind

    def _refusal_of_other_kind(self, own: GroupKind[Any], group_id: str) -> Refusal | None:
        """Return the refusal of a request for a group of another kind."""
        if self._kinds.of(group_id) in (None, own):
            return None
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {own.name} group.")

    def _no_room(self, now_ms: int, group_id: str) -> Refusal | None:
        """Return the refusal of a new group beyond the limit."""
        if self._has_room(now_ms, group_id):
            return None
        return Refusal(ErrorCode.POLICY_VIOLATION, f"There are {self.count} groups already (max.groups).")

    def _has_room(self, now_ms: int, group_id: str) -> bool:
        """Return true if the group exists or may be created."""
        if self._kinds.of(group_id) is not None or self.count < self._max_groups:
            return True
        self._refused(now_ms, group_id)
        return False

    def _expire(self, kind: GroupKind[Any], now_ms: int, group_id: str, out: GroupResult[None]) -> None:
        """Expire offsets of a group. Delete an unused group whose last offset expires."""
        group = kind.find(group_id)
        if group is None:
            return
        records, none_left = offsets.expire(self._offsets, group, now_ms, self._retention_ms, self._jumps)
        out.records.extend(records)
        if none_left and kind.expires and group.is_unused:
            kind.delete(group_id, out)
