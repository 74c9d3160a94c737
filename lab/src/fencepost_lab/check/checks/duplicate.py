"""No value is in the log twice: all reads of a value return the same partition and offset."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import Operation, Position


def duplicate(history: History) -> Iterator[Anomaly]:
    """Find values that were read at two positions."""
    reported: set[tuple[str, Position]] = set()
    for reading, batch in history.readings():
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            first, position = history.seen[value]
            here = Position(batch.topic, batch.partition, offset)
            if here != position and (value, here) not in reported:
                reported.add((value, here))
                sent: tuple[Operation, ...] = (history.sends[value],) if value in history.sends else ()
                words = f"{value!r} is at {position} ({first.process}) and at {here} ({reading.process})"
                yield Anomaly("duplicate", words, (*sent, first, reading))
