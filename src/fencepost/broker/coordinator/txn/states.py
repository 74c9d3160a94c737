"""The states of a transactional id and what may happen in each.

A record of the log names the state that it leads to; whether that may follow is asked of `TABLE`, and what may not
raises `IllegalTransition`. Which *request* leads to which event is decided in the ``decide_*`` modules; a request that
is refused is no event at all.

============== ===================================== ==============================================================
state          what is true in it                    what happens next
============== ===================================== ==============================================================
EMPTY          initialised, never used since         a partition is added; an empty transaction is aborted; expiry
ONGOING        partitions are enlisted; with a       EndTxn, timeout, fencing InitProducerId; a *keep* leaves it
               second pair it is a kept one          open and moves the right to end it to a new pair
PREPARE_COMMIT the outcome is durable, markers of    every enlisted partition acknowledges its marker, then
PREPARE_ABORT  the partitions are outstanding        COMPLETE_*; until then CONCURRENT_TRANSACTIONS
COMPLETE_*     all markers are in the partitions     as EMPTY; the outcome is remembered for repeated EndTxns
DEAD           forgotten (a tombstone is logged)     nothing: a later InitProducerId makes a new id
PREPARE_EPOCH_ the name Kafka gives the fencing      nothing leads here: fencing and PREPARE_ABORT are one record,
FENCE          step before PREPARE_ABORT             so that no crash can fall between them
============== ===================================== ==============================================================
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fencepost.states import StateTable


class TxnState(IntEnum):
    """State of a transactional id. Numbers are those of Kafka's ``TransactionLogValue.TransactionStatus``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class TxnRecordEvent(IntEnum):
    """Event that a replayed record stands for."""

    INITIALIZED = 0
    PARTITIONS_ADDED = 1
    KEPT_PREPARED = 2
    COMMIT_PREPARED = 3
    ABORT_PREPARED = 4
    COMMIT_COMPLETED = 5
    ABORT_COMPLETED = 6
    EMPTY_ABORTED = 7
    EXPIRED = 8


class IllegalTransition(RuntimeError):
    """A record does not follow from the present state: a defect of the coordinator, or a damaged log."""

    def __init__(self, state: TxnState, what: TxnState | TxnRecordEvent, transactional_id: str = "") -> None:
        super().__init__(f"{what.name} in state {state.name} of transactional id {transactional_id!r}")
        self.state = state


STATE_NAMES: Final[dict[TxnState, str]] = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
    TxnState.DEAD: "Dead",
    TxnState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

_S, _E = TxnState, TxnRecordEvent
_IDLE: Final = {
    _E.INITIALIZED: _S.EMPTY,
    _E.PARTITIONS_ADDED: _S.ONGOING,
    _E.EMPTY_ABORTED: _S.COMPLETE_ABORT,
    _E.EXPIRED: _S.DEAD,
}

TABLE: Final = StateTable(
    TxnState,
    TxnRecordEvent,
    {
        _S.EMPTY: _IDLE,
        _S.COMPLETE_COMMIT: _IDLE,
        _S.COMPLETE_ABORT: _IDLE,
        # An open transaction is never expired or initialised directly; it is aborted first.
        _S.ONGOING: {
            _E.PARTITIONS_ADDED: _S.ONGOING,
            _E.KEPT_PREPARED: _S.ONGOING,
            _E.COMMIT_PREPARED: _S.PREPARE_COMMIT,
            _E.ABORT_PREPARED: _S.PREPARE_ABORT,
        },
        # A prepared outcome is final: only the completion of the same outcome may follow.
        _S.PREPARE_COMMIT: {_E.COMMIT_COMPLETED: _S.COMPLETE_COMMIT},
        _S.PREPARE_ABORT: {_E.ABORT_COMPLETED: _S.COMPLETE_ABORT},
    },
    IllegalTransition,
)

OPEN: Final = TxnState.ONGOING
PREPARED: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
NEVER_LOGGED: Final = frozenset({TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE})
IDLE: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
