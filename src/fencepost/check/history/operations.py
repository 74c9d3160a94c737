"""The operations of a history: what a client asked for, and what it was told. docs/check.md tells every field.

`told_at` says which fields are known when the operation begins, and which when it ends. An operation that was
never answered stays UNKNOWN: it may have taken effect.
"""

from __future__ import annotations

import sys
from dataclasses import Field, dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

__all__ = [
    "KINDS",
    "NEVER",
    "Abort",
    "Assign",
    "Batch",
    "Begin",
    "Commit",
    "CommitOffsets",
    "Decide",
    "FetchOffsets",
    "Init",
    "ListOffsets",
    "Operation",
    "Poll",
    "Position",
    "Prepare",
    "Read",
    "Result",
    "Seek",
    "Send",
    "SendOffsets",
    "told_at",
]

NEVER = sys.maxsize
ANSWER = {"told": ("end",)}
EITHER = {"told": ("beginning", "end")}


class Result(Enum):
    """OK: done. FAIL: certainly not done. UNKNOWN: nobody was told."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Position(NamedTuple):
    """A place in a partition; offset -1 where it is not known."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class Batch(NamedTuple):
    """Records of a partition, in the order in which they came."""

    topic: str
    partition: int
    offsets: list[int]
    values: list[str]


@dataclass(slots=True, kw_only=True)
class Operation:
    """What all have. `invoked` and `completed` are places in the order of events: the lines of a file, from 1.

    `fenced`: the producer was told that its epoch is an old one, or its transaction's time over.
    """

    F: ClassVar[str] = ""

    process: str
    invoked: int = 0
    completed: int = NEVER
    invoked_ms: float = 0.0
    completed_ms: float = 0.0
    result: Result = Result.UNKNOWN
    error: str = field(default="", metadata=ANSWER)
    fenced: bool = field(default=False, metadata=ANSWER)

    @property
    def ok(self) -> bool:
        return self.result is Result.OK


@dataclass(slots=True, kw_only=True)
class Init(Operation):
    """InitProducerId for a transactional id: whoever had it before is fenced.

    `timeout_ms`: of its transactions; 0 where it is not known. `repeated`: the request may have been sent twice.
    """

    F: ClassVar[str] = "init"

    transactional_id: str
    timeout_ms: int = 0
    repeated: bool = field(default=False, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class Begin(Operation):
    """A transaction begins; its name is unique in the history."""

    F: ClassVar[str] = "begin"

    transaction: str
    transactional_id: str


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """A record, in a transaction or by itself. `source`: the input record that it was made of, by `group`."""

    F: ClassVar[str] = "send"

    topic: str
    value: str
    partition: int = field(default=-1, metadata=EITHER)
    offset: int = field(default=-1, metadata=ANSWER)
    transaction: str = ""
    group: str = ""
    source: Position | None = None


@dataclass(slots=True, kw_only=True)
class SendOffsets(Operation):
    """A group's positions, as a part of a transaction. `generation`: of a classic group."""

    F: ClassVar[str] = "send_offsets"

    transaction: str
    group: str
    offsets: list[Position]
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class Prepare(Operation):
    """The first of two phases."""

    F: ClassVar[str] = "prepare"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Decide(Operation):
    """What is to become of a prepared transaction, written down outside of Kafka: "commit" or "abort"."""

    F: ClassVar[str] = "decide"

    transaction: str
    decision: str


@dataclass(slots=True, kw_only=True)
class Commit(Operation):
    """The end of a transaction, by whomever."""

    F: ClassVar[str] = "commit"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Abort(Operation):
    """The other end."""

    F: ClassVar[str] = "abort"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Assign(Operation):
    """The process reads these partitions, from there on, and no others."""

    F: ClassVar[str] = "assign"

    positions: list[Position]
    group: str = ""
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class Seek(Operation):
    """The process goes on reading these partitions from there."""

    F: ClassVar[str] = "seek"

    positions: list[Position]


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """The next records of what is assigned."""

    F: ClassVar[str] = "poll"

    isolation: str
    records: list[Batch] = field(default_factory=list, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class Read(Operation):
    """All records of a partition from `start` to the high watermark at the time of asking.

    OK only when the last stable offset got there; FAIL when it did not within the reader's patience.
    """

    F: ClassVar[str] = "read"

    topic: str
    partition: int
    isolation: str
    start: int = 0
    records: list[Batch] = field(default_factory=list, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class CommitOffsets(Operation):
    """A group's positions, committed outside of transactions."""

    F: ClassVar[str] = "commit_offsets"

    group: str
    offsets: list[Position]
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class FetchOffsets(Operation):
    """A group's stable positions; a partition that is not named has none."""

    F: ClassVar[str] = "fetch_offsets"

    group: str
    offsets: list[Position] = field(default_factory=list, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class ListOffsets(Operation):
    """The end of a partition: its last stable offset (read_committed) or its high watermark (read_uncommitted)."""

    F: ClassVar[str] = "list_offsets"

    topic: str
    partition: int
    isolation: str
    offset: int = field(default=-1, metadata=ANSWER)


KINDS: dict[str, type[Operation]] = {
    kind.F: kind
    for kind in (
        *(Init, Begin, Send, SendOffsets, Prepare, Decide, Commit, Abort),
        *(Assign, Seek, Poll, Read, CommitOffsets, FetchOffsets, ListOffsets),
    )
}


def told_at(declared: Field[Any]) -> tuple[str, ...]:
    """Whether a field is known at the "beginning" of an operation, at its "end", or at either."""
    when: tuple[str, ...] = declared.metadata.get("told", ("beginning",))
    return when
