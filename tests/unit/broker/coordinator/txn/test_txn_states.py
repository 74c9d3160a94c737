"""The table of transaction states: the way through it is Kafka's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.broker.coordinator.txn.model import TransactionRecord
from fencepost.broker.coordinator.txn.states import (
    IDLE,
    PREPARED,
    STATE_NAMES,
    TABLE,
    IllegalTransition,
    TxnRecordEvent,
    TxnState,
)
from tests.unit.broker.coordinator.txn.txn_harness import TXN, Harness


def test_numbers_and_names_are_those_of_kafka() -> None:
    # TransactionState.java of Apache Kafka: ids 0-7; names as ListTransactions shows them (K80).
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


def test_a_prepared_outcome_is_final() -> None:
    for state in PREPARED:
        reachable = {after for before, _, after in TABLE if before is state}
        expected = TxnState.COMPLETE_COMMIT if state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT
        assert reachable == {expected}


def test_only_an_idle_id_is_forgotten_or_initialised() -> None:
    for event in (TxnRecordEvent.EXPIRED, TxnRecordEvent.INITIALIZED):
        assert {state for state in TxnState if TABLE.leads_to(state, event) is not None} == IDLE


def test_every_state_but_the_fencing_one_is_reached() -> None:
    reached = {after for _, _, after in TABLE}
    assert reached == set(TxnState) - {TxnState.PREPARE_EPOCH_FENCE}


@pytest.mark.parametrize("state", [TxnState.COMPLETE_ABORT, TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE])
def test_a_record_that_cannot_follow_is_refused_and_changes_nothing(state: TxnState) -> None:
    broker = Harness()
    broker.end(broker.open())
    before = broker.at()
    with pytest.raises(IllegalTransition):
        broker.core.replay(TransactionRecord(TXN, replace(before, state=state)))
    assert broker.at() == before
