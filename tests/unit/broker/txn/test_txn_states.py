"""The table of transaction states is total, and the way through it is Kafka's."""

from __future__ import annotations

import pytest

from fencepost.broker.txn.states import IDLE, PREPARED, STATE_NAMES, TABLE, Event, IllegalTransition, TxnState, step


def test_every_state_lists_every_event() -> None:
    assert set(TABLE) == set(TxnState)
    for state, row in TABLE.items():
        assert set(row) == set(Event), state


def test_numbers_and_names_are_those_of_kafka() -> None:
    # TransactionState.java of Apache Kafka: ids 0-7; names as ListTransactions shows them (observed, section 8).
    assert {int(state): name for state, name in STATE_NAMES.items()} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_an_illegal_step_raises_and_names_both() -> None:
    illegal = [(state, event) for state, row in TABLE.items() for event, after in row.items() if after is None]
    assert len(illegal) > 20
    for state, event in illegal:
        with pytest.raises(IllegalTransition, match=f"{event.name} in state {state.name}"):
            step(state, event)


def test_a_prepared_outcome_is_final() -> None:
    for state in PREPARED:
        reachable = {after for after in TABLE[state].values() if after is not None}
        expected = TxnState.COMPLETE_COMMIT if state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT
        assert reachable == {expected}


def test_only_an_idle_id_is_forgotten_or_initialised() -> None:
    for event in (Event.EXPIRED, Event.INITIALIZED):
        assert {state for state in TxnState if TABLE[state][event] is not None} == IDLE


def test_every_state_but_the_fencing_one_is_reached() -> None:
    reached = {after for row in TABLE.values() for after in row.values() if after is not None}
    assert reached == set(TxnState) - {TxnState.PREPARE_EPOCH_FENCE}
