"""States of a member whose partitions or tasks the coordinator assigns, and all transitions (KIP-848, KIP-1071).

Source: `MemberState` and `CurrentAssignmentBuilder` of Apache Kafka 4.3.1. A step that is not in the table raises
`IllegalMemberStep`. A group has no transitions of its own: its state follows from its epochs and its members.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.states import StateTable

__all__ = ["MEMBER_TABLE", "STORED_STATES", "IllegalMemberStep", "MemberEvent", "MemberState", "member_step"]


class MemberState(IntEnum):
    """State of a member. The first three are stored under these numbers; the others follow from its epoch."""

    STABLE = 0  # it has all of its target
    UNREVOKED = 1  # it has to give partitions or tasks back before it goes to the next epoch
    UNRELEASED = 2  # it is in the target's epoch, and others still have some of its partitions
    ABSENT = -1  # it is not in the group
    AWAY = -2  # a static member said that it will be back (epoch -2); it keeps its partitions


STORED_STATES: Final = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)


class MemberEvent(IntEnum):
    """Event of a member."""

    JOINED = 0  # it comes in with nothing, or takes the place of a static member that is away
    OWES = 1  # the target takes partitions that it has and has not given back
    WAITS = 2  # it owes nothing, and some of its target still belongs to others
    RECONCILED = 3  # it has its whole target
    STEPPED_OUT = 4  # a static member leaves and will be back
    GONE = 5  # it left, was fenced, or somebody took its place


class IllegalMemberStep(RuntimeError):
    """The table does not have this step. A defect of the coordinator, never of a client."""


_S, _E = MemberState, MemberEvent
_THERE: Final = "it is in the group already; a join with epoch 0 only asks for its assignment again"

# Reasons for the missing entries of the table.
_WHY: Final = {
    _S.ABSENT: "nobody is there to be reconciled, or to go",
    _S.STABLE: _THERE,
    _S.UNREVOKED: _THERE,
    _S.UNRELEASED: _THERE,
    _S.AWAY: "reconciliation goes on when its successor joins, which has a new member id",
}


def _illegal(state: MemberState, event: MemberEvent) -> IllegalMemberStep:
    return IllegalMemberStep(f"{event.name} in {state.name}: {_WHY[state]}")


# Shared by the states of present members, because the next state depends only on the target.
_OF_A_MEMBER: Final = {
    _E.OWES: _S.UNREVOKED,  # keep the epoch; start its rebalance timeout
    _E.WAITS: _S.UNRELEASED,  # take the target's epoch and what is free of it
    _E.RECONCILED: _S.STABLE,  # take the target's epoch and all of it
    _E.STEPPED_OUT: _S.AWAY,  # its partitions to revoke are free
    _E.GONE: _S.ABSENT,  # its partitions are free
}

MEMBER_TABLE: Final = StateTable(
    MemberState,
    MemberEvent,
    {
        _S.STABLE: _OF_A_MEMBER,
        _S.UNREVOKED: _OF_A_MEMBER,
        _S.UNRELEASED: _OF_A_MEMBER,
        _S.ABSENT: {
            _E.JOINED: _S.STABLE,  # epoch 0, with what the static member had whose place it takes
        },
        _S.AWAY: {
            _E.STEPPED_OUT: _S.AWAY,  # it said so again
            _E.GONE: _S.ABSENT,  # its partitions are free
        },
    },
    _illegal,
)
member_step: Final = MEMBER_TABLE.step
