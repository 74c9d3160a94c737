"""An offset of a partition has one value for ever: all readers that get it, get the same."""

from __future__ import annotations

from fencepost.check.history import Anomaly, History


def divergence(history: History) -> list[Anomaly]:
    """Find offsets at which two reads differ."""
    known: dict[tuple[str, int, int], str] = {}
    found = []
    for read in history.reads:
        place = (read.topic, read.partition, read.offset)
        value = known.setdefault(place, read.value)
        if value != read.value:
            found.append(Anomaly("divergence", f"{place} was {value} and then {read.value} for {read.reader}"))
    return found
