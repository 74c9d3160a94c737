"""The group state table against `ClassicGroupState` of Apache Kafka 4.x; its valid previous states stand below."""

from __future__ import annotations

from fencepost.broker.coordinator.group.classic.states import TABLE, GroupEvent, GroupState

E, P, C, S, D = GroupState

# ClassicGroupState.java: EMPTY from PREPARING; PREPARING from STABLE, COMPLETING, EMPTY; COMPLETING from PREPARING;
# STABLE from COMPLETING. DEAD: Kafka also allows it from every state for unloading a partition, which one node does
# not do.
KAFKA = {E: {P}, P: {S, C, E}, C: {P}, S: {C}}


def test_moves_are_kafkas() -> None:
    moves: dict[GroupState, set[GroupState]] = {}
    for state, _, following in TABLE:
        if following not in (state, D):
            moves.setdefault(following, set()).add(state)
    assert moves == KAFKA


def test_only_an_empty_group_is_deleted_only_others_convert_and_nothing_follows() -> None:
    dies = {(state, event) for state, event, following in TABLE if following == D}
    assert dies == {(E, GroupEvent.DELETED), *((state, GroupEvent.CONVERTED) for state in (P, C, S))}
    assert all(TABLE.leads_to(D, event) is None for event in GroupEvent)


def test_labels_are_those_of_the_wire() -> None:
    assert [state.label for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
