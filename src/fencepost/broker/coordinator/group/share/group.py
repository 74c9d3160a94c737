"""A share group (KIP-932) as its records describe it. Only `replay` changes it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from fencepost.broker.coordinator.group.base.kind import RecordedGroup
from fencepost.broker.coordinator.group.base.records import LogKey
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.share_group_log import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
)
from fencepost.values import Value

__all__ = ["LEAVE_EPOCH", "ShareGroup", "ShareGroupMember", "ShareGroupState"]

LEAVE_EPOCH = -1
_UNKNOWN = ShareMemberValue(None, "", "", ())
_NOTHING: frozenset[TopicIdPartition] = frozenset()


class ShareGroupState(StrEnum):
    """State of a group. The value is the name on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroupMember(Value, kw_only=True):
    """A member: its request (`wants`) and its assignment."""

    member_id: str
    wants: ShareMemberValue = _UNKNOWN
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicIdPartition] = _NOTHING


class ShareGroup(RecordedGroup):
    """A group's epoch and members."""

    __slots__ = ("epoch", "group_id", "members", "metadata_hash")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ShareGroupMember] = {}

    @property
    def state(self) -> ShareGroupState:
        """The state, derived from the members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in member.wants.topic_names for member in self.members.values())

    def replay(self, key: LogKey, value: object) -> bool:
        if isinstance(key, ShareGroupKey) and isinstance(value, ShareGroupValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ShareMemberKey) and isinstance(value, ShareMemberValue):
            self.members[key.member_id] = replace(self._member(key.member_id), wants=value)
        elif isinstance(key, ShareMemberKey) and value is None:
            self.members.pop(key.member_id, None)
        elif isinstance(key, ShareCurrentKey) and isinstance(value, ShareCurrentValue):
            self.members[key.member_id] = replace(
                self._member(key.member_id),
                epoch=value.epoch,
                previous_epoch=value.previous_epoch,
                assigned=value.assigned,
            )
        elif not isinstance(key, ShareCurrentKey) or value is not None:
            return False  # a tombstone of a current assignment, which precedes the member's
        return True

    def _member(self, member_id: str) -> ShareGroupMember:
        return self.members.get(member_id) or ShareGroupMember(member_id=member_id)
