"""A read_committed reader never returns a record of a transaction before its commit was requested."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, Outcome
from fencepost_lab.check.history.operations import NEVER


def precommitted_read(history: History) -> Iterator[Anomaly]:
    """Find reads before the commit request, or of transactions that never requested one."""
    for value, (reading, position) in history.committed.items():
        transaction = history.transaction_of(value)
        if transaction is None or transaction.outcome is Outcome.ABORTED:
            continue
        first_commit = min((commit.invoked for commit in transaction.commits), default=NEVER)
        if reading.completed < first_commit:
            when = "before its commit was asked for" if transaction.commits else "whose commit nobody asked for"
            message = f"{reading.process} read {value!r} at {position} of transaction {transaction.name}, {when}"
            sent = history.sends[value]
            yield Anomaly("precommitted_read", message, (transaction.begin, sent, reading, *transaction.ends))
