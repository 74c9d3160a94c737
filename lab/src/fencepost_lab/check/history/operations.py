"""The operations of a history: a client's requests and their answers. docs/check.md defines every field.

`events_of` returns the events that carry a field. An operation without an answer stays UNKNOWN, because it may have
taken effect.
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
    "Begin",
    "Commit",
    "Decide",
    "Init",
    "ListOffsets",
    "OffsetsCommit",
    "OffsetsFetch",
    "Operation",
    "OperationResult",
    "Poll",
    "Position",
    "Prepare",
    "Read",
    "RecordRun",
    "Seek",
    "Send",
    "SendOffsets",
    "events_of",
]

NEVER = sys.maxsize
ANSWER = {"carried_by": ("end",)}
EITHER = {"carried_by": ("beginning", "end")}


class OperationResult(Enum):
    """Result of an operation. OK: done. FAIL: certainly not done. UNKNOWN: no answer arrived."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Position(NamedTuple):
    """A topic, a partition and an offset; -1 if the offset is unknown."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class RecordRun(NamedTuple):
    """Records of a partition in the order of arrival."""

    topic: str
    partition: int
    offsets: list[int]
    values: list[str]


@dataclass(slots=True, kw_only=True)
class Operation:
    """Base of all operations.

    `invoked` and `completed` are positions in the order of events: line numbers of a file, from 1.

    `fenced`: the answer said that the producer's epoch is old, or that its transaction timed out.
    """

    F: ClassVar[str] = ""

    process: str
    invoked: int = 0
    completed: int = NEVER
    invoked_ms: float = 0.0
    completed_ms: float = 0.0
    result: OperationResult = OperationResult.UNKNOWN
    error: str = field(default="", metadata=ANSWER)
    fenced: bool = field(default=False, metadata=ANSWER)

    @property
    def ok(self) -> bool:
        return self.result is OperationResult.OK


@dataclass(slots=True, kw_only=True)
class Init(Operation):
    """InitProducerId for a transactional id.

    It fences the previous producer.

    `timeout_ms`: the transaction timeout; 0 if unknown. `repeated`: the request may have been sent twice.
    """

    F: ClassVar[str] = "init"

    transactional_id: str
    timeout_ms: int = 0
    repeated: bool = field(default=False, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class Begin(Operation):
    """The beginning of a transaction, whose name is unique in the history."""

    F: ClassVar[str] = "begin"

    transaction: str
    transactional_id: str


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """A record sent inside or outside a transaction. `source`: the input record that `group` made it from."""

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
    """A group's positions, sent in a transaction. `generation`: the member's generation in a classic group."""

    F: ClassVar[str] = "send_offsets"

    transaction: str
    group: str
    offsets: list[Position]
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class Prepare(Operation):
    """The first phase of a two-phase commit."""

    F: ClassVar[str] = "prepare"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Decide(Operation):
    """A decision about a prepared transaction, stored outside Kafka: "commit" or "abort"."""

    F: ClassVar[str] = "decide"

    transaction: str
    decision: str


@dataclass(slots=True, kw_only=True)
class Commit(Operation):
    """The commit of a transaction, by any client."""

    F: ClassVar[str] = "commit"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Abort(Operation):
    """The abort of a transaction, by any client."""

    F: ClassVar[str] = "abort"

    transaction: str


@dataclass(slots=True, kw_only=True)
class Assign(Operation):
    """An assignment that replaces the previous one: partitions and start offsets."""

    F: ClassVar[str] = "assign"

    positions: list[Position]
    group: str = ""
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class Seek(Operation):
    """A change of position in assigned partitions."""

    F: ClassVar[str] = "seek"

    positions: list[Position]


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    """The next records of the assigned partitions."""

    F: ClassVar[str] = "poll"

    isolation: str
    records: list[RecordRun] = field(default_factory=list, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class Read(Operation):
    """All records of a partition from `start` to the high watermark at the time of the request.

    OK only if the last stable offset reached it; FAIL if it did not within the reader's timeout.
    """

    F: ClassVar[str] = "read"

    topic: str
    partition: int
    isolation: str
    start: int = 0
    records: list[RecordRun] = field(default_factory=list, metadata=ANSWER)


@dataclass(slots=True, kw_only=True)
class OffsetsCommit(Operation):
    """A group's positions, committed outside transactions."""

    F: ClassVar[str] = "commit_offsets"

    group: str
    offsets: list[Position]
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class OffsetsFetch(Operation):
    """A group's stable positions. A partition that is not listed has none."""

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
        *(Assign, Seek, Poll, Read, OffsetsCommit, OffsetsFetch, ListOffsets),
    )
}


def events_of(declared: Field[Any]) -> tuple[str, ...]:
    """Return the events that carry a field: "beginning", "end", or both."""
    when: tuple[str, ...] = declared.metadata.get("carried_by", ("beginning",))
    return when
