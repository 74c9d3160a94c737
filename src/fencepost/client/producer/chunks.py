"""Records between `send` and their result: chunks of a topic as columns, and the batches made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError, ProduceFailedError
from fencepost.protocol.records import engine
from fencepost.protocol.records.headers import Header

if TYPE_CHECKING:
    from fencepost_native import OpenRows

Headers = Sequence[Header] | Mapping[str, bytes | None]
OnDelivery = Callable[[KafkaError | None, RecordMetadata | None], object]

RECORD_OVERHEAD: Final = 21  # maximum bytes of lengths, deltas and attributes of a record, without headers
EVERY_ROW: Final = -1  # as a row number: all rows of the chunk (Arrow data has a single delivery)
HOLE: Final = bytes(bytearray(b"no record"))  # a unique object in place of a value, compared with `is`
UNACKNOWLEDGED: Final = "; sent without an acknowledgement: may be in the log"


Extras = tuple[int | None, Sequence[Header] | None, int | None, OnDelivery | None]
"""Optional values of a record: partition, headers, timestamp_ms, on_delivery."""


class FailureAccount(Protocol):
    """The account of failures that the application has not examined."""

    before_waiting: Callable[[], None]

    def failed(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int], error: KafkaError) -> None: ...

    def claim(self, chunk: Chunk, row: int) -> None: ...

    def release(self, chunk: Chunk, row: int) -> None: ...


class FailureCount:
    """The number of unhandled failed records of one topic and cause."""

    __slots__ = ("count", "error", "logged", "topic")

    def __init__(self, topic: str, error: KafkaError) -> None:
        self.topic = topic
        self.error = error  # the first failure
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
        self.rows = rows  # indexes of this batch's records in the chunk; None: all, in order
        self.deadline_ms = deadline_ms
        self.ordinal = -1  # position of its first record among the partition's records, in order of sending
        self.sequence = -1
        self.attempts = 0
        self.refusal: KafkaError | None = None  # the error of the last attempt
        self.maybe_appended = False  # the batch was sent, and no response has shown that it was not appended
        self.done = False
        self.reported = False  # `done`, and the callbacks have returned
        self.base_offset = -1
        self.append_time_ms = -1
        self.latency_ms = -1  # from the creation of its chunk to the result
        self.timestamp_ms = chunk.timestamp_ms
        self.error: KafkaError | None = None
        self.tally: FailureCount | None = None  # the tally that counts this failure

    def metadata(self, position: int, index: int) -> RecordMetadata:
        """Return the metadata of its record at `position`, which has `index` in the chunk."""
        offset = self.base_offset + position if self.base_offset >= 0 else -1
        timestamp_ms = self.append_time_ms
        if timestamp_ms < 0:
            timestamp_ms, timestamps = self.timestamp_ms, self.chunk.timestamps
            if timestamps is not None:
                timestamp_ms = timestamps.get(index, timestamp_ms)
        # This call takes half the time of the class's own constructor. It runs once for each record.
        return tuple.__new__(RecordMetadata, (self.topic, self.partition, offset, timestamp_ms, self.latency_ms))


class PartitionChoice(NamedTuple):
    """The choice of the application's partitioner for the records of a chunk."""

    partitions: int  # the number of partitions of the topic
    chosen: dict[int, int] | None  # index -> partition
    refused: dict[int, KafkaError]  # index -> the reason why the record cannot be sent


class SealedColumns(NamedTuple):
    """The records of a chunk that is closed, as columns of the same length. Values and keys may be in native rows."""

    values: list[bytes | None]
    keys: list[bytes | None]  # empty: no record has a key
    holes: Sequence[int]  # rows without a record
    rows: int  # holes included
    bytes: int
    uncounted: Iterator[int]  # gives `bytes` once, to the first caller that adds it to a total
    table: Any = None
    partitions: dict[int, int] | None = None
    timestamps: dict[int, int] | None = None
    headers: dict[int, Sequence[Header]] | None = None
    callbacks: dict[int, OnDelivery] | None = None


class Chunk:
    """Consecutive records of one topic, as columns.

    Several threads may write into an open chunk, and several may close it. There is no lock: a signal handler that
    sends or flushes runs inside the call that it interrupts, and would deadlock. Instead each step is one call of a C
    function, and can be repeated:

    * A writer takes an index, writes extras and key, then the value. Then it checks if the chunk is `closed`.
    * A thread that closes sets `closed` first. Then it copies the values, and after them the keys and extras. The first
      copy in `_seal` counts. A row without a value in it is a hole, which becomes part of no batch.
    * A writer that finds the chunk closed closes it as well. Then it knows if the copy has its record.

    With the native module, keys and values are in `native` instead of lists. A whole write is then one call of a C
    function, as is the closing, so there are no holes.
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
        "count",
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
        "native",
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
        self, topic: str, created_ms: int, timestamp_ms: int, unhandled: FailureAccount, *, is_table: bool = False
    ) -> None:
        """Create an empty chunk.

        Args:
            topic: The topic of its records.
            created_ms: Creation time by the monotonic clock, in ms.
            timestamp_ms: Timestamp of records that have none of their own, in ms since 1970.
            unhandled: Counts failures that the application has not handled.
            is_table: The chunk has Arrow data instead of records. `put` writes it as the value of its only row.
        """
        self.topic = topic
        self.unhandled = unhandled
        self.created_ms = created_ms
        self.timestamp_ms = timestamp_ms  # of every record without one of its own
        self.is_table = is_table
        self.native: OpenRows | None = None
        self.count = 0  # rows, holes included, once it is closed
        self.keys: list[bytes | None] = []  # empty: no record has a key
        self.values: list[bytes | None] = []  # while it is open, with HOLE in free positions
        self.extras: dict[int, Extras] = {}  # while it is open; then the four attributes below
        self.indexes = count()  # the next index to write to
        self.announced = False  # the sender knows the chunk, so all threads may write into it
        self.closed = False
        self.sealed = False  # closed, and the attributes below are final
        self._seal: dict[int, SealedColumns] = {}  # several threads may close it: setdefault decides
        self.once = iter((self,))  # gives the chunk once, to the first caller that extends a queue by it
        self.taken = False  # the sender has taken it, and not released it
        self.holes: Sequence[int] = ()
        self.partitions: dict[int, int] | None = None  # index -> requested partition
        self.timestamps: dict[int, int] | None = None
        self.headers: dict[int, Sequence[Header]] | None = None
        self.callbacks: dict[int, OnDelivery] | None = None
        self.choice: PartitionChoice | None = None  # result of the application's partitioner
        self.limit = 0  # size in bytes at which it is full
        self.room = 0  # remaining bytes of `limit`
        self.bytes = 0  # bytes of all records, once it is closed
        self.uncounted: Iterator[int] = iter(())  # see SealedColumns
        self.table: Any = None  # Arrow data instead of the columns, once it is closed
        self.batches: list[Batch] = []
        self.slots: list[tuple[Batch, int]] | None = None  # index -> (batch, position), if there are several batches
        self.left = -1  # number of batches that are not reported; -1 before batches exist
        self.reported = False  # true if it was reported as a whole, with `error`
        self.error: KafkaError | None = None  # the error of all records, if it failed before batches existed
        self.tally: FailureCount | None = None  # the tally that counts this failure
        self.claimed: set[int] | None = None  # rows with a delivered result or a waiting caller
        self.watchers: list[Callable[[], object]] = []

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.table) if self.table is not None else len(self.row_numbers)

    @property
    def row_numbers(self) -> Sequence[int]:
        """Indexes of the rows that are records. Not for Arrow data."""
        if self.sealed:
            return range(self.count) if not self.holes else sorted(set(range(self.count)) - set(self.holes))
        if self.native is not None:
            return range(len(self.native))
        return [row for row, value in enumerate(self.values) if value is not HOLE]

    @property
    def rows_left(self) -> int:
        """Number of records without an outcome yet."""
        return self.rows - sum(batch.count for batch in self.batches if batch.done)

    def locate(self, index: int) -> tuple[Batch, int] | None:
        """Return the batch of a record and its position there, or None before batches exist."""
        batches = self.batches
        if not batches:
            return None
        if len(batches) == 1 and batches[0].rows is None:
            return batches[0], index
        slots = self.slots
        if slots is None:
            slots = self.slots = _slots(batches, self.count)
        return slots[index]

    @property
    def done(self) -> bool:
        """True if every record has its outcome, and its callback has run."""
        return self.left == 0

    def index_batches(self) -> None:
        """Update the counts after batches were made or split. `locate` builds the index of positions on demand."""
        self.left = sum(not batch.reported for batch in self.batches)
        self.slots = None

    def open(self, limit: int, delivery: type[Any], *, native: bool, capacity: int) -> None:
        """Make room for records. Called once, before another thread knows the chunk.

        Args:
            limit: Size in bytes at which it is full.
            delivery: The class of the results of `OpenRows.take`.
            native: Keep keys and values in the native module.
            capacity: Initial length of the columns otherwise.
        """
        self.limit = self.room = limit
        if native:
            self.native = engine.native.OpenRows(self, delivery, limit, RECORD_OVERHEAD)
        else:
            self.values = [HOLE] * capacity

    @property
    def is_full(self) -> bool:
        """True if it has no room for another record."""
        return (self.room if self.native is None else self.native.left) <= 0

    def add(self, value: bytes | None, key: bytes | None, size: int, extras: Extras | None) -> int | None:
        """Write a record of `size` bytes. Any thread may call it.

        Returns:
            Its index, or None if the chunk was closed without it.
        """
        if self.native is not None:
            added = self.native.add(value, key, size, self.extras, extras)
            if added is None:
                self.close()
            return added
        index = next(self.indexes)
        if extras is not None:
            self.extras[index] = extras
        self.room -= size
        return index if self.put(index, value, key) else None

    def put(self, index: int, value: Any, key: bytes | None) -> bool:
        """Write a record to its index, extending the columns if necessary. Any thread may call it.

        Returns:
            True if the chunk has the record, False if it was closed without it.
        """
        values, keys = self.values, self.keys  # read before `closed`: the lists of a closed chunk do not grow
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
        """Close the chunk for writers. Any thread may call it, also repeatedly: all calls leave the same records."""
        if self.sealed:
            return
        self.closed = True  # first: a concurrent writer checks it after its write
        found = self._seal.get(0) or self._seal.setdefault(0, self._copy())
        self.values, self.keys, self.holes, self.count, self.bytes = found[:5]
        self.table = found.table
        self.uncounted = found.uncounted
        self.partitions, self.timestamps, self.headers, self.callbacks = found[7:]
        self.sealed = True

    def _copy(self) -> SealedColumns:
        """Return a copy of the current records."""
        if self.native is not None:
            return self._sealed([], [], (), self.native.close(), self.native.left)
        values = self.values[: next(self.indexes)]
        if self.is_table:
            table: Any = next(iter(values), HOLE)
            return SealedColumns([], [], (), 0, self.limit, iter((self.limit,)), None if table is HOLE else table)
        keys = self.keys[: len(values)]
        if keys:
            keys.extend([None] * (len(values) - len(keys)))
        holes = [row for row, value in enumerate(values) if value is HOLE] if HOLE in values else []
        return self._sealed(values, keys, holes, len(values), self.room)

    def _sealed(
        self, values: list[bytes | None], keys: list[bytes | None], holes: Sequence[int], count: int, room: int
    ) -> SealedColumns:
        size = self.limit - room
        sealed = SealedColumns(values, keys, holes, count, size, iter((size,)))
        return sealed if not self.extras else sealed._replace(**_columns(self.extras.copy(), count, holes))

    def release(self) -> None:
        """Free the memory of the records, because batches have them or they failed. The results stay."""
        self.values, self.keys = [], []
        if self.native is not None:
            self.native.release()

    @property
    def is_empty(self) -> bool:
        """True if it was closed without any record."""
        return self.table is None and len(self.holes) == self.count

    def has(self, index: int) -> bool:
        """Return true if it was closed with the record of this index."""
        if self.is_table:
            return self.table is not None
        return index < self.count and index not in self.holes

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` whenever some of the records get their results."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """Undo one call of `watch`, if there was any. A chunk may outlive many waits with a time limit."""
        with suppress(ValueError):
            self.watchers.remove(watcher)

    def outcome(self, index: int) -> RecordMetadata | KafkaError | None:
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

    def text(self, kind: str, index: int) -> str:
        """Return the text of a record's delivery for people: topic and outcome, without the record."""
        outcome = self.outcome(index)
        if outcome is None:
            state = "waiting"
        elif isinstance(outcome, KafkaError):
            state = f"failed: {type(outcome).__name__}"
        else:
            state = f"partition {outcome.partition}, offset {outcome.offset}"
        return f"<{kind} to {self.topic}, {state}>"


def _columns(extras: Mapping[int, Extras], rows: int, holes: Sequence[int]) -> dict[str, Any]:
    """Return the columns that have any entries, by their names in SealedColumns."""
    columns: dict[str, Any] = {}
    for row, (partition, headers, timestamp_ms, on_delivery) in extras.items():
        if row >= rows or row in holes:
            continue
        if partition is not None:
            columns.setdefault("partitions", {})[row] = partition
        if headers:
            columns.setdefault("headers", {})[row] = headers
        if timestamp_ms is not None:
            columns.setdefault("timestamps", {})[row] = timestamp_ms
        if on_delivery is not None:
            columns.setdefault("callbacks", {})[row] = on_delivery
    return columns


def _slots(batches: Sequence[Batch], rows: int) -> list[tuple[Batch, int]]:
    """Return the batch and the position there of each record of a chunk."""
    slots: list[Any] = [None] * rows
    for batch in batches:
        for position, row in enumerate(range(batch.count) if batch.rows is None else batch.rows):
            slots[row] = (batch, position)
    return slots
