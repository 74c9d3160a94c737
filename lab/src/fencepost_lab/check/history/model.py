"""A history: the operations in the order of their invocation, with their transactions and records.

Every value sent is unique in its history, so that a value identifies its write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeVar

from fencepost_lab.check.history.operations import (
    Abort,
    Begin,
    Commit,
    Decide,
    Init,
    Operation,
    OperationResult,
    Poll,
    Position,
    Prepare,
    Read,
    RecordRun,
    Send,
    SendOffsets,
)

__all__ = ["Anomaly", "FirstRead", "History", "HistoryTransaction", "InvalidHistory", "Outcome"]

COMMITTED = "read_committed"

Kind = TypeVar("Kind", bound=Operation)


class InvalidHistory(ValueError):
    """The operations do not form a valid history. `line`: the position of the first wrong event, from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


class Outcome(Enum):
    """Outcome of a transaction as answered to clients.

    UNKNOWN: a commit was requested, and no answer tells its outcome.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    OPEN = "open"


class FirstRead(NamedTuple):
    """The first read of a record."""

    operation: Poll | Read
    position: Position


@dataclass(slots=True)
class HistoryTransaction:
    """All operations of a transaction. `session`: the InitProducerId that precedes its begin."""

    begin: Begin
    session: Init | None = None
    sends: list[Send] = field(default_factory=list)
    offsets: list[SendOffsets] = field(default_factory=list)
    prepares: list[Prepare] = field(default_factory=list)
    decisions: list[Decide] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    aborts: list[Abort] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.begin.transaction

    @property
    def outcome(self) -> Outcome:
        """Return the outcome. An answered abort takes precedence over an unanswered commit."""
        if any(commit.ok for commit in self.commits):
            return Outcome.COMMITTED
        if any(abort.ok for abort in self.aborts):
            return Outcome.ABORTED
        if any(commit.result is OperationResult.UNKNOWN for commit in self.commits):
            return Outcome.UNKNOWN
        return Outcome.ABORTED if self.commits else Outcome.OPEN

    @property
    def ends(self) -> list[Operation]:
        return sorted((*self.commits, *self.aborts), key=lambda end: end.invoked)


class History:
    """A complete run.

    Raises InvalidHistory for a value sent twice, and for an operation in a transaction that never began.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = list(operations)
        self.transactions: dict[str, HistoryTransaction] = {}
        self.sends: dict[str, Send] = {}
        sessions: dict[tuple[str, str], Init] = {}
        for operation in self.operations:
            match operation:
                case Send():
                    self._take_send(operation)
                case Init():
                    sessions[operation.process, operation.transactional_id] = operation
                case Begin():
                    self._take_begin(operation, sessions)
                case SendOffsets() | Prepare() | Decide() | Commit() | Abort():
                    self._take_part(operation)
                case _:
                    continue

    def _take_send(self, send: Send) -> None:
        before = self.sends.setdefault(send.value, send)
        if before is not send:
            raise InvalidHistory(send.invoked, f"value {send.value!r} was sent before, in line {before.invoked}")
        if send.transaction:
            self._named(send, send.transaction).sends.append(send)

    def _take_begin(self, begin: Begin, sessions: dict[tuple[str, str], Init]) -> None:
        if begin.transaction in self.transactions:
            first = self.transactions[begin.transaction].begin.invoked
            raise InvalidHistory(begin.invoked, f"transaction {begin.transaction!r} began before, in line {first}")
        session = sessions.get((begin.process, begin.transactional_id))
        self.transactions[begin.transaction] = HistoryTransaction(begin, session)

    def _take_part(self, part: SendOffsets | Prepare | Decide | Commit | Abort) -> None:
        transaction = self._named(part, part.transaction)
        match part:
            case SendOffsets():
                transaction.offsets.append(part)
            case Prepare():
                transaction.prepares.append(part)
            case Decide():
                transaction.decisions.append(part)
            case Commit():
                transaction.commits.append(part)
            case Abort():
                transaction.aborts.append(part)

    def _named(self, operation: Operation, name: str) -> HistoryTransaction:
        if name not in self.transactions:
            raise InvalidHistory(operation.invoked, f"{operation.F} in transaction {name!r}, which has not begun")
        return self.transactions[name]

    def of(self, kind: type[Kind]) -> Iterator[Kind]:
        """Yield all operations of a kind in the order of invocation."""
        return (operation for operation in self.operations if isinstance(operation, kind))

    def readings(self, *isolations: str) -> Iterator[tuple[Poll | Read, RecordRun]]:
        """Yield every batch that was read at one of these isolation levels, or at any if none is given."""
        for operation in self.operations:
            if isinstance(operation, Poll | Read) and (not isolations or operation.isolation in isolations):
                for batch in operation.records:
                    yield operation, batch

    @cached_property
    def complete_reads(self) -> dict[tuple[str, int], list[Read]]:
        """The read_committed reads that reached the end, by partition."""
        found: dict[tuple[str, int], list[Read]] = {}
        for read in self.of(Read):
            if read.ok and read.isolation == COMMITTED:
                found.setdefault((read.topic, read.partition), []).append(read)
        return found

    @cached_property
    def committed(self) -> dict[str, FirstRead]:
        """First sighting of each value by a read_committed reader."""
        return self._first_reads(COMMITTED)

    @cached_property
    def seen(self) -> dict[str, FirstRead]:
        """First sighting of each value by any reader."""
        return self._first_reads()

    def _first_reads(self, *isolations: str) -> dict[str, FirstRead]:
        found: dict[str, FirstRead] = {}
        for operation, (topic, partition, offsets, values) in self.readings(*isolations):
            for offset, value in zip(offsets, values, strict=True):
                known = found.get(value)
                if known is None or operation.completed < known.operation.completed:
                    found[value] = FirstRead(operation, Position(topic, partition, offset))
        return found

    def transaction_of(self, value: str) -> HistoryTransaction | None:
        """Return the transaction that a value was sent in."""
        send = self.sends.get(value)
        return self.transactions[send.transaction] if send is not None and send.transaction else None

    def missing_in(self, send: Send) -> Read | None:
        """Return a complete read that lacks the record, although it would contain a committed one.

        A read that began after the acknowledgement and reached the high watermark shows the outcome of the record.
        """
        known = send.completed if send.ok else NEVER_ANSWERED
        if send.transaction:
            ends = [commit.completed for commit in self.transactions[send.transaction].commits if commit.ok]
            known = min([known, *ends])
        reads = self.complete_reads.get((send.topic, send.partition), [])
        for read in reads:
            covered = read.start == 0 or read.start <= send.offset
            if read.invoked > known and covered and send.value not in self._values_of(read):
                return read
        return None

    def _values_of(self, read: Read) -> frozenset[str]:
        values = self._values.get(id(read))
        if values is None:
            values = self._values[id(read)] = frozenset(value for batch in read.records for value in batch.values)
        return values

    @cached_property
    def _values(self) -> dict[int, frozenset[str]]:
        return {}


NEVER_ANSWERED = 2**63


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation: the check's name, a description, and the operations that show it."""

    check: str
    detail: str
    operations: tuple[Operation, ...] = ()
