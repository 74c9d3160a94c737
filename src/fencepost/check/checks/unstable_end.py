"""The last stable offset is never past the first record of a transaction whose commit nobody has asked for yet."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.check.history.model import Anomaly, History, Outcome
from fencepost.check.history.operations import ListOffsets


def unstable_end(history: History) -> Iterator[Anomaly]:
    """Find stable ends past an open transaction, of those that were committed later: no timeout had ended them."""
    ends: dict[tuple[str, int], list[ListOffsets]] = {}
    for listed in history.of(ListOffsets):
        if listed.ok and listed.isolation == "read_committed":
            ends.setdefault((listed.topic, listed.partition), []).append(listed)
    if not ends:
        return
    for transaction in history.transactions.values():
        if transaction.outcome is not Outcome.COMMITTED:
            continue
        asked = min(commit.invoked for commit in transaction.commits)
        for send in transaction.sends:
            if send.offset < 0:
                continue
            for listed in ends.get((send.topic, send.partition), []):
                if listed.completed < asked and listed.offset > send.offset:
                    told = (
                        f"{listed.process} was told that {send.topic}-{send.partition} is stable to {listed.offset}, "
                        f"where {send.value!r} of transaction {transaction.name} was at {send.offset} and open"
                    )
                    yield Anomaly("unstable_end", told, (transaction.begin, send, listed, *transaction.ends))
                    break
