"""The member table of KIP-848 against `CurrentAssignmentBuilder` of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from fencepost.broker.group.consumer_states import (
    MEMBER_TABLE,
    ConsumerGroupState,
    IllegalMemberStep,
    MemberEvent,
    MemberState,
    member_step,
)

RECONCILING = (MemberEvent.OWES, MemberEvent.WAITS, MemberEvent.RECONCILED)


def test_every_pair_is_listed() -> None:
    assert set(MEMBER_TABLE) == {(state, event) for state in MemberState for event in MemberEvent}
    assert all(entry.note for entry in MEMBER_TABLE.values())


def test_the_numbers_in_the_log_are_kafkas() -> None:
    assert [(state.name, state.value) for state in MemberState][:3] == [
        ("STABLE", 0),
        ("UNREVOKED", 1),
        ("UNRELEASED", 2),
    ]


def test_a_reconciliation_ends_where_its_event_says_from_everywhere() -> None:
    ends = {
        event: {entry.next for (_, e), entry in MEMBER_TABLE.items() if e == event} - {None} for event in RECONCILING
    }
    assert ends == {
        MemberEvent.OWES: {MemberState.UNREVOKED},
        MemberEvent.WAITS: {MemberState.UNRELEASED},
        MemberEvent.RECONCILED: {MemberState.STABLE},
    }


def test_nobody_who_is_away_or_absent_is_reconciled() -> None:
    for state in (MemberState.AWAY, MemberState.ABSENT):
        assert [MEMBER_TABLE[state, event].next for event in RECONCILING] == [None] * 3


def test_illegal_steps_raise() -> None:
    illegal = [pair for pair, entry in MEMBER_TABLE.items() if entry.next is None]
    assert illegal
    for state, event in illegal:
        with pytest.raises(IllegalMemberStep, match=event.name):
            member_step(state, event)


def test_labels_are_those_of_the_wire() -> None:
    assert [str(state) for state in ConsumerGroupState] == ["Empty", "Assigning", "Reconciling", "Stable", "Dead"]
