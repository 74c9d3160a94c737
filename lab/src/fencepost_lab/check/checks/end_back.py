"""The end of a partition, stable or not, never goes back, and records that were read lie before it."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import ListOffsets, Operation, Poll, Read

Answer = tuple[int, Operation]


def end_back(history: History) -> Iterator[Anomaly]:
    """Find ends that are lower than an end reported before the request."""
    events: list[tuple[int, int, ListOffsets | Poll | Read]] = []
    for operation in history.operations:
        if isinstance(operation, ListOffsets) and operation.ok:
            events.append((operation.invoked, 0, operation))
            events.append((operation.completed, 1, operation))
        elif isinstance(operation, Poll | Read) and operation.records:
            events.append((operation.completed, 1, operation))
    known: dict[tuple[str, int, str], Answer] = {}
    answers: dict[int, Answer] = {}
    for _, is_answer, operation in sorted(events, key=lambda event: event[:2]):
        if isinstance(operation, ListOffsets):
            key = operation.topic, operation.partition, operation.isolation
            if not is_answer:
                answers[operation.invoked] = known.get(key, (-1, operation))
                continue
            least, before = answers.pop(operation.invoked)
            if operation.offset < least:
                words = f"the end of {key[0]}-{key[1]} ({key[2]}) is {operation.offset}; it was at least {least}"
                yield Anomaly("end_back", words, (before, operation))
            _raise(known, key, operation.offset, operation)
        else:
            for batch in operation.records:
                key = batch.topic, batch.partition, operation.isolation
                _raise(known, key, max(batch.offsets, default=-1) + 1, operation)


def _raise(known: dict[tuple[str, int, str], Answer], key: tuple[str, int, str], end: int, by: Operation) -> None:
    if end > known.get(key, (-1, by))[0]:
        known[key] = end, by
