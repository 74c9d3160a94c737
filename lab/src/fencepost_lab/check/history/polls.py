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
    positioned_by: Operation | None = None
    offsets: list[int] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)


def streams(history: History) -> Iterator[PollStream]:
    """Yield each stream at its end. A poll with an unknown result ends all streams of its process."""
    running: dict[str, dict[tuple[str, int], PollStream]] = {}
    moves = [operation for operation in history.operations if isinstance(operation, Assign | Seek | Poll)]
    for operation in sorted(moves, key=_when):
        open_streams = running.setdefault(operation.process, {})
        match operation:
            case Assign():
                yield from open_streams.values()
                open_streams.clear()
                _start_streams(operation, open_streams)
            case Seek():
                yield from (
                    open_streams.pop(position[:2]) for position in operation.positions if position[:2] in open_streams
                )
                _start_streams(operation, open_streams)
            case Poll() if operation.result is OperationResult.UNKNOWN:
                yield from open_streams.values()
                open_streams.clear()
            case Poll():
                _extend(operation, open_streams)
    for open_streams in running.values():
        yield from open_streams.values()


def _when(operation: Operation) -> int:
    """Return the sort key. A rebalance that ends during a poll precedes the poll's records."""
    return operation.invoked if operation.completed == NEVER else operation.completed


def _start_streams(operation: Assign | Seek, open_streams: dict[tuple[str, int], PollStream]) -> None:
    for topic, partition, offset in operation.positions:
        open_streams[topic, partition] = PollStream(operation.process, topic, partition, "", offset, operation)


def _extend(poll: Poll, open_streams: dict[tuple[str, int], PollStream]) -> None:
    for batch in poll.records:
        partition = batch.topic, batch.partition
        stream = open_streams.get(partition)
        if stream is None:
            stream = open_streams[partition] = PollStream(poll.process, *partition, poll.isolation)
        stream.isolation = poll.isolation
        stream.offsets += batch.offsets
        stream.polls += [poll] * len(batch.offsets)
