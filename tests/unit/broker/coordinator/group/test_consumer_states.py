"""The member table of KIP-848 against `CurrentAssignmentBuilder` of Apache Kafka 4.3.1."""

from __future__ import annotations

from fencepost.broker.coordinator.group.base.member_states import (
    MEMBER_TABLE,
    MemberEvent,
    MemberState,
)
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroupState

RECONCILING = (MemberEvent.MUST_REVOKE, MemberEvent.MUST_WAIT, MemberEvent.RECONCILED)


def test_the_numbers_in_the_log_are_kafkas() -> None:
    assert [(state.name, state.value) for state in MemberState][:3] == [
        ("STABLE", 0),
        ("UNREVOKED", 1),
        ("UNRELEASED", 2),
    ]


def test_a_reconciliation_ends_where_its_event_says_from_everywhere() -> None:
    ends = {event: {end for _, e, end in MEMBER_TABLE if e == event} for event in RECONCILING}
    assert ends == {
        MemberEvent.MUST_REVOKE: {MemberState.UNREVOKED},
        MemberEvent.MUST_WAIT: {MemberState.UNRELEASED},
        MemberEvent.RECONCILED: {MemberState.STABLE},
    }


def test_nobody_who_is_away_or_absent_is_reconciled() -> None:
    for state in (MemberState.AWAY, MemberState.ABSENT):
        assert [MEMBER_TABLE.leads_to(state, event) for event in RECONCILING] == [None] * 3


def test_labels_are_those_of_the_wire() -> None:
    assert [str(state) for state in ConsumerGroupState] == ["Empty", "Assigning", "Reconciling", "Stable", "Dead"]
