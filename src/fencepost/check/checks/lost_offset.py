"""A group's position at the end is that of its last committed transaction, or of one after it whose outcome nobody was
told.

Each group belongs to one producer, which commits growing positions through its transactions.
"""

from __future__ import annotations

from fencepost.check.history import Anomaly, History, Outcome


def lost_offset(history: History) -> list[Anomaly]:
    """Find groups whose position is neither the last committed one nor a possible later one."""
    possible: dict[str, set[int]] = {}
    for transaction in history.transactions:
        for group, offset in transaction.offsets.items():
            match transaction.outcome:
                case Outcome.COMMITTED:
                    possible[group] = {offset}
                case Outcome.UNKNOWN:
                    possible.setdefault(group, {-1}).add(offset)
                case Outcome.ABORTED:
                    possible.setdefault(group, {-1})
    return [
        Anomaly(
            "lost_offset", f"group {group} is at {history.committed_offsets.get(group, -1)}, not at {sorted(allowed)}"
        )
        for group, allowed in possible.items()
        if history.committed_offsets.get(group, -1) not in allowed
    ]
