"""A prepared transaction ends as it was decided, and not in two ways."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, HistoryTransaction
from fencepost_lab.check.history.operations import Decide, Operation, OperationResult


def broken_decision(history: History) -> Iterator[Anomaly]:
    """Find transactions that ended otherwise than decided, were lost after they were prepared, or ended twice."""
    for transaction in history.transactions.values():
        committed = next((commit for commit in transaction.commits if commit.ok), None)
        aborted = next((abort for abort in transaction.aborts if abort.ok), None)
        shown: tuple[Operation, ...] = (
            transaction.begin,
            *transaction.prepares,
            *transaction.decisions,
            *transaction.ends,
        )
        if committed is not None and aborted is not None:
            message = (
                f"transaction {transaction.name} was committed by {committed.process}, aborted by {aborted.process}"
            )
            yield Anomaly("broken_decision", message, shown)
        for decision in transaction.decisions:
            if decision.ok and any(prepare.ok for prepare in transaction.prepares):
                what = _otherwise(transaction, decision, history)
                if what:
                    message = (
                        f"transaction {transaction.name} was prepared, {decision.decision} was decided, and {what}"
                    )
                    yield Anomaly("broken_decision", message, shown)


def _otherwise(transaction: HistoryTransaction, decision: Decide, history: History) -> str:
    if decision.decision == "commit":
        refused = next((commit for commit in transaction.commits if commit.result is OperationResult.FAIL), None)
        if refused is not None:
            return f"its commit was refused: {refused.error}"
        return "it was aborted" if any(abort.ok for abort in transaction.aborts) else ""
    if any(commit.ok for commit in transaction.commits):
        return "it was committed"
    seen = next((send for send in transaction.sends if send.value in history.committed), None)
    return f"{seen.value!r} was read" if seen is not None else ""
