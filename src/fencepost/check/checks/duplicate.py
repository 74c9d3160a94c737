"""No value is in the log twice: a reader gets each value at one offset of one partition only."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History


def duplicate(history: History) -> list[Anomaly]:
    """Find values that one reader got more than once."""
    found = []
    for reader, reads in history.readers().items():
        first: dict[str, str] = {}
        for read in reads:
            place = f"{read.topic}-{read.partition}@{read.offset}"
            if read.value in first:
                found.append(Anomaly("duplicate", f"{reader} read {read.value} at {first[read.value]} and at {place}"))
            first.setdefault(read.value, place)
    return found
