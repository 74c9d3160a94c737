"""Identity of a prepared transaction (KIP-939), for applications to store with their own data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.arguments import WHOLE_INT16, WHOLE_NUMBER, brief_repr, checked
from fencepost.errors import (
    ConfigurationError,
    PreparedTransactionLostError,
    ProducerFencedError,
    TransactionOutcomeUnknownError,
)
from fencepost.protocol.codes import describe
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.describe_transactions import TransactionState

COMMITTED_STATES: Final = ("PrepareCommit", "CompleteCommit")
"""State names of DescribeTransactions."""

_ABORTED_STATES: Final = ("PrepareAbort", "CompleteAbort")
_IDLE_STATES: Final = ("Empty", "CompleteCommit", "CompleteAbort")
_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The producer id and epoch of a transaction's records. `str()` and `parse` are inverse: "123:4"."""

    producer_id: int
    epoch: int

    def __post_init__(self) -> None:
        WHOLE_NUMBER.of("producer_id", self.producer_id)
        WHOLE_INT16.of("epoch", self.epoch)

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    @checked
    def parse(cls, text: str) -> PreparedTransaction:
        """Parse the text form. Raises ConfigurationError for other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ConfigurationError(f"a prepared transaction is written producer_id:epoch, not {brief_repr(text)}")
        return cls(int(found[1]), int(found[2]))


class PreparedAnswer(NamedTuple):
    """The coordinator's answer about a prepared transaction."""

    ending: Ending
    ended_by: PreparedTransaction | None
    """Producer id and epoch that currently end an open transaction. Keeping a transaction changes them."""
    words: str
    """The question and the answer, for error texts."""


NOT_ASKED: Final = PreparedAnswer(
    Ending.UNKNOWN, None, "the coordinator cannot describe transactions, or does not allow it"
)


def judge(prepared: PreparedTransaction, state: TransactionState | None, *, own_epochs: bool) -> PreparedAnswer:
    """Return the outcome of the transaction from the response of DescribeTransactions.

    `own_epochs` means that each transaction has its own epoch (transaction.version 2, KIP-890).
    """
    if state is None:
        return NOT_ASKED
    if state.error_code != 0:
        words = f"DescribeTransactions was answered {describe(state.error_code)}"
        return PreparedAnswer(Ending.UNKNOWN, None, words)
    words = f"the id is {state.transaction_state} with {state.producer_id}:{state.producer_epoch}"
    ending = Ending(state.ending) if state.ending in list(Ending) else Ending.NOT_REPORTED
    if ending in (Ending.NOT_REPORTED, Ending.UNKNOWN):
        ending = _by_state(prepared, state, own_epochs=own_epochs)
    ended_by = PreparedTransaction(state.producer_id, state.producer_epoch) if ending is Ending.OPEN else None
    return PreparedAnswer(ending, ended_by, words)


def _by_state(prepared: PreparedTransaction, state: TransactionState, *, own_epochs: bool) -> Ending:
    """Derive the outcome from the state of the id. It is reliable only until the epoch changes once more."""
    name, behind = state.transaction_state, state.producer_epoch - prepared.epoch
    if state.producer_id != prepared.producer_id or behind not in (0, 1):
        return Ending.UNKNOWN
    if behind == 0 and name == "Ongoing":
        return Ending.OPEN
    if own_epochs and behind == 0 and name in _IDLE_STATES:
        # The end of a transaction raises the epoch, so this state is that of the previous one.
        return Ending.NEVER_BEGUN
    if own_epochs != (behind == 1):
        return Ending.UNKNOWN
    if name in COMMITTED_STATES:
        return Ending.COMMITTED
    return Ending.ABORTED if name in _ABORTED_STATES else Ending.UNKNOWN


def name_of(state: TransactionState) -> PreparedTransaction | None:
    """Return the name of the id's open transaction, or None.

    A broker that does not report it cannot keep transactions, so the id's producer id and epoch are used.
    """
    if state.error_code != 0 or state.transaction_state != "Ongoing":
        return None
    if state.written_producer_id >= 0:
        return PreparedTransaction(state.written_producer_id, state.written_producer_epoch)
    return PreparedTransaction(state.producer_id, state.producer_epoch)


def settle_commit(transactional_id: str, prepared: PreparedTransaction, answer: PreparedAnswer) -> None:
    """Return if the commit has succeeded, or there was nothing to commit; otherwise raise.

    Raises:
        PreparedTransactionLostError: The transaction was aborted.
        ProducerFencedError: The transaction is open, and another producer owns it.
        TransactionOutcomeUnknownError: The outcome cannot be determined.
    """
    operation = f"transaction {prepared} of {transactional_id!r}"
    if answer.ending in (Ending.COMMITTED, Ending.NEVER_BEGUN):
        return
    if answer.ending is Ending.TIMED_OUT:
        raise PreparedTransactionLostError(
            f"{operation} was to be committed, but the broker has aborted it: it was open for longer than its "
            f"transaction.timeout.ms ({answer.words})"
        )
    if answer.ending is Ending.ABORTED:
        raise PreparedTransactionLostError(
            f"{operation} was to be committed, but another client has aborted it: an administrator, another decider, "
            f"or a producer that took over the id ({answer.words})"
        )
    if answer.ending is Ending.OPEN:
        raise ProducerFencedError(f"{operation} is still open, and another producer owns it ({answer.words})")
    raise unknown_outcome(transactional_id, prepared, answer)


def unknown_outcome(
    transactional_id: str, prepared: PreparedTransaction, found: PreparedAnswer
) -> TransactionOutcomeUnknownError:
    """Return the error for a transaction that may have been committed or aborted."""
    return TransactionOutcomeUnknownError(
        f"it is unknown if transaction {prepared} of {transactional_id!r} was committed or aborted: EndTxn was "
        f"refused or not possible, and {found.words}. Look for its records with a read_committed consumer before "
        "anything is decided about them"
    )
