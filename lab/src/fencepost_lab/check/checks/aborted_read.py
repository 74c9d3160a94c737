"""A read_committed reader never gets a record of a transaction that was aborted (G1a), nor one whose send failed."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, Outcome
from fencepost_lab.check.history.operations import OperationResult


def aborted_read(history: History) -> Iterator[Anomaly]:
    """Find reads of aborted values, and of values whose send failed."""
    for value, (reading, position) in history.committed.items():
        send = history.sends.get(value)
        if send is None:
            continue
        transaction = history.transaction_of(value)
        where = f"{reading.process} read {value!r} at {position}"
        if transaction is not None and transaction.outcome is Outcome.ABORTED:
            message = f"{where} of transaction {transaction.name}, which was aborted"
            yield Anomaly("aborted_read", message, (transaction.begin, send, *transaction.ends, reading))
        elif send.result is OperationResult.FAIL:
            yield Anomaly("aborted_read", f"{where}, whose send failed: {send.error}", (send, reading))
