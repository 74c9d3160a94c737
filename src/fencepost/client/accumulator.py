"""Where records wait between `send` and the wire.

`Accumulator.append` is the per-record path and may run in any thread: it appends to the open chunk of the topic, keeps
no object per record, and tells the sender only when a chunk is opened or full. Partitions are chosen later, for a whole
chunk at once. A chunk becomes one batch per partition; a record's fate is found again through (chunk, index in chunk).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from fencepost.client.types import RecordMetadata
from fencepost.errors import ConfigurationError, KafkaError, RecordRejectedError

Header = tuple[str, bytes | None]
OnDelivery = Callable[[KafkaError | None, RecordMetadata | None], object]

RECORD_OVERHEAD = 21  # the most that lengths, deltas and attributes of a record take, without headers


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
        "partition",
        "rows",
        "sequence",
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
        self.sequence = -1
        self.attempts = 0
        self.maybe_appended = False  # sent, and the answer did not say that it was not appended
        self.done = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.timestamp_ms = chunk.timestamp_ms
        self.error: KafkaError | None = None


class Chunk:
    """Consecutive records of one topic, as columns."""

    __slots__ = (
        "batches",
        "bytes",
        "callbacks",
        "created_ms",
        "error",
        "headers",
        "keys",
        "left",
        "limit",
        "partitions",
        "slots",
        "table",
        "timestamp_ms",
        "timestamps",
        "topic",
        "values",
        "watchers",
    )

    def __init__(self, topic: str, created_ms: int, timestamp_ms: int) -> None:
        self.topic = topic
        self.created_ms = created_ms
        self.timestamp_ms = timestamp_ms  # of every record that was given none
        self.keys: list[bytes | None] | None = None  # None: no record has a key
        self.values: list[bytes | None] = []
        self.partitions: dict[int, int] | None = None  # index -> partition asked for
        self.timestamps: dict[int, int] | None = None
        self.headers: dict[int, Sequence[Header]] | None = None
        self.callbacks: dict[int, OnDelivery] | None = None
        self.bytes = 0
        self.limit = 0  # bytes at which it is closed
        self.table: Any = None  # Arrow data instead of the lists
        self.batches: list[Batch] = []
        self.slots: list[tuple[Batch, int]] | None = None  # index -> where it is, when there are several batches
        self.left = -1  # batches without an answer; -1 before they are made
        self.error: KafkaError | None = None  # of all records, when it failed before it became batches
        self.watchers: list[Callable[[], object]] = []

    def locate(self, index: int) -> tuple[Batch, int] | None:
        """The batch of a record and its position there; None while that is not known."""
        batches = self.batches
        if not batches:
            return None
        if len(batches) == 1 and batches[0].rows is None:
            return batches[0], index
        slots = self.slots
        if slots is None:
            slots = self.slots = _slots(batches)
        return slots[index]

    @property
    def done(self) -> bool:
        """Whether every record has its fate."""
        return self.left == 0

    def index_batches(self) -> None:
        """After its batches are made, or one was split. Where each record is gets worked out when somebody asks."""
        self.left = sum(not one.done for one in self.batches)
        self.slots = None

    def truncate(self, rows: int) -> None:
        """Forget the record at index `rows`, which was not taken as a whole."""
        del self.values[rows:]
        if self.keys is not None:
            del self.keys[rows:]
        for extras in (self.partitions, self.headers, self.timestamps, self.callbacks):
            if extras is not None:
                extras.pop(rows, None)

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
        offset = batch.base_offset + position if batch.base_offset >= 0 else -1
        timestamp_ms = batch.append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self.timestamp_ms
            if self.timestamps is not None:
                timestamp_ms = self.timestamps.get(index, timestamp_ms)
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp_ms)


def _slots(batches: Sequence[Batch]) -> list[tuple[Batch, int]]:
    """For each record of a chunk, its batch and its position there."""
    slots: list[Any] = [None] * sum(one.count for one in batches)
    for batch in batches:
        rows = range(batch.count) if batch.rows is None else batch.rows
        for position, row in enumerate(rows):
            slots[row] = (batch, position)
    return slots


class Accumulator:
    """The open chunks by topic, and the closed ones in order. Thread-safe through the lock handed in."""

    def __init__(
        self,
        *,
        lock: AbstractContextManager[Any],
        wake: Callable[[], object],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        chunk_bytes: int,
        max_record_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self.closed: deque[Chunk] = deque()
        self._limits: dict[str, int] = {}
        self.open: dict[str, Chunk] = {}
        self.waiting_bytes = 0  # of closed chunks that do not have their fate yet
        self.slow = False  # `send` has to look first: no room, or `refusing`
        self.refusing = False  # records may not be taken without asking the producer (transactions, closed, failed)
        self._buffer_bytes = buffer_bytes
        self._lock = lock
        self._wake = wake
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._chunk_bytes = chunk_bytes
        self._max_record_bytes = max_record_bytes

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header] | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> tuple[Chunk, int]:
        """Take one record; (chunk, index). Raises RecordRejectedError, ConfigurationError."""
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value) if value.__class__ is bytes else len(value := _as_bytes(value, "value"))
        if key is not None:
            size += len(key) if key.__class__ is bytes else len(key := _as_bytes(key, "key"))
        if headers:
            headers, more = _checked_headers(headers)
            size += more
        if size > self._max_record_bytes:
            raise RecordRejectedError(f"a record of {size} bytes; max_request_size is {self._max_record_bytes}")
        with self._lock:
            chunk = self.open.get(topic)
            opened = chunk is None
            if chunk is None:
                chunk = self.open[topic] = Chunk(topic, self._now_ms(), self._wall_ms())
                chunk.limit = self._limits.get(topic, self._chunk_bytes)
            values = chunk.values
            index = len(values)
            try:
                values.append(value)
                keys = chunk.keys
                if keys is not None:
                    keys.append(key)
                elif key is not None:
                    chunk.keys = [*([None] * index), key]
                if partition is not None or headers or timestamp_ms is not None or on_delivery is not None:
                    _put_extras(chunk, index, partition, headers, timestamp_ms, on_delivery)
            except BaseException:
                # Ctrl-C between two columns: without this, every later key would stand beside the wrong value.
                chunk.truncate(index)
                raise
            chunk.bytes += size
            full = chunk.bytes >= chunk.limit
            if full:
                self._close(topic)
        if opened or full:
            self._wake()
        return chunk, index

    def append_table(self, topic: str, table: Any, size: int) -> Chunk:
        """Take Arrow data behind everything sent to the topic so far."""
        chunk = Chunk(topic, self._now_ms(), self._wall_ms())
        chunk.table = table
        chunk.bytes = size
        with self._lock:
            if topic in self.open:
                self._close(topic)
            self._queue(chunk)
        self._wake()
        return chunk

    def _close(self, topic: str) -> None:
        self._queue(self.open.pop(topic))

    def _queue(self, chunk: Chunk) -> None:
        self.waiting_bytes += chunk.bytes
        self.slow = self.refusing or self.full
        self.closed.append(chunk)

    @property
    def full(self) -> bool:
        """Whether new records have to wait for room."""
        return self.waiting_bytes >= self._buffer_bytes

    def spread_over(self, topic: str, partitions: int) -> None:
        """The topic's last chunk went to so many partitions: give each batch its size, within the largest allowed."""
        self._limits[topic] = max(self._chunk_bytes, min(self._chunk_bytes * partitions, self._max_record_bytes))

    def refuse(self) -> None:
        """From now on the producer has to be asked before each record."""
        self.slow = self.refusing = True

    def close_due(self, opened_before_ms: float) -> None:
        """Close the chunks that were opened at or before this time."""
        with self._lock:
            for topic in [name for name, one in self.open.items() if one.created_ms <= opened_before_ms]:
                self._close(topic)

    def close_all(self) -> None:
        """Close every open chunk (flush)."""
        with self._lock:
            for topic in list(self.open):
                self._close(topic)

    def next_due_ms(self, linger_ms: float) -> float | None:
        """When the oldest open chunk has lingered long enough."""
        with self._lock:
            if not self.open:
                return None
            return min(one.created_ms for one in self.open.values()) + linger_ms

    def released(self, size: int) -> None:
        """A closed chunk of `size` bytes has its fate."""
        with self._lock:
            self.waiting_bytes -= size
            self.slow = self.refusing or self.full


def _put_extras(
    chunk: Chunk,
    index: int,
    partition: int | None,
    headers: Sequence[Header] | None,
    timestamp_ms: int | None,
    on_delivery: OnDelivery | None,
) -> None:
    """The columns that most records do without."""
    if partition is not None:
        if chunk.partitions is None:
            chunk.partitions = {}
        chunk.partitions[index] = partition
    if headers:
        if chunk.headers is None:
            chunk.headers = {}
        chunk.headers[index] = headers
    if timestamp_ms is not None:
        if chunk.timestamps is None:
            chunk.timestamps = {}
        chunk.timestamps[index] = timestamp_ms
    if on_delivery is not None:
        if chunk.callbacks is None:
            chunk.callbacks = {}
        chunk.callbacks[index] = on_delivery


def _as_bytes(value: Any, what: str) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bytes):
        return value
    raise ConfigurationError(f"a record's {what} is bytes or None, not {type(value).__name__}")


def _checked_headers(headers: Sequence[Header]) -> tuple[list[Header], int]:
    checked: list[Header] = []
    size = 0
    for name, value in headers:
        if not isinstance(name, str):
            raise ConfigurationError(f"a header's name is text, not {type(name).__name__}")
        data = None if value is None else _as_bytes(value, "header value")
        checked.append((name, data))
        size += len(name) * 3 + len(data or b"") + 10
    return checked, size
