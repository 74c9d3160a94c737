"""A member of an older generation of a classic group commits no positions, alone or in a transaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, Outcome
from fencepost_lab.check.history.operations import Assign, OffsetsCommit, Operation


def fenced_commit(history: History) -> Iterator[Anomaly]:
    """Find successful commits that were requested after the member had joined a newer generation."""
    newest: dict[str, list[tuple[int, int, Assign]]] = {}
    joined = [assign for assign in history.of(Assign) if assign.group and assign.generation >= 0 and assign.ok]
    for assign in sorted(joined, key=lambda assign: assign.completed):
        known = newest.setdefault(assign.group, [])
        if not known or assign.generation > known[-1][1]:
            known.append((assign.completed, assign.generation, assign))
    for commit in history.of(OffsetsCommit):
        if commit.ok:
            yield from _judge(newest, commit.group, commit.generation, commit, (commit,))
    for transaction in history.transactions.values():
        for sent in transaction.offsets:
            if sent.ok and transaction.outcome is Outcome.COMMITTED:
                yield from _judge(newest, sent.group, sent.generation, sent, (sent, *transaction.ends))


def _judge(
    newest: dict[str, list[tuple[int, int, Assign]]],
    group: str,
    generation: int,
    operation: Operation,
    operations: tuple[Operation, ...],
) -> Iterator[Anomaly]:
    known = newest.get(group, [])
    before = bisect_left(known, operation.invoked, key=lambda row: row[0])
    if generation < 0 or not before or known[before - 1][1] <= generation:
        return
    _, current, assign = known[before - 1]
    message = (
        f"{operation.process} committed positions of group {group} in generation {generation}; it was {current} already"
    )
    yield Anomaly("fenced_commit", message, (assign, *operations))
