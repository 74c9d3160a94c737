"""Records between `send` and their fate: chunks of a topic as columns, and the batches that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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


Extras = tuple[int | None, Sequence[Header] | None, int | None, OnDelivery | None]
"""Of a record that has any: partition, headers, timestamp_ms, on_delivery."""


class Claims(Protocol):
    """The account of failures that the application has not examined."""

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
        "latency_ms",
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
        self.refusal: KafkaError | None = None  # the error of the last attempt
        self.maybe_appended = False  # sent, and the answer did not say that it was not appended
        self.done = False
        self.reported = False  # done, and its callbacks have run
        self.base_offset = -1
        self.append_time_ms = -1
        self.latency_ms = -1  # from the first record of its chunk to its result
        self.timestamp_ms = chunk.timestamp_ms
        self.error: KafkaError | None = None
        self.tally: Tally | None = None  # counts its failure

    def metadata(self, position: int, index: int) -> RecordMetadata:
        """Return the metadata of its record at `position`, which has `index` in the chunk."""
        offset = self.base_offset + position if self.base_offset >= 0 else -1
        timestamp_ms = self.append_time_ms
        if timestamp_ms < 0:
            timestamp_ms, timestamps = self.timestamp_ms, self.chunk.timestamps
            if timestamps is not None:
                timestamp_ms = timestamps.get(index, timestamp_ms)
        # One object for each record: this call takes half the time of the class's own.
        return tuple.__new__(RecordMetadata, (self.topic, self.partition, offset, timestamp_ms, self.latency_ms))


class Choice(NamedTuple):
    """The choice of the application's partitioner for the records of a chunk."""

    partitions: int  # the number of partitions of the topic
    chosen: dict[int, int] | None  # index -> partition
    refused: dict[int, KafkaError]  # index -> the reason why the record cannot be sent


class Sealed(NamedTuple):
    """The records of a chunk that is closed, as columns of the same length."""

    values: list[bytes | None]
    keys: list[bytes | None]  # empty: no record has a key
    holes: Sequence[int]  # rows that are no records
    bytes: int
    uncounted: Iterator[int]  # gives `bytes` once, to whoever adds it to a total first
    table: Any = None
    partitions: dict[int, int] | None = None
    timestamps: dict[int, int] | None = None
    headers: dict[int, Sequence[Header]] | None = None
    callbacks: dict[int, OnDelivery] | None = None


class Chunk:
    """Consecutive records of one topic, as columns.

    Several threads may write into it while it is open, and several may close it. There is no lock, because a signal
    handler that sends or flushes runs inside of the call that it interrupts, and would wait for itself. Instead each
    step is one call of C, and can be repeated:

    * A writer takes an index, writes extras and key, then the value. Then it looks whether the chunk is `closed`.
    * Who closes sets `closed` first, and then copies the values, after them the keys and extras. The first copy that is
      published in `_seal` counts. A row without a value in it is a hole, which no batch has.
    * A writer that finds the chunk closed closes it as well, and then knows whether the copy has its record.
    """

    __slots__ = (
        "_seal",
        "announced",
        "batches",
        "bytes",
        "callbacks",
        "choice",
        "claimed",
        "closed",
        "created_ms",
        "error",
        "extras",
        "headers",
        "holes",
        "indexes",
        "is_table",
        "keys",
        "left",
        "limit",
        "once",
        "partitions",
        "reported",
        "room",
        "sealed",
        "slots",
        "table",
        "taken",
        "tally",
        "timestamp_ms",
        "timestamps",
        "topic",
        "uncounted",
        "unhandled",
        "values",
        "watchers",
    )

    def __init__(
        self, topic: str, created_ms: int, timestamp_ms: int, unhandled: Claims, *, is_table: bool = False
    ) -> None:
        """`is_table`: it has Arrow data in place of records, which is `put` like the value of its only row."""
        self.topic = topic
        self.unhandled = unhandled
        self.created_ms = created_ms
        self.timestamp_ms = timestamp_ms  # of every record that was given none
        self.is_table = is_table
        self.keys: list[bytes | None] = []  # empty: no record has a key
        self.values: list[bytes | None] = []  # while it is open, with HOLE in the places that are free
        self.extras: dict[int, Extras] = {}  # while it is open; then the four below
        self.indexes = count()  # the places to write to
        self.announced = False  # the sender knows of it, so everybody may write into it
        self.closed = False
        self.sealed = False  # closed, and the attributes below are final
        self._seal: dict[int, Sealed] = {}  # setdefault lets one of several who close it decide
        self.once = iter((self,))  # gives the chunk once, to whoever extends a queue by it first
        self.taken = False  # by the sender, and not released
        self.holes: Sequence[int] = ()
        self.partitions: dict[int, int] | None = None  # index -> partition asked for
        self.timestamps: dict[int, int] | None = None
        self.headers: dict[int, Sequence[Header]] | None = None
        self.callbacks: dict[int, OnDelivery] | None = None
        self.choice: Choice | None = None  # of the application's partitioner
        self.limit = 0  # bytes at which it is full
        self.room = 0  # the rest of `limit`
        self.bytes = 0  # of all records, once it is closed
        self.uncounted: Iterator[int] = iter(())  # see Sealed
        self.table: Any = None  # Arrow data instead of the lists, once it is closed
        self.batches: list[Batch] = []
        self.slots: list[tuple[Batch, int]] | None = None  # index -> where it is, when there are several batches
        self.left = -1  # batches that are not reported; -1 before they are made
        self.reported = False  # as a whole, with `error`
        self.error: KafkaError | None = None  # of all records, when it failed before it became batches
        self.tally: Tally | None = None  # counts that failure
        self.claimed: set[int] | None = None  # rows with a delivered result or a waiting caller
        self.watchers: list[Callable[[], object]] = []

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.table) if self.table is not None else len(self.row_numbers)

    @property
    def row_numbers(self) -> Sequence[int]:
        """The rows that are records. Not for Arrow data."""
        if self.closed and not self.holes:
            return range(len(self.values))
        return [row for row, value in enumerate(self.values) if value is not HOLE and row not in self.holes]

    @property
    def rows_left(self) -> int:
        """Number of records without an outcome yet."""
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
        """True if every record has its outcome, and its callback has run."""
        return self.left == 0

    def index_batches(self) -> None:
        """After its batches are made, or a batch was split. Where each record is gets worked out when somebody asks."""
        self.left = sum(not batch.reported for batch in self.batches)
        self.slots = None

    def put(self, index: int, value: Any, key: bytes | None) -> bool:
        """Write a record to the index that was taken for it, growing where that is necessary. From any thread.

        Returns:
            True when the chunk has the record, False when it was closed without it.
        """
        values, keys = self.values, self.keys  # before the look at `closed`: those of a closed chunk do not grow
        if not self.closed:
            if index >= len(values):
                values.extend([HOLE] * max(len(values), index + 1 - len(values)))
            if key is not None:
                if index >= len(keys):
                    keys.extend([None] * (len(values) - len(keys)))
                keys[index] = key
            values[index] = value
            if not self.closed:
                return True
        self.close()
        return self.has(index)

    def close(self) -> None:
        """Take nothing more. From any thread, also again after an interruption: all callers find the same records."""
        if self.sealed:
            return
        self.closed = True  # first: whoever writes a value behind our back looks afterwards
        found = self._seal.get(0) or self._seal.setdefault(0, self._copy())
        self.values, self.keys, self.holes, self.bytes = found[:4]
        self.table = found.table
        self.uncounted = found.uncounted
        self.partitions, self.timestamps, self.headers, self.callbacks = found[6:]
        self.sealed = True

    def _copy(self) -> Sealed:
        """The records that are there now."""
        values = self.values[: next(self.indexes)]
        if self.is_table:
            table: Any = next(iter(values), HOLE)
            return Sealed([], [], (), self.limit, iter((self.limit,)), None if table is HOLE else table)
        keys = self.keys[: len(values)]
        if keys:
            keys.extend([None] * (len(values) - len(keys)))
        holes = [row for row, value in enumerate(values) if value is HOLE] if HOLE in values else []
        size = self.limit - self.room
        sealed = Sealed(values, keys, holes, size, iter((size,)))
        return sealed if not self.extras else sealed._replace(**_columns(self.extras.copy(), len(values), holes))

    @property
    def is_empty(self) -> bool:
        """True if it was closed without any record."""
        return self.table is None and len(self.holes) == len(self.values)

    def has(self, index: int) -> bool:
        """Return true if it was closed with the record of this index."""
        if self.is_table:
            return self.table is not None
        return index < len(self.values) and index not in self.holes

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` whenever some of the records get their fate."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Take back one `watch` of it, if there is any: a chunk may outlive many waits with a time limit."""
        with suppress(ValueError):
            self.watchers.remove(watcher)

    def fate(self, index: int) -> RecordMetadata | KafkaError | None:
        """Return the outcome of a record, or None while it is unknown."""
        if self.error is not None:
            return self.error
        found = self.locate(index)
        if found is None or not found[0].done:
            return None
        batch, position = found
        if batch.error is not None:
            return batch.error
        return batch.metadata(position, index)


def _columns(extras: Mapping[int, Extras], rows: int, holes: Sequence[int]) -> dict[str, Any]:
    """By their names in Sealed: those columns that any record has something in."""
    found: dict[str, Any] = {}
    for row, (partition, headers, timestamp_ms, on_delivery) in extras.items():
        if row >= rows or row in holes:
            continue
        if partition is not None:
            found.setdefault("partitions", {})[row] = partition
        if headers:
            found.setdefault("headers", {})[row] = headers
        if timestamp_ms is not None:
            found.setdefault("timestamps", {})[row] = timestamp_ms
        if on_delivery is not None:
            found.setdefault("callbacks", {})[row] = on_delivery
    return found


def _slots(batches: Sequence[Batch], rows: int) -> list[tuple[Batch, int]]:
    """For each record of a chunk, its batch and its position there."""
    slots: list[Any] = [None] * rows
    for batch in batches:
        for position, row in enumerate(range(batch.count) if batch.rows is None else batch.rows):
            slots[row] = (batch, position)
    return slots
