"""A consumer group (KIP-848) as its records describe it.

Only `ConsumerGroup.replay` changes it.

The log contains the complete state of a consumer group, except for the timers of sessions and revocations. The same
records in the same order always give the same group.

Source: `ConsumerGroup` and `GroupMetadataManager.replay` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from fencepost.broker.coordinator.group.base.kind import RecordedGroup
from fencepost.broker.coordinator.group.base.member_states import STORED_STATES, MemberState
from fencepost.broker.coordinator.group.base.records import LogKey
from fencepost.protocol.logs.consumer_group_log import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    MemberKey,
    MemberValue,
    RegexKey,
    RegexValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
    TopicIdPartition,
)
from fencepost.values import Value

__all__ = ["AWAY_EPOCH", "LEAVE_EPOCH", "ConsumerGroup", "ConsumerGroupState", "ConsumerMember"]

_V = TypeVar("_V")

LEAVE_EPOCH = -1
AWAY_EPOCH = -2
_NO_PARTITIONS: Mapping[TopicIdPartition, int] = {}
_NO_TARGET: frozenset[TopicIdPartition] = frozenset()
_UNKNOWN = MemberValue(None, None, "", "", (), None, -1, None)


class ConsumerGroupState(StrEnum):
    """State of a group. The value is the name on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the group epoch is ahead of the target assignment
    RECONCILING = "Reconciling"  # a member does not have its part of the target yet
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerMember(Value, kw_only=True):
    """A member: its request (`wants`) and its assignment.

    `assigned` and `revoking` have for each partition the member epoch at which it was assigned.
    """

    member_id: str
    wants: MemberValue = _UNKNOWN
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[TopicIdPartition, int] = _NO_PARTITIONS
    revoking: Mapping[TopicIdPartition, int] = _NO_PARTITIONS

    @property
    def away(self) -> bool:
        """True for a static member that left temporarily."""
        return self.epoch == AWAY_EPOCH

    def current(self) -> CurrentAssignmentValue:
        """Return the value of the record of its current assignment."""
        return CurrentAssignmentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)


class ConsumerGroup(RecordedGroup):
    """A consumer group: epoch, members, target assignment and resolved regular expressions."""

    __slots__ = (
        "assignment_epoch",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_ids",
        "target",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_ids: dict[str, str] = {}
        self.target: dict[str, frozenset[TopicIdPartition]] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.owners: dict[TopicIdPartition, str] = {}  # the member that owns the partition or has not revoked it yet

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with the instance id."""
        return self.members.get(self.static_ids.get(instance_id, ""))

    def target_of(self, member_id: str) -> frozenset[TopicIdPartition]:
        """Return the member's target assignment."""
        return self.target.get(member_id, _NO_TARGET)

    def topics_of(self, wants: MemberValue) -> set[str]:
        """Return the names of the topics that a member subscribes to. Regular expressions count as last resolved."""
        names = set(wants.topic_names)
        if wants.topic_regex and wants.topic_regex in self.regexes:
            names.update(self.regexes[wants.topic_regex].topics)
        return names

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member.wants) for member in self.members.values())

    def assignor(self, default: str) -> str:
        """Return the assignor most members request. The default if none does; the first by name in a tie."""
        votes = Counter(member.wants.server_assignor for member in self.members.values())
        votes.pop(None, None)
        return min(votes, key=lambda name: (-votes[name], name or ""), default=None) or default

    @property
    def state(self) -> ConsumerGroupState:
        """The state, derived from epochs and members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if any(m.state != MemberState.STABLE or m.epoch != self.assignment_epoch for m in self.members.values()):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def replay(self, key: LogKey, value: object) -> bool:
        if isinstance(key, ConsumerGroupKey) and isinstance(value, ConsumerGroupValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, TargetKey) and isinstance(value, TargetValue | None):
            self.assignment_epoch = value.assignment_epoch if value is not None else LEAVE_EPOCH
        elif isinstance(key, TargetMemberKey) and isinstance(value, TargetMemberValue | None):
            self._keep(self.target, key.member_id, None if value is None else value.partitions)
        elif isinstance(key, RegexKey) and isinstance(value, RegexValue | None):
            self._keep(self.regexes, key.regex, value)
        elif isinstance(key, MemberKey) and isinstance(value, MemberValue | None):
            self._replay_member(key.member_id, value)
        elif isinstance(key, CurrentAssignmentKey) and isinstance(value, CurrentAssignmentValue | None):
            if value is not None and value.state not in STORED_STATES:
                return False
            self._replay_current(key.member_id, value)
        else:
            return False
        return True

    @staticmethod
    def _keep(table: dict[str, _V], name: str, value: _V | None) -> None:
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value

    def _replay_member(self, member_id: str, value: MemberValue | None) -> None:
        present = self.members.get(member_id)
        instance_id = present.wants.instance_id if present is not None else None
        # The instance id may belong to a successor already.
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        if value is None:
            self._replay_current(member_id, None)
            self.members.pop(member_id, None)
            return
        if value.instance_id is not None:
            self.static_ids[value.instance_id] = member_id
        self.members[member_id] = replace(present or ConsumerMember(member_id=member_id), wants=value)

    def _replay_current(self, member_id: str, value: CurrentAssignmentValue | None) -> None:
        present = self.members.get(member_id)
        if present is None:
            if value is None:
                return
            present = ConsumerMember(member_id=member_id)
        for partition in (*present.assigned, *present.revoking):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        if value is None:
            # The other tombstones of the member follow.
            nothing = ConsumerMember(member_id=member_id, wants=present.wants, epoch=LEAVE_EPOCH)
            self.members[member_id] = nothing
            return
        for partition in (*value.assigned, *value.revoking):
            self.owners[partition] = member_id
        self.members[member_id] = ConsumerMember(
            member_id=member_id,
            wants=present.wants,
            state=MemberState(value.state),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=value.assigned,
            revoking=value.revoking,
        )
