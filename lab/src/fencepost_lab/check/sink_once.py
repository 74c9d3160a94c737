"""A sink's output equals its input: no record is missing or duplicated, none is in doubt, and no decision is revoked.

The output has all rows of a batch that the engine has not committed, or none. If the query reported the loss of a
decided transaction, a part of its batch may be missing.
"""

from __future__ import annotations

from collections import Counter

from fencepost_lab.check.history import Anomaly
from fencepost_lab.check.sink_history import BatchRecord, SinkHistory

__all__ = ["sink_once"]


def sink_once(history: SinkHistory) -> list[Anomaly]:
    """Return all anomalies. Raises ValueError for a history without batches, in which no anomaly could be found."""
    if not history.batches:
        raise ValueError("the history has no batches: nothing can be checked")
    output = Counter(read.value for read in history.reads)
    expected = {value for batch in history.batches for value in batch.values}
    found = [
        Anomaly("sink_duplicate", f"{value} is in the output {times} times")
        for value, times in sorted(output.items())
        if times > 1
    ]
    found += [Anomaly("sink_foreign", f"{value} was never given") for value in sorted(output.keys() - expected)]
    for batch in history.batches:
        found += _of_batch(batch, output, batch.query in history.lost)
    found += [Anomaly("sink_in_doubt", transactional_id) for transactional_id in history.in_doubt]
    return found + _decisions(history)


def _of_batch(batch: BatchRecord, output: Counter[str], may_miss: bool) -> list[Anomaly]:
    missing = [value for value in batch.values if not output[value]]
    if not missing:
        return []
    message = f"batch {batch.number} of {batch.query}: {len(missing)} of {len(batch.values)} are missing: {missing[:5]}"
    if batch.committed:
        return [Anomaly("sink_missing", message)]
    if len(missing) < len(batch.values) and not may_miss:
        return [Anomaly("sink_torn", message)]
    return []


def _decisions(history: SinkHistory) -> list[Anomaly]:
    decisions = []
    winners: dict[tuple[str, int], tuple[tuple[str, int, int], ...]] = {}
    last: dict[tuple[str, str], int] = {}
    for decision in history.decisions:
        if not decision.winners:
            continue  # complete, and recorded as such
        known = winners.setdefault((decision.query, decision.number), decision.winners)
        if set(known) != set(decision.winners):
            decisions.append(
                Anomaly(
                    "sink_decision", f"batch {decision.number} of {decision.query}: {known}, then {decision.winners}"
                )
            )
        before = last.get((decision.reader, decision.query), -1)
        if decision.number < before:
            decisions.append(
                Anomaly(
                    "sink_decision",
                    f"{decision.reader} read batch {decision.number} of {decision.query} after {before}",
                )
            )
        last[decision.reader, decision.query] = decision.number
    return decisions
