"""A group's position is the one that it committed last, or one of a commit with an unknown outcome.

The position never returns to one that was replaced before the request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from fencepost_lab.check.history.model import Anomaly, History, Outcome
from fencepost_lab.check.history.operations import (
    NEVER,
    OffsetsCommit,
    OffsetsFetch,
    Operation,
    OperationResult,
    Position,
)


class _Write(NamedTuple):
    """A committed position. It took effect after `since`, and before `until` if it took effect at all."""

    offset: int
    since: int
    until: int
    operations: tuple[Operation, ...]


class _GroupPosition:
    """The writes to a group's position in one partition."""

    def __init__(self) -> None:
        self.writes: list[_Write] = []
        self._by_offset: dict[int, list[_Write]] = {}
        self._done = _Newest()
        self._seen = _Newest()
        self._seen_by: dict[int, int] = {}  # since -> time of the first read that saw it

    def close(self) -> None:
        """Index the writes after the last one was added."""
        for write in sorted(self.writes, key=lambda write: write.until):
            self._by_offset.setdefault(write.offset, []).append(write)
            self._done.add(write.until, write)

    def newest(self, moment: int) -> _Write | None:
        """Return the latest write that certainly took effect before `moment`, because it was answered or seen."""
        known = [write for write in (self._done.before(moment), self._seen.before(moment)) if write is not None]
        return max(known, key=lambda write: write.since, default=None)

    def explains(self, offset: int, newest: _Write | None, fetched: OffsetsFetch) -> bool:
        """Return true if a write of `offset` may have been the latest one when `fetched` was served."""
        if offset == -1:
            return newest is None
        return any(
            write.since < fetched.completed
            and (newest is None or write is newest or self._until(write) >= newest.since)
            for write in self._by_offset.get(offset, [])
        )

    def saw(self, offset: int, fetched: OffsetsFetch) -> None:
        """Record that a write took effect. This is certain only if the offset was committed exactly once."""
        writes = self._by_offset.get(offset, [])
        if len(writes) == 1 and writes[0].since < fetched.completed:
            self._seen.add(fetched.completed, writes[0])
            self._seen_by.setdefault(writes[0].since, fetched.completed)

    def _until(self, write: _Write) -> int:
        return min(write.until, self._seen_by.get(write.since, NEVER))


class _Newest:
    """The latest write by time. Times are added in increasing order."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, _Write]] = []

    def add(self, moment: int, write: _Write) -> None:
        if not self._steps or write.since > self._steps[-1][1].since:
            self._steps.append((moment, write))

    def before(self, moment: int) -> _Write | None:
        index = bisect_left(self._steps, moment, key=lambda step: step[0])
        return self._steps[index - 1][1] if index else None


def lost_offset(history: History) -> Iterator[Anomaly]:
    """Find fetched positions that no commit explains."""
    fetches = [fetched for fetched in history.of(OffsetsFetch) if fetched.ok]
    groups = _writes(history) if fetches else {}
    for fetched in sorted(fetches, key=lambda fetch: fetch.completed):
        at = {(topic, partition): offset for topic, partition, offset in fetched.offsets}
        for (topic, partition), position in groups.get(fetched.group, {}).items():
            offset = at.get((topic, partition), -1)
            newest = position.newest(fetched.invoked)
            if not position.explains(offset, newest, fetched):
                where = Position(topic, partition, offset)
                allowed = "nothing" if newest is None else f"{newest.offset} or a later one"
                last = newest.operations if newest is not None else ()
                message = (
                    f"group {fetched.group} is at {where}, which no commit explains: {allowed} was committed before"
                )
                yield Anomaly("lost_offset", message, (*last, fetched))
            position.saw(offset, fetched)


def _writes(history: History) -> dict[str, dict[tuple[str, int], _GroupPosition]]:
    positions_by_group: dict[str, dict[tuple[str, int], _GroupPosition]] = {}

    def group_position(group: str, position: Position) -> _GroupPosition:
        return positions_by_group.setdefault(group, {}).setdefault(
            (position.topic, position.partition), _GroupPosition()
        )

    for commit in history.of(OffsetsCommit):
        for position in commit.offsets if commit.result is not OperationResult.FAIL else []:
            until = commit.completed if commit.ok else NEVER
            write = _Write(position.offset, commit.invoked, until, (commit,))
            group_position(commit.group, position).writes.append(write)
    for transaction in history.transactions.values():
        for sent in transaction.offsets:
            for position in sent.offsets:
                here = group_position(sent.group, position)
                if transaction.outcome in (Outcome.ABORTED, Outcome.OPEN) or sent.result is OperationResult.FAIL:
                    continue
                since = min(commit.invoked for commit in transaction.commits)
                until = min((commit.completed for commit in transaction.commits if commit.ok), default=NEVER)
                operations = (transaction.begin, sent, *transaction.ends)
                here.writes.append(_Write(position.offset, since, until, operations))
    for positions in positions_by_group.values():
        for here in positions.values():
            here.close()
    return positions_by_group
