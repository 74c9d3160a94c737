"""A group is where the last commit of its position put it, or where one put it whose outcome nobody was told.

Its position never goes back to one that was replaced before it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencepost.check.history.model import Anomaly, History, Outcome
from fencepost.check.history.operations import (
    NEVER,
    CommitOffsets,
    FetchOffsets,
    Operation,
    Position,
    Result,
)

Place = tuple[str, str, int]


@dataclass(slots=True)
class _Write:
    """A position as it was committed: not before `since`, and by `until` if it was at all."""

    offset: int
    since: int
    until: int
    operations: tuple[Operation, ...]


def lost_offset(history: History) -> Iterator[Anomaly]:
    """Find answers that no commit explains."""
    fetches = [fetched for fetched in history.of(FetchOffsets) if fetched.ok]
    if not fetches:
        return
    writes = _writes(history)
    for fetched in sorted(fetches, key=lambda fetched: fetched.completed):
        at = {(topic, partition): offset for topic, partition, offset in fetched.offsets}
        for (group, topic, partition), here in writes.items():
            if group != fetched.group:
                continue
            offset = at.get((topic, partition), -1)
            newest = max((write for write in here if write.until < fetched.invoked), key=_since, default=None)
            if not _explained(offset, newest, here, fetched):
                place = Position(topic, partition, offset)
                allowed = "nothing" if newest is None else f"{newest.offset} or a later one"
                last = newest.operations if newest is not None else ()
                told = f"group {group} is at {place}, which no commit explains: {allowed} was committed before"
                yield Anomaly("lost_offset", told, (*last, fetched))
            for write in here:  # whoever has seen it knows that it was done
                if write.offset == offset and write.since < fetched.completed and _is_only(write, here):
                    write.until = min(write.until, fetched.completed)


def _since(write: _Write) -> int:
    return write.since


def _is_only(write: _Write, here: list[_Write]) -> bool:
    return sum(other.offset == write.offset for other in here) == 1


def _explained(offset: int, newest: _Write | None, here: list[_Write], fetched: FetchOffsets) -> bool:
    if offset == -1:
        return newest is None
    return any(
        write.offset == offset
        and write.since < fetched.completed
        and (newest is None or write is newest or not write.until < newest.since)
        for write in here
    )


def _writes(history: History) -> dict[Place, list[_Write]]:
    found: dict[Place, list[_Write]] = {}

    def note(group: str, position: Position, write: _Write) -> None:
        found.setdefault((group, position.topic, position.partition), []).append(write)

    for commit in history.of(CommitOffsets):
        for position in commit.offsets if commit.result is not Result.FAIL else []:
            until = commit.completed if commit.ok else NEVER
            note(commit.group, position, _Write(position.offset, commit.invoked, until, (commit,)))
    for transaction in history.transactions.values():
        for sent in transaction.offsets:
            for position in sent.offsets:
                if transaction.outcome in (Outcome.ABORTED, Outcome.OPEN) or sent.result is Result.FAIL:
                    found.setdefault((sent.group, position.topic, position.partition), [])
                    continue
                since = min(commit.invoked for commit in transaction.commits)
                until = min((commit.completed for commit in transaction.commits if commit.ok), default=NEVER)
                operations = (transaction.begin, sent, *transaction.ends)
                note(sent.group, position, _Write(position.offset, since, until, operations))
    return found
