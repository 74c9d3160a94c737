"""A read_committed reader never gets a record of a transaction that was aborted (G1a)."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History, Outcome


def aborted_read(history: History) -> list[Anomaly]:
    """Find reads of aborted values."""
    aborted = {
        write.value: f"{transaction.producer} transaction {transaction.number}"
        for transaction in history.transactions
        if transaction.outcome is Outcome.ABORTED
        for write in transaction.writes
    }
    return [
        Anomaly("aborted_read", f"{read.reader} read {read.value} of {aborted[read.value]}, which was aborted")
        for read in history.reads
        if read.value in aborted
    ]
