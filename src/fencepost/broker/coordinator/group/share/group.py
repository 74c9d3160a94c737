"""A share group (KIP-932) as its records say it is; `replay` is the only writer of it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

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
from fencepost.values import Value

__all__ = ["LEAVE_EPOCH", "ShareGroup", "ShareGroupState", "ShareMember"]

LEAVE_EPOCH = -1
_UNKNOWN = ShareMemberValue(None, "", "", ())
_NOTHING: frozenset[TopicIdPartition] = frozenset()


class ShareGroupState(StrEnum):
    """Where a group stands; the value is the name on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareMember(Value, kw_only=True):
    """A member: what it asked for (`wants`), and what it has."""

    member_id: str
    wants: ShareMemberValue = _UNKNOWN
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicIdPartition] = _NOTHING


class ShareGroup:
    """A group's epoch and members."""

    __slots__ = ("epoch", "group_id", "members", "metadata_hash")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}

    @property
    def state(self) -> ShareGroupState:
        """The state that follows from the members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member asks for the topic."""
        return any(topic in member.wants.topic_names for member in self.members.values())

    def copy(self) -> ShareGroup:
        """A group of its own with the same content."""
        twin = ShareGroup(self.group_id)
        twin.epoch, twin.metadata_hash, twin.members = self.epoch, self.metadata_hash, dict(self.members)
        return twin

    def snapshot(self) -> object:
        """Everything it is, as a value that can be compared."""
        return (self.epoch, self.metadata_hash, self.members)

    def replay(self, key: ShareGroupLogKey, value: ShareGroupLogValue | None) -> bool:
        """Apply a record of this group; False if it does not fit together. A tombstone of the group: see the store."""
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
            return False  # else: a tombstone of what a member has, behind which that of the member comes
        return True

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id=member_id)
