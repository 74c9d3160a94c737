"""The group state table against `ClassicGroupState` of Apache Kafka 4.x; its valid previous states stand below."""

from __future__ import annotations

import pytest

from fencepost.broker.group.states import TABLE, GroupEvent, GroupState, IllegalStep, step

E, P, C, S, D = GroupState

# ClassicGroupState.java: EMPTY from PREPARING; PREPARING from STABLE, COMPLETING, EMPTY; COMPLETING from PREPARING;
# STABLE from COMPLETING. DEAD: Kafka also allows it from every state for unloading a partition, which one node does
# not do.
KAFKA = {E: {P}, P: {S, C, E}, C: {P}, S: {C}}


def test_every_pair_is_listed() -> None:
    assert set(TABLE) == {(state, event) for state in GroupState for event in GroupEvent}
    assert all(entry.note for entry in TABLE.values())


def test_moves_are_kafkas() -> None:
    moves: dict[GroupState, set[GroupState]] = {}
    for (state, _), entry in TABLE.items():
        if entry.next is not None and entry.next not in (state, D):
            moves.setdefault(entry.next, set()).add(state)
    assert moves == KAFKA


def test_only_an_empty_group_is_deleted_only_others_convert_and_nothing_follows() -> None:
    dies = {(state, event) for (state, event), entry in TABLE.items() if entry.next == D}
    assert dies == {(E, GroupEvent.DELETED), *((state, GroupEvent.CONVERTED) for state in (P, C, S))}
    assert all(TABLE[D, event].next is None for event in GroupEvent)


def test_illegal_steps_raise() -> None:
    illegal = [pair for pair, entry in TABLE.items() if entry.next is None]
    assert illegal
    for state, event in illegal:
        with pytest.raises(IllegalStep, match=event.name):
            step(state, event)


def test_labels_are_those_of_the_wire() -> None:
    assert [state.label for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
