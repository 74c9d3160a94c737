"""All acknowledged records are read by complete readers, if they are outside a transaction or if it was committed."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, Outcome
from fencepost_lab.check.history.operations import OperationResult


def lost_write(history: History) -> Iterator[Anomaly]:
    """Find acknowledged writes that a complete reader did not return."""
    for send in history.sends.values():
        if send.result is OperationResult.FAIL or not (send.ok or send.transaction):
            continue
        transaction = history.transactions[send.transaction] if send.transaction else None
        if transaction is not None and transaction.outcome is not Outcome.COMMITTED:
            continue
        read = history.missing_in(send)
        if read is not None:
            of, ends = ("", []) if transaction is None else (f" of transaction {transaction.name}", transaction.ends)
            message = f"{send.value!r}{of}, sent to {send.topic}-{send.partition}, was not got by {read.process}"
            yield Anomaly("lost_write", message, (send, *ends, read))
