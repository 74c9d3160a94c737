"""The state tables are total, and refuse in words."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from fencepost.client import fetch_sessions, member_states, member_states_remote, txn_states
from fencepost.client.txn_states import TxnEvent, TxnState
from fencepost.errors import UsageError

MACHINES: list[tuple[Any, type[Enum], type[Enum]]] = [
    (txn_states, TxnState, TxnEvent),
    (member_states, member_states.MemberState, member_states.MemberEvent),
    (member_states_remote, member_states_remote.RemoteState, member_states_remote.RemoteEvent),
    (fetch_sessions, fetch_sessions.SessionState, fetch_sessions.SessionEvent),
]


@pytest.mark.parametrize(
    ("machine", "states", "events"), MACHINES, ids=["transaction", "member", "remote member", "fetch session"]
)
def test_every_state_and_event_is_listed(machine: Any, states: type[Enum], events: type[Enum]) -> None:
    assert set(machine.TABLE) == set(states)
    for state in states:
        assert set(machine.TABLE[state]) == set(events), state
    illegal = [(state, event) for state in states for event in events if machine.TABLE[state][event] is None]
    assert illegal
    for state, event in illegal:
        with pytest.raises(UsageError):
            machine.step(state, event)


def test_fatal_is_terminal() -> None:
    """Unlike clients where a fatal state slips back into an abortable one."""
    assert set(txn_states.TABLE[TxnState.FATAL_ERROR].values()) == {TxnState.FATAL_ERROR, None}


def test_every_state_can_end() -> None:
    """From everywhere but the fatal state there is a way back to READY."""
    reachable = {TxnState.READY}
    while True:
        before = len(reachable)
        reachable |= {state for state, row in txn_states.TABLE.items() if reachable & set(row.values())}
        if len(reachable) == before:
            break
    assert reachable == set(TxnState) - {TxnState.FATAL_ERROR}


def test_a_commit_never_follows_an_error() -> None:
    assert txn_states.TABLE[TxnState.ABORTABLE_ERROR][TxnEvent.COMMIT] is None
    assert txn_states.TABLE[TxnState.ABORTING][TxnEvent.COMMIT] is None
    assert set(txn_states.WHY) == set(TxnState)
