"""The states of a member of a consumer group (KIP-848) and of such a group, and every step of a member between them.

Source: `MemberState`, `CurrentAssignmentBuilder` and `ConsumerGroup.ConsumerGroupState` of Apache Kafka 4.3.1. The
table of a member is total: each pair of state and event is a transition or is listed as illegal, and an illegal step
raises `IllegalMemberStep`. A group has no transitions of its own: its state follows from its epochs and its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

__all__ = [
    "MEMBER_TABLE",
    "ConsumerGroupState",
    "IllegalMemberStep",
    "MemberEvent",
    "MemberState",
    "MemberStep",
    "member_step",
]


class ConsumerGroupState(StrEnum):
    """Where a group stands; the value is the name on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the group epoch is ahead of the target assignment
    RECONCILING = "Reconciling"  # a member does not have its part of the target yet
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """Where a member stands. The first three are stored under these numbers; the others are seen from its epoch."""

    STABLE = 0  # it has all of its target
    UNREVOKED = 1  # it has to give partitions back before it goes to the next epoch
    UNRELEASED = 2  # it is in the target's epoch, and others still have some of its partitions
    ABSENT = -1  # it is not in the group
    AWAY = -2  # a static member said that it will be back (epoch -2); it keeps its partitions


class MemberEvent(IntEnum):
    """What can happen to a member."""

    JOINED = 0  # it comes in with nothing, or takes the place of a static member that is away
    OWES = 1  # the target takes partitions that it has and has not given back
    WAITS = 2  # it owes nothing, and some of its target still belongs to others
    RECONCILED = 3  # it has its whole target
    STEPPED_OUT = 4  # a static member leaves and will be back
    GONE = 5  # it left, was fenced, or somebody took its place


class IllegalMemberStep(RuntimeError):
    """The table lists this event as illegal in this state: a defect of the coordinator, never of a client."""


@dataclass(frozen=True, slots=True)
class MemberStep:
    """What an event leads to; `next` is None where it is illegal. The note says what is done, or why it cannot be."""

    next: MemberState | None
    note: str


def _to(state: MemberState, note: str) -> MemberStep:
    return MemberStep(state, note)


def _illegal(note: str) -> MemberStep:
    return MemberStep(None, note)


_STABLE, _UNREVOKED, _UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED
_ABSENT, _AWAY = MemberState.ABSENT, MemberState.AWAY
_JOINED, _OWES, _WAITS, _DONE, _OUT, _GONE = MemberEvent
_NOBODY = "nobody is there to be reconciled"
_OWE = "keep the epoch; tell it what it keeps; start its rebalance timeout"
_WAIT = "take the target's epoch and what is free of it; the rest follows when it is released"
_DO = "take the target's epoch and all of it"
_STAYS = "it is in the group already; a join with epoch 0 only asks for its assignment again"
_AS_IS = "reconciliation goes on when its successor joins"
_LEAVE = "store epoch -2; what it had to give back is free, the rest stays its own until its session ends"
_FREE = "its partitions are free"

MEMBER_TABLE: dict[tuple[MemberState, MemberEvent], MemberStep] = {
    (_ABSENT, _JOINED): _to(_STABLE, "epoch 0, with what the static member had whose place it takes"),
    (_ABSENT, _OWES): _illegal(_NOBODY),
    (_ABSENT, _WAITS): _illegal(_NOBODY),
    (_ABSENT, _DONE): _illegal(_NOBODY),
    (_ABSENT, _OUT): _illegal(_NOBODY),
    (_ABSENT, _GONE): _illegal("who is not there cannot go"),
    (_STABLE, _JOINED): _illegal(_STAYS),
    (_STABLE, _OWES): _to(_UNREVOKED, _OWE),
    (_STABLE, _WAITS): _to(_UNRELEASED, _WAIT),
    (_STABLE, _DONE): _to(_STABLE, _DO),
    (_STABLE, _OUT): _to(_AWAY, _LEAVE),
    (_STABLE, _GONE): _to(_ABSENT, _FREE),
    (_UNREVOKED, _JOINED): _illegal(_STAYS),
    (_UNREVOKED, _OWES): _to(_UNREVOKED, _OWE),
    (_UNREVOKED, _WAITS): _to(_UNRELEASED, _WAIT),
    (_UNREVOKED, _DONE): _to(_STABLE, _DO),
    (_UNREVOKED, _OUT): _to(_AWAY, _LEAVE),
    (_UNREVOKED, _GONE): _to(_ABSENT, _FREE),
    (_UNRELEASED, _JOINED): _illegal(_STAYS),
    (_UNRELEASED, _OWES): _to(_UNREVOKED, _OWE),
    (_UNRELEASED, _WAITS): _to(_UNRELEASED, _WAIT),
    (_UNRELEASED, _DONE): _to(_STABLE, _DO),
    (_UNRELEASED, _OUT): _to(_AWAY, _LEAVE),
    (_UNRELEASED, _GONE): _to(_ABSENT, _FREE),
    (_AWAY, _JOINED): _illegal("whoever comes back has a new member id: this one is GONE, the other one has JOINED"),
    (_AWAY, _OWES): _illegal(_AS_IS),
    (_AWAY, _WAITS): _illegal(_AS_IS),
    (_AWAY, _DONE): _illegal(_AS_IS),
    (_AWAY, _OUT): _to(_AWAY, "it said so again"),
    (_AWAY, _GONE): _to(_ABSENT, _FREE),
}


def member_step(state: MemberState, event: MemberEvent) -> MemberState:
    """The state that `event` leads to from `state`. Raises IllegalMemberStep where the table says so."""
    entry = MEMBER_TABLE[state, event]
    if entry.next is None:
        raise IllegalMemberStep(f"{event.name} in {state.name}: {entry.note}")
    return entry.next
