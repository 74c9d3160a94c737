"""The polls of each process as streams: the records of a partition between two changes of the position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fencepost_lab.check.history.model import History
from fencepost_lab.check.history.operations import NEVER, Assign, Operation, OperationResult, Poll, Seek

__all__ = ["PollStream", "streams"]


@dataclass(slots=True)
class PollStream:
    """Polls of one partition. `start` is the assigned position, or -1 if unknown. `polls[i]` returned `offsets[i]`."""

    process: str
    topic: str
    partition: int
    isolation: str
    start: int = -1
    placed: Operation | None = None
    offsets: list[int] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)


def streams(history: History) -> Iterator[PollStream]:
    """Yield each stream at its end. A poll with an unknown result ends all streams of its process."""
    running: dict[str, dict[tuple[str, int], PollStream]] = {}
    moves = [operation for operation in history.operations if isinstance(operation, Assign | Seek | Poll)]
    for operation in sorted(moves, key=_when):
        mine = running.setdefault(operation.process, {})
        match operation:
            case Assign():
                yield from mine.values()
                mine.clear()
                _place(operation, mine)
            case Seek():
                yield from (mine.pop(place[:2]) for place in operation.positions if place[:2] in mine)
                _place(operation, mine)
            case Poll() if operation.result is OperationResult.UNKNOWN:
                yield from mine.values()
                mine.clear()
            case Poll():
                _extend(operation, mine)
    for mine in running.values():
        yield from mine.values()


def _when(operation: Operation) -> int:
    """Return the sort key. A rebalance that ends during a poll precedes the poll's records."""
    return operation.invoked if operation.completed == NEVER else operation.completed


def _place(operation: Assign | Seek, mine: dict[tuple[str, int], PollStream]) -> None:
    for topic, partition, offset in operation.positions:
        mine[topic, partition] = PollStream(operation.process, topic, partition, "", offset, operation)


def _extend(poll: Poll, mine: dict[tuple[str, int], PollStream]) -> None:
    for batch in poll.records:
        place = batch.topic, batch.partition
        stream = mine.get(place)
        if stream is None:
            stream = mine[place] = PollStream(poll.process, *place, poll.isolation)
        stream.isolation = poll.isolation
        stream.offsets += batch.offsets
        stream.polls += [poll] * len(batch.offsets)
