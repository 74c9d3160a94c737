"""Where records wait between `send` and the wire.

`Accumulator.append` takes a record into the open chunk of its topic, in any thread, keeps no object per record, and
tells the sender only when a chunk is opened or full. `blocking.Producer.send` writes plain records into open chunks by
itself, without the lock. Partitions are chosen later, for a whole chunk at once. A chunk becomes one batch per
partition; a record's fate is found again through (chunk, index in chunk).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Self

from fencepost.arguments import FUNCTION, TEXT, WHOLE_NUMBER, kind_of
from fencepost.client.net.runtime import Runtime
from fencepost.client.producer.chunks import HOLE, Chunk, Headers, OnDelivery
from fencepost.client.producer.unhandled_failures import UnhandledFailures
from fencepost.config import ProducerConfig
from fencepost.errors import RecordRejectedError
from fencepost.protocol.records.headers import Header

_HEADERS = kind_of(Sequence[object])
RECORD_OVERHEAD: Final = 21  # the most that lengths, deltas and attributes of a record take, without headers
_MOST_PLACES: Final = 1024  # to begin with


class Accumulator:
    """The open chunks by topic, and the closed chunks in order. Thread-safe through the lock handed in."""

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
        self.unhandled = UnhandledFailures(lock)
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

    @classmethod
    def of(
        cls, config: ProducerConfig, runtime: Runtime, *, lock: AbstractContextManager[Any], wake: Callable[[], object]
    ) -> Self:
        """With a producer's sizes, and the runtime's clocks."""
        return cls(
            lock=lock,
            wake=wake,
            now_ms=runtime.now_ms,
            wall_ms=runtime.wall_ms,
            chunk_bytes=min(config.batch_size, config.max_request_size),
            max_record_bytes=config.max_request_size,
            buffer_bytes=config.buffer_memory,
        )

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> tuple[Chunk, int]:
        """Take one record; (chunk, index). Raises RecordRejectedError, TypeError, ConfigurationError."""
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value) if value.__class__ is bytes else len(value := _as_bytes(value, "value"))
        if key is not None:
            size += len(key) if key.__class__ is bytes else len(key := _as_bytes(key, "key"))
        pairs: list[Header] | None = None
        if headers is not None:
            pairs, more = _checked_headers(headers)
            size += more
        if size > self._max_record_bytes:
            raise RecordRejectedError(f"a record of {size} bytes; max_request_size is {self._max_record_bytes}")
        if partition is not None or timestamp_ms is not None or on_delivery is not None:
            partition, timestamp_ms = _checked_extras(partition, timestamp_ms, on_delivery)
        news = False  # for the sender
        try:
            with self._lock:
                found = self.open.get(topic if topic.__class__ is str else TEXT.of("topic", topic))
                if found is not None and found.closed:
                    self._close(topic)
                    found = None
                chunk = self._new(topic, size) if found is None else found
                index = next(chunk.indexes)
                if partition is not None or pairs or timestamp_ms is not None or on_delivery is not None:
                    _put_extras(chunk, index, partition, pairs, timestamp_ms, on_delivery)
                chunk.room -= size
                chunk.put(index, value, key)
                news = found is None or chunk.room <= 0
                self.open[topic] = chunk  # a new one only with its first record, which Ctrl-C may have kept out
                if chunk.room <= 0:
                    self._close(topic)
        finally:
            if news:
                self._wake()
        return chunk, index

    def settle(self, chunk: Chunk, index: int, value: bytes, key: bytes | None) -> bool:
        """For who took an index and then found the chunk closed, or without that place: whether the record is in."""
        with self._lock:
            if chunk.closed:
                chunk.close()
                return chunk.has(index)
            chunk.put(index, value, key)
            return True

    def _new(self, topic: object, size: int) -> Chunk:
        name = _checked_topic(topic)
        chunk = Chunk(name, self._now_ms(), self._wall_ms(), self.unhandled)
        chunk.limit = chunk.room = self._limits.get(name, self._chunk_bytes)
        chunk.values = [HOLE] * min(chunk.room // size + 2, _MOST_PLACES)  # as if all were like the first
        return chunk

    def append_table(self, topic: str, table: Any, size: int) -> Chunk:
        """Take Arrow data behind everything sent to the topic so far."""
        chunk = Chunk(_checked_topic(topic), self._now_ms(), self._wall_ms(), self.unhandled)
        chunk.table = table
        chunk.bytes = size
        with self._lock:
            if topic in self.open:
                self._close(topic)
            self.closed.append(chunk)
            self._count(chunk)
        self._wake()
        return chunk

    def _close(self, topic: str) -> None:
        """Ctrl-C may come between any two steps: whoever has to do with the topic next takes all of them again."""
        chunk = self.open[topic]
        chunk.close()
        self.closed.extend(map(self.open.pop, (topic,)))  # one call of C: nothing comes between taking and putting
        self._count(chunk)

    def _count(self, chunk: Chunk) -> None:
        self.waiting_bytes, chunk.counted = self.waiting_bytes + chunk.bytes, True
        self.slow = self.refusing or self.full

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
            for topic in [name for name, chunk in self.open.items() if chunk.created_ms <= opened_before_ms]:
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
            return min(chunk.created_ms for chunk in self.open.values()) + linger_ms

    def released(self, chunk: Chunk) -> None:
        """A closed chunk has its fate."""
        with self._lock:
            if chunk.counted:
                self.waiting_bytes, chunk.counted = self.waiting_bytes - chunk.bytes, False
            self.slow = self.refusing or self.full


def _put_extras(
    chunk: Chunk,
    index: int,
    partition: int | None,
    headers: list[Header] | None,
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


def _checked_topic(topic: object) -> str:
    name: str = TEXT.of("topic", topic)
    _check_encodable(name, "a topic")
    return name


def _check_encodable(text: str, what: str) -> None:
    """A record that cannot be encoded would take all others of its chunk with it."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordRejectedError(f"{what} cannot be written in UTF-8: {text!r:.80}") from None


def _checked_extras(
    partition: int | None, timestamp_ms: int | None, on_delivery: OnDelivery | None
) -> tuple[int | None, int | None]:
    if on_delivery is not None:
        FUNCTION.of("on_delivery", on_delivery)
    if partition is not None:
        partition = _whole("partition", partition)
    if timestamp_ms is not None:
        timestamp_ms = _whole("timestamp_ms", timestamp_ms)
        if timestamp_ms >= 2**63:
            raise RecordRejectedError(f"a timestamp that 64 bits do not hold: {timestamp_ms}")
    return partition, timestamp_ms


def _whole(name: str, value: int) -> int:
    return value if value.__class__ is int and value >= 0 else int(WHOLE_NUMBER.of(name, value))


def _as_bytes(value: Any, what: str) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bytes):
        return value
    hint = "; text.encode() makes bytes of it" if isinstance(value, str) else "; serialize it first"
    raise TypeError(f"a record's {what} is bytes or None, not {type(value).__name__}{hint}")


def _checked_headers(headers: Headers) -> tuple[list[Header], int]:
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else _HEADERS.of("headers", headers)
    checked: list[Header] = []
    size = 0
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f'headers are [("name", b"value"), ...] or a dict of these, not with {pair!r:.80}')
        name, value = pair
        _check_encodable(name, "a header's name")
        data = None if value is None else _as_bytes(value, f"header {name!r}")
        checked.append((name, data))
        size += len(name) * 3 + len(data or b"") + 10
    return checked, size
