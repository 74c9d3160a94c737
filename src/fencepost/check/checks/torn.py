"""A transaction is read whole or not at all, also when nobody was told its outcome; its offsets go with its records."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History


def torn(history: History) -> list[Anomaly]:
    """Find transactions of which a reader got only a part."""
    found = []
    for reader, reads in history.readers().items():
        values = {read.value for read in reads}
        for transaction in history.transactions:
            seen = [write.value in values for write in transaction.writes if write.acknowledged]
            if any(seen) and not all(seen):
                name = f"{transaction.producer} transaction {transaction.number} ({transaction.outcome.value})"
                found.append(Anomaly("torn", f"{reader} read {sum(seen)} of {len(seen)} records of {name}"))
    return found
