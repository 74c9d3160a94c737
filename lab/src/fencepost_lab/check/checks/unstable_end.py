"""The last stable offset never passes the first record of a transaction before its commit was requested."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from fencepost_lab.check.history.model import COMMITTED, Anomaly, History, Outcome
from fencepost_lab.check.history.operations import ListOffsets


def unstable_end(history: History) -> Iterator[Anomaly]:
    """Find last stable offsets past an open transaction that was committed later, and so cannot have timed out."""
    furthest: dict[tuple[str, int], list[ListOffsets]] = {}
    stable = [listing for listing in history.of(ListOffsets) if listing.ok and listing.isolation == COMMITTED]
    for listed in sorted(stable, key=_completed):
        known = furthest.setdefault((listed.topic, listed.partition), [])
        if not known or listed.offset > known[-1].offset:
            known.append(listed)
    if not stable:
        return
    for transaction in history.transactions.values():
        if transaction.outcome is not Outcome.COMMITTED:
            continue
        first_commit = min(commit.invoked for commit in transaction.commits)
        for send in transaction.sends:
            known = furthest.get((send.topic, send.partition), [])
            before = bisect_left(known, first_commit, key=_completed)
            if before and 0 <= send.offset < known[before - 1].offset:
                listed = known[before - 1]
                message = (
                    f"{listed.process} was told that {send.topic}-{send.partition} is stable to {listed.offset}, "
                    f"where {send.value!r} of transaction {transaction.name} was at {send.offset} and open"
                )
                yield Anomaly("unstable_end", message, (transaction.begin, send, listed, *transaction.ends))


def _completed(listed: ListOffsets) -> int:
    return listed.completed
