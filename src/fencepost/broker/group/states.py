"""The states of a classic group, and every step between them.

Source: `ClassicGroupState` of Apache Kafka 4.x (valid previous states) and the places of its GroupMetadataManager that
make each transition. The table is total: each pair of state and event is a transition or is listed as illegal, and an
illegal step raises `IllegalStep`. Nothing else may set a group's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["TABLE", "GroupEvent", "GroupState", "IllegalStep", "Step", "step"]


class GroupState(IntEnum):
    """Where a group stands. `label` is the name on the wire."""

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
    """What can happen to a group as a whole."""

    MEMBERS_CHANGED = 0  # a member came, left, failed, or changed what it supports
    ALL_JOINED = 1  # the join phase is over and somebody is there
    ALL_LEFT = 2  # the join phase is over and nobody is there
    ASSIGNED = 3  # the leader's assignment is stored
    DELETED = 4  # the group's tombstone is stored
    CONVERTED = 5  # its members go on in a consumer group (KIP-848)


class IllegalStep(RuntimeError):
    """The table lists this event as illegal in this state: a defect of the coordinator, never of a client."""


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to; `next` is None where it is illegal. The note says what is done, or why it cannot be."""

    next: GroupState | None
    note: str


def _to(state: GroupState, note: str) -> Step:
    return Step(state, note)


def _illegal(note: str) -> Step:
    return Step(None, note)


_E, _P, _C, _S, _D = GroupState
_CHANGED, _JOINED, _LEFT, _ASSIGNED, _DELETED, _CONVERTED = GroupEvent
_CONVERT = "answer what waits with REBALANCE_IN_PROGRESS; forget the group"
_GONE = "a deleted group is forgotten at once; nothing reaches it"

TABLE: dict[tuple[GroupState, GroupEvent], Step] = {
    (_E, _CHANGED): _to(_P, "the first member: wait group.initial.rebalance.delay.ms for more"),
    (_E, _JOINED): _illegal("no join phase is running"),
    (_E, _LEFT): _illegal("no join phase is running"),
    (_E, _ASSIGNED): _illegal("no generation is waiting for an assignment"),
    (_E, _DELETED): _to(_D, "forget the group"),
    (_E, _CONVERTED): _illegal("an empty group is deleted, and another one begins"),
    (_P, _CHANGED): _to(_P, "keep waiting for the members that have not rejoined"),
    (_P, _JOINED): _to(_C, "next generation; answer the joins; wait for the leader's assignment"),
    (_P, _LEFT): _to(_E, "next generation without members; store it"),
    (_P, _ASSIGNED): _illegal("an assignment of an older generation is refused before it is stored"),
    (_P, _DELETED): _illegal("only an empty group can be deleted (NON_EMPTY_GROUP)"),
    (_P, _CONVERTED): _to(_D, _CONVERT),
    (_C, _CHANGED): _to(_P, "answer waiting syncs with REBALANCE_IN_PROGRESS; everybody rejoins"),
    (_C, _JOINED): _illegal("the join phase is over"),
    (_C, _LEFT): _illegal("the join phase is over; a last member that leaves starts a new one"),
    (_C, _ASSIGNED): _to(_S, "answer the syncs with their assignments"),
    (_C, _DELETED): _illegal("only an empty group can be deleted (NON_EMPTY_GROUP)"),
    (_C, _CONVERTED): _to(_D, _CONVERT),
    (_S, _CHANGED): _to(_P, "heartbeats are answered with REBALANCE_IN_PROGRESS; everybody rejoins"),
    (_S, _JOINED): _illegal("no join phase is running"),
    (_S, _LEFT): _illegal("no join phase is running; a last member that leaves starts one"),
    (_S, _ASSIGNED): _illegal("the generation has its assignment; later syncs are answered from it"),
    (_S, _DELETED): _illegal("only an empty group can be deleted (NON_EMPTY_GROUP)"),
    (_S, _CONVERTED): _to(_D, _CONVERT),
    (_D, _CHANGED): _illegal(_GONE),
    (_D, _JOINED): _illegal(_GONE),
    (_D, _LEFT): _illegal(_GONE),
    (_D, _ASSIGNED): _illegal(_GONE),
    (_D, _DELETED): _illegal(_GONE),
    (_D, _CONVERTED): _illegal(_GONE),
}


def step(state: GroupState, event: GroupEvent) -> GroupState:
    """The state that `event` leads to from `state`. Raises IllegalStep where the table says so."""
    entry = TABLE[state, event]
    if entry.next is None:
        raise IllegalStep(f"{event.name} in {state.label}: {entry.note}")
    return entry.next
