"""The kinds of groups that one coordinator has, and what concerns share and streams groups alone.

A group is of one kind: its id is looked for among all of them before a member of another kind is let in.
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

    `new_uuid` gives the unique part of a member id, `topics` tells what there is, `timing` what holds for the members
    of a consumer group, `share_timing` for those of a share group; without it, the config's holds for all.
    `refused(now_ms, group_id)` is told of a group that there is no room for.
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
        """ShareGroupHeartbeat v1 (KIP-932), joins and leaves included."""
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
        """ShareGroupDescribe v1, one group."""
        return self._share.describe(group_id, exists_otherwise=self._is_another_than(self._share, group_id))

    def make_share_group(self, now_ms: int, group_id: str) -> GroupResult[Refusal | None]:
        """AlterShareGroupOffsets v0: a share group without members, made if there is none; or why it cannot be had."""
        out: GroupResult[Refusal | None] = GroupResult(None)
        if self._is_another_than(self._share, group_id):
            out.reply = not_a_share_group(group_id)
        elif not self._has_room(now_ms, group_id):
            out.reply = self._no_room()
        else:
            out.reply = self._share.make(group_id, out)
        return out

    def share_group(self, group_id: str) -> ShareGroup | None:
        """The share group of that id."""
        return self._share.find(group_id)

    def streams_heartbeat(self, now_ms: int, request: StreamsHeartbeat) -> GroupResult[StreamsHeartbeatReply]:
        """StreamsGroupHeartbeat v0 (KIP-1071), joins and leaves included."""
        out = GroupResult(StreamsHeartbeatReply())
        refusal = streams_decide.check_request(request)
        classic = self._classic.find(request.group_id)
        # An empty classic group is what an application leaves behind that comes back with the newer protocol.
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
        """StreamsGroupDescribe v0, one group."""
        return self._streams.describe(group_id, exists_otherwise=self._is_another_than(self._streams, group_id))

    def _is_another_than(self, kind: ShareGroups | StreamsGroups, group_id: str) -> bool:
        """Whether there is a group of that id, and of another kind."""
        kinds = (self._consumer, self._classic, self._share, self._streams)
        return any(other is not kind and other.find(group_id) is not None for other in kinds)

    def _has_no_protocols(self, group_id: str) -> bool:
        """Whether it is a group that neither a classic nor a consumer member can be in."""
        return self._share.find(group_id) is not None or self._streams.find(group_id) is not None

    def _no_room(self) -> Refusal:
        return Refusal(ErrorCode.POLICY_VIOLATION, f"There are {len(self._store)} groups already (max.groups).")

    def _has_room(self, now_ms: int, group_id: str) -> bool:
        """Whether the group exists already, or may."""
        if group_id in self._store or len(self._store) < self._config.max_groups:
            return True
        self._refused(now_ms, group_id)
        return False

    def _member_left(self, now_ms: int, group: ConsumerGroup, out: Out) -> None:
        """A member has left a consumer group for good."""
        raise NotImplementedError
