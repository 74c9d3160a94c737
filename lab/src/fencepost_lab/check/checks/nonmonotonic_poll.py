"""Polls move forward: without a seek or an assignment, each record has a higher offset than the previous one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import Operation, Read
from fencepost_lab.check.history.polls import streams


def nonmonotonic_poll(history: History) -> Iterator[Anomaly]:
    """Find records that came after a higher offset of their partition, within a poll or from poll to poll."""
    for stream in streams(history):
        name = f"{stream.topic}-{stream.partition}"
        if stream.offsets and stream.positioned_by is not None and stream.offsets[0] < stream.start:
            message = f"{stream.process} was to read {name} from {stream.start} and got {stream.offsets[0]}"
            yield Anomaly("nonmonotonic_poll", message, (stream.positioned_by, stream.polls[0]))
        for at, (before, offset) in enumerate(pairwise(stream.offsets)):
            if offset <= before:
                yield _back(stream.process, name, before, offset, (stream.polls[at], stream.polls[at + 1]))
    for read in history.of(Read):
        for batch in read.records:
            for before, offset in pairwise(batch.offsets):
                if offset <= before:
                    yield _back(read.process, f"{batch.topic}-{batch.partition}", before, offset, (read,))


def _back(process: str, name: str, before: int, offset: int, operations: tuple[Operation, ...]) -> Anomaly:
    distinct = tuple(dict.fromkeys(id(operation) for operation in operations))
    message = f"{process} got offset {offset} of {name} after {before}"
    return Anomaly("nonmonotonic_poll", message, operations[: len(distinct)])
