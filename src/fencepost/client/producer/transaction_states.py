"""The producer's transaction states. `step` is the only transition function. FATAL_ERROR is terminal.

UNINITIALIZED    no producer id yet
INITIALIZING     InitProducerId is in flight
READY            no transaction is open
IN_TRANSACTION   records and offsets are accepted
PREPARING        flushing, then lifting the timeout; no record is accepted
PREPARED         flushed; only complete, commit or abort (KIP-939); also after a restart that kept a transaction
COMMITTING       flushing, then EndTxn(commit) until a response; no record is accepted
ABORTING         waiting for in-flight requests, then EndTxn(abort) until a response
ABORTABLE_ERROR  the transaction failed; abort (or initialise again), then continue
FATAL_ERROR      this producer has failed permanently
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fencepost.errors import UsageError
from fencepost.states import StateTable


class ProducerTxnState(Enum):
    """See the module's docstring."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARING = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


class TxnEvent(Enum):
    """Events of a transactional producer."""

    INIT = auto()  # init_transactions() was called
    INITIALIZED = auto()  # a producer id was assigned, and no transaction is open
    KEPT_PREPARED = auto()  # a producer id was assigned, and a prepared transaction was kept
    INIT_FAILED = auto()  # no response in time; init_transactions() may be called again
    BEGIN = auto()
    PREPARE = auto()  # prepare_transaction() was called
    FLUSHED = auto()  # everything is acknowledged, and the transaction has no timeout any more
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()  # EndTxn succeeded, or there was nothing to end
    ABORTABLE = auto()  # an abortable error
    FATAL = auto()  # a fatal error


_S = ProducerTxnState
_E = TxnEvent


WHY: Final[dict[ProducerTxnState, str]] = {
    _S.UNINITIALIZED: "init_transactions() has not been called",
    _S.INITIALIZING: "init_transactions() has not finished",
    _S.READY: "no transaction is open",
    _S.IN_TRANSACTION: "a transaction is open",
    _S.PREPARING: "a prepare is not finished: prepare again, commit or abort",
    _S.PREPARED: "the transaction is prepared: only complete, commit or abort are possible",
    _S.COMMITTING: "a commit is not finished: commit again, or abort",
    _S.ABORTING: "an abort is not finished: abort again",
    _S.ABORTABLE_ERROR: "the transaction failed: abort it",
    _S.FATAL_ERROR: "the producer failed for good: close it",
}


def _illegal(state: ProducerTxnState, event: TxnEvent) -> UsageError:
    return UsageError(f"{event.name.lower()} is not possible now: {WHY[state]}")


TABLE: Final = StateTable(
    ProducerTxnState,
    TxnEvent,
    {
        _S.UNINITIALIZED: {
            _E.INIT: _S.INITIALIZING,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.INITIALIZING: {
            _E.INITIALIZED: _S.READY,
            _E.KEPT_PREPARED: _S.PREPARED,
            _E.INIT_FAILED: _S.UNINITIALIZED,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.READY: {
            _E.INIT: _S.INITIALIZING,
            _E.BEGIN: _S.IN_TRANSACTION,
            _E.ABORT: _S.READY,  # abort_transaction() is always safe to call
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.IN_TRANSACTION: {
            _E.PREPARE: _S.PREPARING,
            _E.COMMIT: _S.COMMITTING,
            _E.ABORT: _S.ABORTING,
            _E.ABORTABLE: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.PREPARING: {
            _E.PREPARE: _S.PREPARING,  # repeated after a cancellation or a timeout without a response
            _E.FLUSHED: _S.PREPARED,
            _E.COMMIT: _S.COMMITTING,
            _E.ABORT: _S.ABORTING,
            _E.ABORTABLE: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.PREPARED: {
            _E.COMMIT: _S.COMMITTING,
            _E.ABORT: _S.ABORTING,
            _E.ABORTABLE: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.COMMITTING: {
            _E.COMMIT: _S.COMMITTING,  # repeated after a timeout without a response
            _E.ABORT: _S.ABORTING,
            _E.ENDED: _S.READY,
            _E.ABORTABLE: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.ABORTING: {
            _E.ABORT: _S.ABORTING,  # repeated after a timeout without a response
            _E.ENDED: _S.READY,
            _E.ABORTABLE: _S.ABORTING,  # the abort is in progress already
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.ABORTABLE_ERROR: {
            _E.INIT: _S.INITIALIZING,
            _E.ABORT: _S.ABORTING,
            _E.ABORTABLE: _S.ABORTABLE_ERROR,
            _E.FATAL: _S.FATAL_ERROR,
        },
        _S.FATAL_ERROR: {
            _E.ABORTABLE: _S.FATAL_ERROR,  # late failures of in-flight batches
            _E.FATAL: _S.FATAL_ERROR,
        },
    },
    _illegal,
)
step: Final = TABLE.step
