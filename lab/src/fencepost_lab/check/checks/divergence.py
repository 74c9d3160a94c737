"""The record at an offset of a partition never changes. All readers and the acknowledgement of its producer agree."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import Operation, Position, Send


def divergence(history: History) -> Iterator[Anomaly]:
    """Find offsets at which two operations report different values."""
    known: dict[tuple[str, int], dict[int, tuple[str, Operation]]] = {}
    for send in history.of(Send):
        if send.offset >= 0:
            known.setdefault((send.topic, send.partition), {}).setdefault(send.offset, (send.value, send))
    for reading, batch in history.readings():
        here = known.setdefault((batch.topic, batch.partition), {})
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            expected, first = here.setdefault(offset, (value, reading))
            if expected != value:
                position = Position(batch.topic, batch.partition, offset)
                message = f"{position} is {expected!r} for {first.process} and {value!r} for {reading.process}"
                yield Anomaly("divergence", message, (first, reading))
