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

    STABLE = 0  # the member has its complete target assignment
    UNREVOKED = 1  # the member must revoke partitions or tasks before it can take the next epoch
    UNRELEASED = 2  # the member has the target's epoch, and other members still own some of its partitions
    ABSENT = -1  # the member is not in the group
    AWAY = -2  # a static member has left temporarily (epoch -2) and keeps its partitions


STORED_STATES: Final = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)


class MemberEvent(IntEnum):
    """Event of a member."""

    JOINED = 0  # the member joins without partitions, or replaces a static member that is away
    MUST_REVOKE = 1  # the member owns partitions that its target does not have
    MUST_WAIT = 2  # nothing is left to revoke, and other members own some partitions of the target
    RECONCILED = 3  # the member has its complete target
    LEFT_TEMPORARILY = 4  # a static member leaves temporarily
    REMOVED = 5  # the member left, was fenced, or was replaced


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
    _E.MUST_REVOKE: _S.UNREVOKED,  # keep the epoch; start its rebalance timeout
    _E.MUST_WAIT: _S.UNRELEASED,  # take the target's epoch and what is free of it
    _E.RECONCILED: _S.STABLE,  # take the target's epoch and all of it
    _E.LEFT_TEMPORARILY: _S.AWAY,  # its partitions to revoke are free
    _E.REMOVED: _S.ABSENT,  # its partitions are free
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
            _E.LEFT_TEMPORARILY: _S.AWAY,  # it said so again
            _E.REMOVED: _S.ABSENT,  # its partitions are free
        },
    },
    _illegal,
)
member_step: Final = MEMBER_TABLE.step
