"""Records between `send` and their fate: chunks of a topic as columns, and the batches that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError, ProduceFailedError
from fencepost.protocol.records.headers import Header

Headers = Sequence[Header] | Mapping[str, bytes | None]
OnDelivery = Callable[[KafkaError | None, RecordMetadata | None], object]

EVERY_ROW: Final = -1  # as a row: all of the chunk's (Arrow data has a single delivery for all)
HOLE: Final = bytes(bytearray(b"no record"))  # an object of its own in place of a value; only `is` tells it
UNACKNOWLEDGED: Final = "; sent without an acknowledgement: may be in the log"


class Claims(Protocol):
    """Who keeps account of failures that nobody has looked at."""

    before_waiting: Callable[[], None]

    def failed(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int], error: KafkaError) -> None: ...

    def claim(self, chunk: Chunk, row: int) -> None: ...

    def release(self, chunk: Chunk, row: int) -> None: ...


class Tally:
    """Failed records of one topic and cause that nobody has looked at."""

    __slots__ = ("count", "error", "logged", "topic")

    def __init__(self, topic: str, error: KafkaError) -> None:
        self.topic = topic
        self.error = error  # of the first of them
        self.count = 0
        self.logged = 0

    @property
    def cause(self) -> BaseException:
        return self.error.__cause__ or self.error

    @property
    def outcome_unknown(self) -> bool:
        return isinstance(self.error, ProduceFailedError) and self.error.outcome_unknown

    @property
    def reason(self) -> str:
        return f"{self.cause}{UNACKNOWLEDGED if self.outcome_unknown else ''}"


class Batch:
    """Records of one partition that go to the broker as one record batch."""

    __slots__ = (
        "append_time_ms",
        "attempts",
        "base_offset",
        "chunk",
        "count",
        "data",
        "deadline_ms",
        "done",
        "error",
        "maybe_appended",
        "ordinal",
        "partition",
        "refusal",
        "reported",
        "rows",
        "sequence",
        "tally",
        "timestamp_ms",
        "topic",
    )

    def __init__(
        self,
        chunk: Chunk,
        topic: str,
        partition: int,
        data: bytearray,
        count: int,
        rows: Sequence[int] | None,
        deadline_ms: int,
    ) -> None:
        self.chunk = chunk
        self.topic = topic
        self.partition = partition
        self.data = data
        self.count = count
        self.rows = rows  # the indexes in the chunk of this batch's records, None: all of them in order
        self.deadline_ms = deadline_ms
        self.ordinal = -1  # of its first record among all of its partition, in order of sending
        self.sequence = -1
        self.attempts = 0
        self.refusal: KafkaError | None = None  # why the last attempt failed
        self.maybe_appended = False  # sent, and the answer did not say that it was not appended
        self.done = False
        self.reported = False  # done, and its callbacks have run
        self.base_offset = -1
        self.append_time_ms = -1
        self.timestamp_ms = chunk.timestamp_ms
        self.error: KafkaError | None = None
        self.tally: Tally | None = None  # where its failure is counted

    def metadata(self, position: int, index: int) -> RecordMetadata:
        """Where its record at `position` is, which has `index` in the chunk."""
        offset = self.base_offset + position if self.base_offset >= 0 else -1
        timestamp_ms = self.append_time_ms
        if timestamp_ms < 0:
            timestamp_ms, timestamps = self.timestamp_ms, self.chunk.timestamps
            if timestamps is not None:
                timestamp_ms = timestamps.get(index, timestamp_ms)
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)


class Choice(NamedTuple):
    """What the application's partitioner chose for the records of a chunk."""

    partitions: int  # how many the topic had
    chosen: dict[int, int] | None  # index -> partition
    refused: dict[int, KafkaError]  # index -> why the record cannot be sent


class Chunk:
    """Consecutive records of one topic, as columns.

    While it is open, several threads may write into it, without the accumulator's lock: an index is taken, the key is
    put into its place, and then the value, from which on the record is there. A writer who finds the chunk `closed`
    after that asks whether its record was. An index whose writer came too late, or was interrupted, is a hole: a row
    without a record, which no batch has.
    """

    __slots__ = (
        "batches",
        "bytes",
        "callbacks",
        "choice",
        "claimed",
        "closed",
        "counted",
        "created_ms",
        "error",
        "headers",
        "holes",
        "indexes",
        "keys",
        "left",
        "limit",
        "partitions",
        "reported",
        "room",
        "sealed",
        "slots",
        "table",
        "tally",
        "timestamp_ms",
        "timestamps",
        "topic",
        "unhandled",
        "values",
        "watchers",
    )

    def __init__(self, topic: str, created_ms: int, timestamp_ms: int, unhandled: Claims) -> None:
        self.topic = topic
        self.unhandled = unhandled
        self.created_ms = created_ms
        self.timestamp_ms = timestamp_ms  # of every record that was given none
        self.keys: list[bytes | None] = []  # empty: no record has a key
        self.values: list[bytes | None] = []  # while it is open, with HOLE in the places that are free
        self.indexes = count()  # the places to write to
        self.closed = False
        self.sealed = False  # closed, and nothing is left to do for it
        self.counted = False  # among the bytes that wait
        self.holes: Sequence[int] = ()
        self.partitions: dict[int, int] | None = None  # index -> partition asked for
        self.timestamps: dict[int, int] | None = None
        self.headers: dict[int, Sequence[Header]] | None = None
        self.callbacks: dict[int, OnDelivery] | None = None
        self.choice: Choice | None = None  # of the application's partitioner
        self.limit = 0  # bytes at which it is full
        self.room = 0  # how many of them are left
        self.bytes = 0  # of all records, once it is closed
        self.table: Any = None  # Arrow data instead of the lists
        self.batches: list[Batch] = []
        self.slots: list[tuple[Batch, int]] | None = None  # index -> where it is, when there are several batches
        self.left = -1  # batches that are not reported; -1 before they are made
        self.reported = False  # as a whole, with `error`
        self.error: KafkaError | None = None  # of all records, when it failed before it became batches
        self.tally: Tally | None = None  # where that is counted
        self.claimed: set[int] | None = None  # rows whose fate somebody waits for or was told
        self.watchers: list[Callable[[], object]] = []

    @property
    def rows(self) -> int:
        """How many records it has."""
        return len(self.table) if self.table is not None else len(self.row_numbers)

    @property
    def row_numbers(self) -> Sequence[int]:
        """The rows that are records. Not for Arrow data."""
        if self.closed and not self.holes:
            return range(len(self.values))
        return [row for row, value in enumerate(self.values) if value is not HOLE and row not in self.holes]

    @property
    def rows_left(self) -> int:
        """How many of them have no fate yet."""
        return self.rows - sum(batch.count for batch in self.batches if batch.done)

    def locate(self, index: int) -> tuple[Batch, int] | None:
        """The batch of a record and its position there; None while that is not known."""
        batches = self.batches
        if not batches:
            return None
        if len(batches) == 1 and batches[0].rows is None:
            return batches[0], index
        slots = self.slots
        if slots is None:
            slots = self.slots = _slots(batches, len(self.values))
        return slots[index]

    @property
    def done(self) -> bool:
        """Whether every record has its fate, and its callback has run."""
        return self.left == 0

    def index_batches(self) -> None:
        """After its batches are made, or a batch was split. Where each record is gets worked out when somebody asks."""
        self.left = sum(not batch.reported for batch in self.batches)
        self.slots = None

    def put(self, index: int, value: bytes | None, key: bytes | None) -> None:
        """Write a record, growing where that is necessary. Under the accumulator's lock, for the lists may change."""
        if index >= len(self.values):
            self.values.extend([HOLE] * max(len(self.values), index + 1 - len(self.values)))
        if key is not None:
            if index >= len(self.keys):
                self.keys.extend([None] * (len(self.values) - len(self.keys)))
            self.keys[index] = key
        self.values[index] = value

    def close(self) -> None:
        """Nothing more is taken. Under the accumulator's lock, again if Ctrl-C came in between."""
        if self.sealed:
            return
        self.closed = True  # first: whoever writes a value behind our back looks afterwards
        self.bytes = self.limit - self.room
        del self.values[next(self.indexes) :]
        if self.keys:
            del self.keys[len(self.values) :]
            self.keys.extend([None] * (len(self.values) - len(self.keys)))
        self.holes = [row for row, value in enumerate(self.values) if value is HOLE] if HOLE in self.values else ()
        for extras in (self.partitions, self.headers, self.timestamps, self.callbacks) if self.holes else ():
            if extras is not None:
                for row in self.holes:
                    extras.pop(row, None)
        self.sealed = True

    def has(self, index: int) -> bool:
        """Whether it was closed with this record. Under the accumulator's lock."""
        return index < len(self.values) and index not in self.holes

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` whenever some of the records get their fate."""
        self.watchers.append(watcher)

    def fate(self, index: int) -> RecordMetadata | KafkaError | None:
        """What became of a record; None while it is not known."""
        if self.error is not None:
            return self.error
        found = self.locate(index)
        if found is None or not found[0].done:
            return None
        batch, position = found
        if batch.error is not None:
            return batch.error
        return batch.metadata(position, index)


def _slots(batches: Sequence[Batch], rows: int) -> list[tuple[Batch, int]]:
    """For each record of a chunk, its batch and its position there."""
    slots: list[Any] = [None] * rows
    for batch in batches:
        for position, row in enumerate(range(batch.count) if batch.rows is None else batch.rows):
            slots[row] = (batch, position)
    return slots
