"""The group coordinator: what a broker answers to consumer groups, without clock, log or sockets.

Contract. Every request method takes the time and a typed request, and returns a `GroupResult`. Before the next call,
the caller appends the result's records to `__consumer_offsets`, each to `coordinator_partition(record.group_id,
partitions)`, and hands each to `replay` with its offset; when they are durable it sends the reply and the answers to
parked requests. A join or a sync may be parked: its `token`, any object that stands for the request, comes back in
`replies` of this or a later result, exactly once. `next_deadline_ms` says when `on_time` has to be called.

Two halves. *Persisted*: groups as of their last completed rebalance, committed and pending offsets (`GroupStore`).
Only `replay` and `complete_transaction` change it, when running and when loading. *Volatile*: who is in a group right
now, who is parked, when sessions end (`ClassicGroups`). Requests and time change it at once, but a step that depends
on a record (a group becomes stable, a group is gone) is taken when that record is replayed.

At start: `replay` for every record and `complete_transaction` for every marker in the log, then `load`.

A transactional commit is a record in a batch of its producer. It pends until the marker in its partition:
`complete_transaction`. That the producer owns the transaction, that topics exist and that the caller is allowed to is
checked elsewhere. That a client disconnects means nothing to a group: its session runs out.

Consumer groups (KIP-848, `ConsumerGroups`) live beside the classic ones, with records of their own. A group that has no
members becomes one of the other kind when a member of the other kind joins; one that has members as
`group.consumer.migration.policy` says (`consumer/migration.py`). A share group (KIP-932, `ShareGroups`) stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from fencepost.broker.coordinator.group import checks, offsets, views
from fencepost.broker.coordinator.group.classic.group import Group
from fencepost.broker.coordinator.group.classic.rebalance import Out
from fencepost.broker.coordinator.group.classic.states import GroupState
from fencepost.broker.coordinator.group.consumer import decide as consumer_decide
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup
from fencepost.broker.coordinator.group.consumer.migration import all_classic, to_classic
from fencepost.broker.coordinator.group.consumer.tentative_group import tombstones
from fencepost.broker.coordinator.group.deadlines import Deadline, DeadlineKind, Failed, tried
from fencepost.broker.coordinator.group.kinds import GroupKinds
from fencepost.broker.coordinator.group.records import GroupRecord
from fencepost.broker.coordinator.group.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeletedGroup,
    DescribedConsumerGroup,
    DescribedGroup,
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
from fencepost.broker.coordinator.group.streams import decide as streams_decide
from fencepost.broker.coordinator.group.streams.group import StreamsGroup
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import GroupMetadataKey, GroupMetadataValue
from fencepost.topic_partition import TopicPartition

__all__ = ["GroupCoordinator"]

_FIRST_SYNC_THAT_NAMES_ITS_PROTOCOL = 5
_OFFSETS = Deadline(DeadlineKind.OFFSETS)
_OF_WRITTEN_MEMBERS = (
    DeadlineKind.CONSUMER_SESSION,
    DeadlineKind.REVOCATION,
    DeadlineKind.SHARE_SESSION,
    DeadlineKind.STREAMS_SESSION,
    DeadlineKind.STREAMS_REVOCATION,
)
AGAIN_MS: Final = 1000
"""A removed member is gone once its record is written.

Its deadline is set again by this many ms, in case the disk refuses it.
"""
_DISABLED = "disabled"
_MAY_UPGRADE = ("upgrade", "bidirectional")
_MAY_DOWNGRADE = ("downgrade", "bidirectional")


class GroupCoordinator(GroupKinds):
    """All groups and their offsets. `GroupKinds` documents the arguments."""

    # The log

    def set_offsets_topic_partitions(self, count: int) -> None:
        """Set the real number of partitions of `__consumer_offsets` before the first record.

        The topic keeps the number it was created with. With a wrong number, markers would not find their offsets.
        Raises ValueError once offsets are pending.
        """
        self._store.set_offsets_topic_partitions(count)

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record stored at `offset` of its group's partition. Raises MismatchedRecord."""
        self._store.replay(record, offset)
        value = record.value
        if isinstance(record.key, GroupMetadataKey) and (value is None or isinstance(value, GroupMetadataValue)):
            self._classic.stored(record.key.group_id, value)

    def pending_producers(self, group_id: str) -> set[int]:
        """Return the producer ids whose open transactions hold offsets of the group."""
        return self._store.pending_producers(group_id)

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, offsets_partition: int, marker_ms: int = -1
    ) -> int:
        """Apply a marker of that partition of `__consumer_offsets`, and return the number of pending offsets it ended.

        Offsets pending under a higher epoch than the marker's belong to a later transaction and stay.
        """
        return self._store.complete_transaction(producer_id, producer_epoch, commit, offsets_partition, marker_ms)

    def load(self, now_ms: int) -> GroupResult[None]:
        """Start all sessions after the log was replayed."""
        out: GroupResult[None] = GroupResult(None)
        self._classic.load(now_ms, out)
        self._consumer.load(now_ms)
        self._share.load(now_ms)
        self._streams.load(now_ms)
        self._deadlines.set(_OFFSETS, now_ms + self._config.offsets_retention_check_interval_ms)
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
        # A consumer, share or streams group consists of its records, so it gets one decision until these are replayed.
        decided: set[str] = set()
        later: list[Deadline] = []
        for deadline in self._deadlines.pop_due(now_ms):
            if deadline.kind == DeadlineKind.OFFSETS:
                expire = True
            elif deadline.kind in _OF_WRITTEN_MEMBERS and deadline.group_id in decided:
                later.append(deadline)
            else:
                before = len(out.records)
                if not tried(partial(self._on_deadline, now_ms, deadline, out), deadline.group_id, out, failed):
                    self._deadlines.set(deadline, now_ms + AGAIN_MS)
                elif deadline.kind in _OF_WRITTEN_MEMBERS and len(out.records) > before:
                    decided.add(deadline.group_id)
                    self._deadlines.set(deadline, now_ms + AGAIN_MS)
        for deadline in later:
            self._deadlines.set(deadline, now_ms)
        if expire:
            self._deadlines.set(_OFFSETS, now_ms + self._config.offsets_retention_check_interval_ms)
            for group_id, action in self._expiries(now_ms, out):
                tried(action, group_id, out, failed)
        return out

    def _on_deadline(self, now_ms: int, deadline: Deadline, out: GroupResult[None]) -> None:
        if deadline.kind == DeadlineKind.SHARE_SESSION:
            self._share.on_deadline(deadline, out)
        elif deadline.kind in (DeadlineKind.STREAMS_SESSION, DeadlineKind.STREAMS_REVOCATION):
            self._streams.on_deadline(deadline, out)
        elif deadline.kind in _OF_WRITTEN_MEMBERS:
            self._consumer.on_deadline(now_ms, deadline, out)
        else:
            self._classic.on_deadline(now_ms, deadline, out)

    def time_jumped(self, now_ms: int, by_ms: int) -> None:
        """Extend all deadlines after a forward jump of the clock, so that they keep their remaining time."""
        self._jumps.add(now_ms, by_ms)
        self._deadlines.put_off(by_ms)

    # Membership

    def join_group(self, now_ms: int, request: Join, token: Token) -> GroupResult[None]:
        """Handle JoinGroup v0-9. The answer, a Joined, is returned under `token`, now or later."""
        out: GroupResult[None] = GroupResult(None)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif (
            not self._config.min_session_timeout_ms <= request.session_timeout_ms <= self._config.max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif not self._has_room(now_ms, request.group_id):
            error = ErrorCode.POLICY_VIOLATION
        consumer_group = self._consumer.find(request.group_id)
        mixed = consumer_group is not None and bool(consumer_group.members)
        shared = self._has_no_protocols(request.group_id)
        if not error and (shared or (mixed and self._config.migration_policy == _DISABLED)):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            # A group of another kind does not reveal its members.
            member_id = "" if error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL else request.member_id
            out.replies.append((token, Joined(error_code=error, member_id=member_id)))
        elif consumer_group is not None and mixed:
            self._consumer.join(now_ms, consumer_group, request, token, out)
        else:
            if consumer_group is not None:
                self._consumer.delete(consumer_group, out)
            self._classic.join(now_ms, request, token, out)
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
        elif (consumer_group := self._consumer.find(request.group_id)) is not None:
            out.replies.append((token, self._consumer.sync(now_ms, consumer_group, request)))
        else:
            self._classic.sync(now_ms, request, token, out)
        return out

    def heartbeat(self, now_ms: int, request: Heartbeat) -> GroupResult[ErrorCode]:
        """Handle Heartbeat v0-4."""
        if not request.group_id:
            return GroupResult(ErrorCode.INVALID_GROUP_ID)
        consumer_group = self._consumer.find(request.group_id)
        if consumer_group is not None:
            return GroupResult(self._consumer.classic_heartbeat(now_ms, consumer_group, request))
        return GroupResult(self._classic.heartbeat(now_ms, request))

    def leave_group(self, now_ms: int, request: Leave) -> GroupResult[Left]:
        """Handle LeaveGroup v0-5."""
        out = GroupResult(Left())
        consumer_group = self._consumer.find(request.group_id)
        if not request.group_id:
            out.reply = Left(error_code=ErrorCode.INVALID_GROUP_ID)
        elif consumer_group is not None:
            out.reply = self._consumer.classic_leave(now_ms, consumer_group, request, out)
        else:
            out.reply = self._classic.leave(now_ms, request, out)
        return out

    def consumer_heartbeat(self, now_ms: int, request: ConsumerHeartbeat) -> GroupResult[ConsumerHeartbeatReply]:
        """Handle ConsumerGroupHeartbeat v0-1 (KIP-848), including joins and leaves."""
        out = GroupResult(ConsumerHeartbeatReply())
        refusal = consumer_decide.check_request(request, self._config.consumer_assignors)
        classic = self._classic.find(request.group_id)
        shared = self._has_no_protocols(request.group_id)
        if refusal is None and (shared or (classic is not None and request.member_epoch != 0)):
            refusal = _not_a_consumer_group(request.group_id)
        if refusal is None and request.member_epoch == 0 and not self._has_room(now_ms, request.group_id):
            refusal = self._no_room()
        if refusal is not None:
            out.reply = ConsumerHeartbeatReply.refusing(*refusal)
        elif classic is not None and classic.state != GroupState.EMPTY:
            self._upgrade(now_ms, request, classic, out)
        else:
            if classic is not None:
                out.records.append(GroupRecord(GroupMetadataKey(request.group_id), None))
            out.reply = self._consumer.heartbeat(now_ms, request, out)
        return out

    def _upgrade(
        self, now_ms: int, request: ConsumerHeartbeat, classic: Group, out: GroupResult[ConsumerHeartbeatReply]
    ) -> None:
        """Convert a classic group with members to a consumer group, if the joining member can enter it."""
        allowed = self._config.migration_policy in _MAY_UPGRADE
        stored = self._store.groups.get(request.group_id)
        if not allowed or stored is None or len(classic.members) > self._config.consumer_max_size:
            out.reply = ConsumerHeartbeatReply.refusing(*_not_a_consumer_group(request.group_id))
            return
        value = replace(
            stored.value,
            protocol_type=classic.protocol_type or "",
            generation=classic.generation,
            members=tuple(member for member in stored.value.members if member.member_id in classic.members),
        )
        draft = self._consumer.converted(now_ms, value, request.group_id)
        if isinstance(draft, Refusal):
            out.reply = ConsumerHeartbeatReply.refusing(*draft)
            return
        joined = GroupResult(ConsumerHeartbeatReply())
        out.reply = self._consumer.heartbeat(now_ms, request, joined, draft.group)
        if out.reply.error_code:
            return
        out.records.append(GroupRecord(GroupMetadataKey(request.group_id), None))
        out.records.extend([*draft.records, *joined.records])
        self._consumer.watch(now_ms, draft.group)
        self._classic.converted(now_ms, request.group_id, out)

    def _member_left(self, now_ms: int, group: ConsumerGroup, out: Out) -> None:
        """Convert a consumer group with only classic members left to a classic group."""
        allowed = self._config.migration_policy in _MAY_DOWNGRADE and len(group.members) <= self._config.max_size
        value = to_classic(group, self._topics, now_ms) if allowed and all_classic(group) else None
        if value is not None:
            out.records.extend(tombstones(group))
            out.records.append(GroupRecord(GroupMetadataKey(group.group_id), value))
            self._consumer.forget(group)
            self._classic.adopt(now_ms, group.group_id, value, out)

    # Offsets

    def commit_offsets(self, now_ms: int, request: CommitOffsets) -> GroupResult[list[PartitionError]]:
        """Handle OffsetCommit v2-10. An empty group id is allowed, as in Kafka."""
        done = self._commit_elsewhere(now_ms, request)
        if done is not None:
            return done
        group = self._classic.find(request.group_id)
        error = self._check_commit(group, request)
        if not error and not self._has_room(now_ms, request.group_id):
            error = ErrorCode.POLICY_VIOLATION
        if error:
            return GroupResult([PartitionError(wanted.topic, wanted.partition, error) for wanted in request.offsets])
        if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._classic.heard_of(now_ms, group, request.member_id)
        records, answers = offsets.commit(
            self._config, now_ms, request.group_id, request.offsets, retention_ms=request.retention_ms
        )
        return GroupResult(answers, records)

    def commit_transactional_offsets(
        self, now_ms: int, request: CommitTransactionalOffsets
    ) -> GroupResult[list[PartitionError]]:
        """Handle TxnOffsetCommit v0-6. Below v3 there is neither member nor generation: leave their defaults."""
        done = self._commit_elsewhere(now_ms, request)
        if done is not None:
            return done
        group = self._classic.find(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = self._without_group(request)
            if not error and not self._has_room(now_ms, request.group_id):
                error = ErrorCode.POLICY_VIOLATION
        else:
            error = checks.check_offset_commit(
                group, request.member_id, request.group_instance_id, request.generation_id, transactional=True
            )
        if error:
            return GroupResult([PartitionError(wanted.topic, wanted.partition, error) for wanted in request.offsets])
        records, answers = offsets.commit(
            self._config,
            now_ms,
            request.group_id,
            request.offsets,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        return GroupResult(answers, records)

    def fetch_offsets(self, request: FetchOffsets) -> FetchedOffsets:
        """Handle OffsetFetch v1-10 for one group. Classic groups ignore the member and epoch of v9+."""
        consumer_group = self._consumer.find(request.group_id)
        if consumer_group is not None:
            error = consumer_decide.check_fetch(consumer_group, request.member_id, request.member_epoch)
            if error:
                return FetchedOffsets(request.group_id, error)
        streams_group = self._streams.find(request.group_id)
        if streams_group is not None:
            error = streams_decide.check_fetch(streams_group, request.member_id, request.member_epoch)
            if error:
                return FetchedOffsets(request.group_id, error)
        return offsets.fetch(self._store, request)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> GroupResult[OffsetsDeleted]:
        """Handle OffsetDelete v0."""
        if not group_id:
            return GroupResult(OffsetsDeleted(ErrorCode.INVALID_GROUP_ID))
        group: Group | ConsumerGroup | StreamsGroup | None = self._consumer.find(group_id) or self._streams.find(
            group_id
        )
        if group is None:
            group = self._classic.find(group_id)
            if group is None:
                return GroupResult(OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND))
            error = checks.check_offset_delete(group)
            if error:
                return GroupResult(OffsetsDeleted(error))
        records, answers = offsets.delete_some(self._store, group, partitions)
        return GroupResult(OffsetsDeleted(partitions=answers), records)

    def delete_partitions(self, partitions: Iterable[tuple[str, int]]) -> GroupResult[None]:
        """Delete all groups' offsets of deleted partitions."""
        gone = {TopicPartition(topic, index) for topic, index in partitions}
        out: GroupResult[None] = GroupResult(None)
        for group_id in self._ids():
            out.records.extend(offsets.delete_for(self._store, group_id, gone))
        return out

    # Administration

    def delete_groups(self, group_ids: Iterable[str]) -> GroupResult[list[DeletedGroup]]:
        """Handle DeleteGroups v0-2. Only groups without members are deleted, with all their offsets."""
        out: GroupResult[list[DeletedGroup]] = GroupResult([])
        for group_id in dict.fromkeys(group_ids):
            consumer_group = self._consumer.find(group_id)
            group = self._classic.find(group_id)
            if consumer_group is not None:
                error = ErrorCode.NON_EMPTY_GROUP if consumer_group.members else ErrorCode.NONE
                if not error:
                    out.records.extend(offsets.delete_all(self._store, group_id))
                    self._consumer.delete(consumer_group, out)
            elif (streams_group := self._streams.find(group_id)) is not None:
                error = ErrorCode.NON_EMPTY_GROUP if streams_group.members else ErrorCode.NONE
                if not error:
                    out.records.extend(offsets.delete_all(self._store, group_id))
                    self._streams.delete(streams_group, out)
            elif (share_group := self._share.find(group_id)) is not None:
                error = ErrorCode.NON_EMPTY_GROUP if share_group.members else ErrorCode.NONE
                if not error:
                    self._share.delete(share_group, out)
            elif group is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.state != GroupState.EMPTY:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                error = ErrorCode.NONE
                out.records.extend(offsets.delete_all(self._store, group_id))
                out.records.append(GroupRecord(GroupMetadataKey(group_id), None))
            out.reply.append(DeletedGroup(group_id, error))
        return out

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """Describe one group for DescribeGroups v0-6. A missing group is Dead, and from v6 (KIP-1043) also an error."""
        group = self._classic.find(group_id)
        if group is None:
            other = self._consumer.find(group_id) is not None or self._has_no_protocols(group_id)
            return views.describe_missing(group_id, api_version, other)
        return views.describe(group, self._store.groups.get(group_id))

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """List groups for ListGroups v0-5. Filters ignore case. An empty filter matches all, an unknown name none."""
        classic = [group for group_id in self._classic.ids() if (group := self._classic.find(group_id)) is not None]
        return views.list_groups(
            classic,
            self._store.consumer_groups.values(),
            self._store.share_groups.values(),
            self._store.streams_groups.values(),
            states,
            types,
        )

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """Describe one group for ConsumerGroupDescribe v0-1."""
        other = self._classic.find(group_id) is not None or self._has_no_protocols(group_id)
        return self._consumer.describe(group_id, exists_otherwise=other)

    def snapshot(self) -> object:
        """Return the persisted state as a comparable value."""
        return self._store.snapshot()

    @property
    def count(self) -> int:
        """Return the number of groups, including those that have only offsets."""
        return len(self._store)

    def _ids(self) -> list[str]:
        return [*self._classic.ids(), *self._store.consumer_groups, *self._store.streams_groups]

    def _commit_elsewhere(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> GroupResult[list[PartitionError]] | None:
        """Decide a commit for a consumer or streams group, or refuse it for a share group. None: another kind."""
        group = self._consumer.find(request.group_id)
        if group is not None:
            refused = self._consumer.refused_commits(group, request)
        elif (streams_group := self._streams.find(request.group_id)) is not None:
            refused = streams_decide.refused_commits(streams_group, request)
        elif self._share.find(request.group_id) is not None:
            named = ((wanted.topic, wanted.partition) for wanted in request.offsets)
            refused = dict.fromkeys(named, ErrorCode.GROUP_ID_NOT_FOUND)
        else:
            return None
        records, answers = offsets.commit(
            self._config,
            now_ms,
            request.group_id,
            [wanted for wanted in request.offsets if (wanted.topic, wanted.partition) not in refused],
            retention_ms=-1 if isinstance(request, CommitTransactionalOffsets) else request.retention_ms,
            producer_id=request.producer_id if isinstance(request, CommitTransactionalOffsets) else -1,
            producer_epoch=request.producer_epoch if isinstance(request, CommitTransactionalOffsets) else -1,
        )
        answers.extend(PartitionError(topic, index, error) for (topic, index), error in refused.items())
        return GroupResult(answers, records)

    def _check_commit(self, group: Group | None, request: CommitOffsets) -> ErrorCode:
        if group is not None:
            return checks.check_offset_commit(
                group, request.member_id, request.group_instance_id, request.generation_id, transactional=False
            )
        return self._without_group(request)

    def _without_group(self, request: CommitOffsets | CommitTransactionalOffsets) -> ErrorCode:
        """Return the code of a commit to a group that does not exist. Only a commit without a member may create it."""
        if request.generation_id < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if request.has_member_epochs else ErrorCode.ILLEGAL_GENERATION

    def _expiries(self, now_ms: int, out: GroupResult[None]) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each group whose offsets may expire, with the function that expires them."""
        # One pass over all groups every ten minutes, as in Kafka. A timer per offset would cost more than it saves.
        for group_id in list(self._store.consumer_groups):
            yield group_id, partial(self._expire_of_consumer_group, now_ms, group_id, out)
        for group_id in list(self._store.streams_groups):
            yield group_id, partial(self._expire_of_streams_group, now_ms, group_id, out)
        for group_id in self._classic.ids():
            yield group_id, partial(self._expire_of_classic_group, now_ms, group_id, out)

    def _expire_of_consumer_group(self, now_ms: int, group_id: str, out: GroupResult[None]) -> None:
        group = self._store.consumer_groups[group_id]
        records, none_left = offsets.expire_consumer_group(self._config, self._store, group, now_ms, self._jumps)
        out.records.extend(records)
        if none_left and not group.members:
            self._consumer.delete(group, out)

    def _expire_of_streams_group(self, now_ms: int, group_id: str, out: GroupResult[None]) -> None:
        group = self._store.streams_groups[group_id]
        records, none_left = offsets.expire_consumer_group(self._config, self._store, group, now_ms, self._jumps)
        out.records.extend(records)
        if none_left and not group.members:
            self._streams.delete(group, out)

    def _expire_of_classic_group(self, now_ms: int, group_id: str, out: GroupResult[None]) -> None:
        group = self._classic.find(group_id)
        if group is None or group_id not in self._store.groups:
            return
        records, none_left = offsets.expire(self._config, self._store, group, now_ms, self._jumps)
        out.records.extend(records)
        if none_left and group.state == GroupState.EMPTY and not group.pending_joins:
            out.records.append(GroupRecord(GroupMetadataKey(group_id), None))


def _not_a_consumer_group(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
