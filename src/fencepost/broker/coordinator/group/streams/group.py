"""A streams group (KIP-1071) as its records describe it; `replay` is the only writer of it.

Source: `StreamsGroup` and `GroupMetadataManager.replay` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from fencepost.broker.coordinator.group.base.kind import RecordedGroup
from fencepost.broker.coordinator.group.base.member_states import STORED_STATES, MemberState
from fencepost.broker.coordinator.group.base.records import LogKey
from fencepost.protocol.logs.streams_group_log import (
    StreamsCurrentKey,
    StreamsCurrentValue,
    StreamsGroupKey,
    StreamsGroupValue,
    StreamsMemberKey,
    StreamsMemberValue,
    StreamsTargetKey,
    StreamsTargetMemberKey,
    StreamsTargetValue,
    StreamsTaskId,
    StreamsTopologyKey,
    Tasks,
    Topology,
)
from fencepost.values import Value

__all__ = ["LEAVE_EPOCH", "NO_TASKS", "StreamsGroup", "StreamsGroupState", "StreamsMember"]

LEAVE_EPOCH = -1
NO_TASKS = Tasks({})
_UNKNOWN = StreamsMemberValue(None, None, "", "", -1, -1, "")


class StreamsGroupState(StrEnum):
    """State of a group. The value is the name on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsMember(Value, kw_only=True):
    """A member: its request (`wants`) and its tasks."""

    member_id: str
    wants: StreamsMemberValue = _UNKNOWN
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS

    def current(self) -> StreamsCurrentValue:
        """Return the value of the record of its current tasks."""
        return StreamsCurrentValue(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)


class StreamsGroup(RecordedGroup):
    """A streams group: epoch, topology, members and target assignment."""

    __slots__ = (
        "assignment_configs",
        "assignment_epoch",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "target",
        "topology",
        "validated_topology_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.validated_topology_epoch = -1
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        self.assignment_epoch = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.target: dict[str, Tasks] = {}

    @property
    def state(self) -> StreamsGroupState:
        """The state, derived from epochs and members."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.validated_topology_epoch != self.topology.epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        settled = all(m.state is MemberState.STABLE and m.epoch == self.assignment_epoch for m in self.members.values())
        return StreamsGroupState.STABLE if settled else StreamsGroupState.RECONCILING

    def target_of(self, member_id: str) -> Tasks:
        """Return the member's target assignment."""
        return self.target.get(member_id, NO_TASKS)

    def subscribes_to(self, topic: str) -> bool:
        """Return true if the group has members and its topology reads the topic."""
        parts = () if self.topology is None or not self.members else self.topology.subtopologies
        return any(
            topic in part.source_topics or any(topic == source.name for source in part.repartition_source_topics)
            for part in parts
        )

    def owners(self, task: StreamsTaskId, besides: str) -> Iterator[tuple[StreamsMember, bool]]:
        """Yield the other members that have the task or have not revoked it yet, and true for an active task."""
        for member in self.members.values():
            if member.member_id != besides:
                for tasks in (member.assigned, member.revoking):
                    if task in tasks.active:
                        yield member, True
                    elif task in tasks.standby or task in tasks.warmup:
                        yield member, False

    def replay(self, key: LogKey, value: object) -> bool:
        if isinstance(key, StreamsGroupKey) and isinstance(value, StreamsGroupValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            self.validated_topology_epoch = value.validated_topology_epoch
            self.assignment_configs = value.assignment_configs
        elif isinstance(key, StreamsTopologyKey) and isinstance(value, Topology | None):
            self.topology = value
        elif isinstance(key, StreamsTargetKey) and isinstance(value, StreamsTargetValue | None):
            self.assignment_epoch = 0 if value is None else value.assignment_epoch
        elif isinstance(key, StreamsTargetMemberKey) and isinstance(value, Tasks):
            self.target[key.member_id] = value
        elif isinstance(key, StreamsTargetMemberKey) and value is None:
            self.target.pop(key.member_id, None)
        elif isinstance(key, StreamsMemberKey) and isinstance(value, StreamsMemberValue):
            self.members[key.member_id] = replace(self._member(key.member_id), wants=value)
        elif isinstance(key, StreamsMemberKey) and value is None:
            self.members.pop(key.member_id, None)
        elif isinstance(key, StreamsCurrentKey) and isinstance(value, StreamsCurrentValue):
            return self._replay_current(key.member_id, value)
        elif not isinstance(key, StreamsCurrentKey) or value is not None:
            return False  # a tombstone of current tasks, which precedes the member's
        return True

    def _replay_current(self, member_id: str, value: StreamsCurrentValue) -> bool:
        if value.state not in STORED_STATES:
            return False
        self.members[member_id] = replace(
            self._member(member_id),
            state=MemberState(value.state),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=value.assigned,
            revoking=value.revoking,
        )
        return True

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id=member_id)
