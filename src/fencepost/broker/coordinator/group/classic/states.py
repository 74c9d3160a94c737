"""States of a classic group, and all transitions between them.

Source: `ClassicGroupState` of Apache Kafka 4.x (valid previous states) and the transitions in its GroupMetadataManager.
A transition that is not in the table raises `IllegalStep`. Only these steps change a group's state.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.states import StateTable

__all__ = ["TABLE", "GroupEvent", "GroupState", "IllegalStep", "step"]


class GroupState(IntEnum):
    """State of a group. `label` is the name on the wire."""

    EMPTY = 0
    PREPARING_REBALANCE = 1
    COMPLETING_REBALANCE = 2
    STABLE = 3
    DEAD = 4

    @property
    def label(self) -> str:
        """The state's name in ListGroups and DescribeGroups."""
        return _LABELS[self]


_LABELS = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING_REBALANCE: "PreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "CompletingRebalance",
    GroupState.STABLE: "Stable",
    GroupState.DEAD: "Dead",
}


class GroupEvent(IntEnum):
    """Event of a group as a whole."""

    MEMBERS_CHANGED = 0  # a member came, left, failed, or changed what it supports
    ALL_JOINED = 1  # the join phase is over and somebody is there
    ALL_LEFT = 2  # the join phase is over and nobody is there
    ASSIGNED = 3  # the leader's assignment is stored
    DELETED = 4  # the group's tombstone is stored
    CONVERTED = 5  # its members go on in a consumer group (KIP-848)


class IllegalStep(RuntimeError):
    """The table does not have this step. A defect of the coordinator, never of a client."""


_S, _E = GroupState, GroupEvent

# Reasons for the missing entries of the table.
_WHY: Final = {
    _S.EMPTY: "nobody is there to join, to be assigned anything or to be converted",
    _S.PREPARING_REBALANCE: "the join phase is running: no assignment is taken, and only an empty group is deleted",
    _S.COMPLETING_REBALANCE: "the join phase is over, and only an empty group is deleted",
    _S.STABLE: "no join phase is running, the generation has its assignment, and only an empty group is deleted",
    _S.DEAD: "a deleted group is forgotten at once; nothing reaches it",
}


def _illegal(state: GroupState, event: GroupEvent) -> IllegalStep:
    return IllegalStep(f"{event.name} in {state.label}: {_WHY[state]}")


TABLE: Final = StateTable(
    GroupState,
    GroupEvent,
    {
        _S.EMPTY: {
            _E.MEMBERS_CHANGED: _S.PREPARING_REBALANCE,  # the first member; wait some time for more
            _E.DELETED: _S.DEAD,  # forget the group
        },
        _S.PREPARING_REBALANCE: {
            _E.MEMBERS_CHANGED: _S.PREPARING_REBALANCE,  # keep waiting for the members that have not rejoined
            _E.ALL_JOINED: _S.COMPLETING_REBALANCE,  # next generation; wait for the leader's assignment
            _E.ALL_LEFT: _S.EMPTY,  # next generation without members; store it
            _E.CONVERTED: _S.DEAD,  # answer what waits with REBALANCE_IN_PROGRESS; forget the group
        },
        _S.COMPLETING_REBALANCE: {
            _E.MEMBERS_CHANGED: _S.PREPARING_REBALANCE,  # all members rejoin; waiting syncs get REBALANCE_IN_PROGRESS
            _E.ASSIGNED: _S.STABLE,  # answer the syncs with their assignments
            _E.CONVERTED: _S.DEAD,  # answer what waits with REBALANCE_IN_PROGRESS; forget the group
        },
        _S.STABLE: {
            _E.MEMBERS_CHANGED: _S.PREPARING_REBALANCE,  # all members rejoin; heartbeats get REBALANCE_IN_PROGRESS
            _E.CONVERTED: _S.DEAD,  # answer what waits with REBALANCE_IN_PROGRESS; forget the group
        },
    },
    _illegal,
)
step: Final = TABLE.step
