"""Every record of a committed transaction is read by every reader that read to the end."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History, Outcome


def lost_write(history: History) -> list[Anomaly]:
    """Find committed values that a reader did not get."""
    found = []
    for reader, reads in history.readers().items():
        values = {read.value for read in reads}
        for transaction in history.transactions:
            if transaction.outcome is not Outcome.COMMITTED:
                continue
            found += [
                Anomaly(
                    "lost_write", f"{reader} never read {write.value} of {transaction.producer} {transaction.number}"
                )
                for write in transaction.writes
                if write.value not in values
            ]
    return found
