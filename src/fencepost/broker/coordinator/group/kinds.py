"""Base of the group coordinator: its groups by kind, and the requests of share and streams groups.

A group has one kind. Before a member of another kind joins, its id is looked up among all kinds.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.classic.rebalance import Out
from fencepost.broker.coordinator.group.classic.states import GroupState
from fencepost.broker.coordinator.group.config import GroupConfig, MemberTiming
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.deadlines import Deadline
from fencepost.broker.coordinator.group.records import GroupRecord
from fencepost.broker.coordinator.group.replay import GroupStore
from fencepost.broker.coordinator.group.requests import (
    ConsumerHeartbeatReply,
    DescribedShareGroup,
    GroupResult,
    Refusal,
    ShareHeartbeat,
)
from fencepost.broker.coordinator.group.share.group import ShareGroup
from fencepost.broker.coordinator.group.share.membership import ShareGroups, not_a_share_group
from fencepost.broker.coordinator.group.share.membership import check_request as check_share_request
from fencepost.broker.coordinator.group.streams import decide as streams_decide
from fencepost.broker.coordinator.group.streams.membership import StreamsGroups, StreamsTiming, not_a_streams_group
from fencepost.broker.coordinator.group.streams.requests import (
    DescribedStreamsGroup,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from fencepost.broker.coordinator.group.topics import Topics
from fencepost.broker.timing.alarm import Alarm
from fencepost.broker.timing.clock import Jumps
from fencepost.broker.timing.deadlines import Deadlines
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import GroupMetadataKey

__all__ = ["GroupKinds"]


class GroupKinds:
    """The groups of one coordinator, by kind.

    `new_uuid` returns the unique part of a member id, and `topics` has the existing topics. `timing` returns the timing
    of a consumer group's members by group id, and `share_timing` of a share group's; without it, the config's applies.
    `refused(now_ms, group_id)` is called for a new group beyond the limit.
    """

    def __init__(
        self,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        topics: Topics,
        timing: Callable[[str], MemberTiming] | None = None,
        refused: Callable[[int, str], None] = lambda _now_ms, _group_id: None,
        share_timing: Callable[[str], MemberTiming] | None = None,
        streams_timing: Callable[[str], StreamsTiming] | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        self._config = config
        self._refused = refused
        self._store = GroupStore(config.offsets_topic_partitions)
        self._deadlines = Deadlines[Deadline](alarm)
        self._jumps = Jumps()
        self._topics = topics
        self._classic = ClassicGroups(config, self._store, self._deadlines, new_uuid)
        self._consumer = ConsumerGroups(
            config, self._store, self._deadlines, new_uuid, topics, timing, self._member_left
        )
        self._share = ShareGroups(config, self._store, self._deadlines, topics, share_timing)
        self._streams = StreamsGroups(config, self._store, self._deadlines, topics, streams_timing)

    def share_heartbeat(self, now_ms: int, request: ShareHeartbeat) -> GroupResult[ConsumerHeartbeatReply]:
        """Handle ShareGroupHeartbeat v1 (KIP-932), including joins and leaves."""
        out = GroupResult(ConsumerHeartbeatReply())
        refusal = check_share_request(request)
        if refusal is None and self._is_another_than(self._share, request.group_id):
            refusal = not_a_share_group(request.group_id)
        if refusal is None and request.member_epoch == 0 and not self._has_room(now_ms, request.group_id):
            refusal = self._no_room()
        out.reply = (
            self._share.heartbeat(now_ms, request, out)
            if refusal is None
            else ConsumerHeartbeatReply.refusing(*refusal)
        )
        return out

    def describe_share_group(self, group_id: str) -> DescribedShareGroup:
        """Describe one group for ShareGroupDescribe v1."""
        return self._share.describe(group_id, exists_otherwise=self._is_another_than(self._share, group_id))

    def make_share_group(self, now_ms: int, group_id: str) -> GroupResult[Refusal | None]:
        """Create an empty share group for AlterShareGroupOffsets v0 unless it exists.

        Return a refusal if that is impossible.
        """
        out: GroupResult[Refusal | None] = GroupResult(None)
        if self._is_another_than(self._share, group_id):
            out.reply = not_a_share_group(group_id)
        elif not self._has_room(now_ms, group_id):
            out.reply = self._no_room()
        else:
            out.reply = self._share.make(group_id, out)
        return out

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Return the share group with the id."""
        return self._share.find(group_id)

    def streams_heartbeat(self, now_ms: int, request: StreamsHeartbeat) -> GroupResult[StreamsHeartbeatReply]:
        """Handle StreamsGroupHeartbeat v0 (KIP-1071), including joins and leaves."""
        out = GroupResult(StreamsHeartbeatReply())
        refusal = streams_decide.check_request(request)
        classic = self._classic.find(request.group_id)
        # An application that returns with the newer protocol leaves an empty classic group behind.
        empty = classic is not None and classic.state == GroupState.EMPTY and request.member_epoch == 0
        if refusal is None and not empty and self._is_another_than(self._streams, request.group_id):
            refusal = not_a_streams_group(request.group_id)
        if refusal is None and request.member_epoch == 0 and not self._has_room(now_ms, request.group_id):
            refusal = self._no_room()
        if refusal is not None:
            out.reply = StreamsHeartbeatReply(error_code=refusal.error_code, error_message=refusal.message)
            return out
        joined: GroupResult[StreamsHeartbeatReply] = GroupResult(StreamsHeartbeatReply())
        out.reply = self._streams.heartbeat(now_ms, request, joined)
        if empty and joined.records:
            out.records.append(GroupRecord(GroupMetadataKey(request.group_id), None))
        out.records.extend(joined.records)
        return out

    def describe_streams_group(self, group_id: str) -> DescribedStreamsGroup:
        """Describe one group for StreamsGroupDescribe v0."""
        return self._streams.describe(group_id, exists_otherwise=self._is_another_than(self._streams, group_id))

    def _is_another_than(self, kind: ShareGroups | StreamsGroups, group_id: str) -> bool:
        """Return true if the id belongs to a group of another kind."""
        kinds = (self._consumer, self._classic, self._share, self._streams)
        return any(other is not kind and other.find(group_id) is not None for other in kinds)

    def _has_no_protocols(self, group_id: str) -> bool:
        """Return true for a group that neither a classic nor a consumer member can join."""
        return self._share.find(group_id) is not None or self._streams.find(group_id) is not None

    def _no_room(self) -> Refusal:
        return Refusal(ErrorCode.POLICY_VIOLATION, f"There are {len(self._store)} groups already (max.groups).")

    def _has_room(self, now_ms: int, group_id: str) -> bool:
        """Return true if the group exists or may be created."""
        if group_id in self._store or len(self._store) < self._config.max_groups:
            return True
        self._refused(now_ms, group_id)
        return False

    def _member_left(self, now_ms: int, group: ConsumerGroup, out: Out) -> None:
        """React to a member that left a consumer group permanently."""
        raise NotImplementedError
