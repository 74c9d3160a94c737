"""The buffer of records between `send` and the network.

`Accumulator.append` writes a record into the open chunk of its topic, from any thread. It creates no object per record,
and wakes the sender only when a chunk is opened or full. `blocking.Producer.send` writes plain records into open chunks
by itself. Partitions are chosen later, for a whole chunk at once. A chunk becomes one batch per partition. The chunk
and the index in it identify a record.

There is no lock. A signal handler or a `__del__` may send, flush, close or end the transaction inside a call that it
interrupts. The I/O thread then closes chunks while that call stands still. Therefore each change of shared state is one
call of a C function, several threads may do the same step, and a step may be repeated. A thread that finds a step half
done completes it.
"""

from __future__ import annotations

import io
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final, Self

from fencepost.arguments import (
    FUNCTION,
    MAX_INT32,
    MAX_INT64,
    TEXT,
    WHOLE_INT32,
    WHOLE_NUMBER,
    ValueKind,
    brief_repr,
    is_utf8,
    kind_of,
)
from fencepost.client.net.runtime import Runtime
from fencepost.client.producer.chunks import HOLE, RECORD_OVERHEAD, Chunk, Headers, OnDelivery
from fencepost.client.producer.unhandled_failures import InRuntime, UnhandledFailures, at_once
from fencepost.config import ProducerConfig
from fencepost.errors import RecordRejectedError
from fencepost.protocol.records import engine
from fencepost.protocol.records.headers import Header

_HEADERS = kind_of(Sequence[object])
_MOST_ROWS: Final = 1024  # initial maximum


class _Total:
    """A sum to which several threads add, and signal handlers during their calls.

    There is no lock, see `Chunk`: each addition is one call of a C function. The sum is the position of a stream in
    memory.
    """

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = io.BytesIO()

    def add(self, sizes: Iterator[int]) -> None:
        """Add all remaining items of a C iterator, and exhaust it. No other code runs in between."""
        deque(map(self._stream.seek, sizes, repeat(io.SEEK_CUR)), maxlen=0)

    @property
    def value(self) -> int:
        return self._stream.tell()


def _allowed() -> None:
    """Accept records always."""


class Accumulator:
    """The open chunks, and the closed chunks in the order of sending.

    Several threads may append at the same time. Only the runtime may call `take`, `released` and `spread_over`.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], object],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        chunk_bytes: int,
        max_record_bytes: int,
        buffer_bytes: int,
        in_runtime: InRuntime = at_once,
        on_delivery: OnDelivery | None = None,
        native: bool = False,
    ) -> None:
        """Create an empty accumulator.

        Args:
            wake: Tells the sender that there is work. Called from any thread.
            now_ms: Monotonic clock, in ms.
            wall_ms: Clock of timestamps, in ms since 1970.
            chunk_bytes: Size at which a chunk is closed, in bytes.
            max_record_bytes: Largest record, in bytes.
            buffer_bytes: Limit of all waiting records, in bytes.
            in_runtime: Runs a function in the runtime, in the order of the calls. Called from any thread.
            on_delivery: Called with the outcome of each record that has no callback of its own.
            native: Keep records in the native module, where it is used. No application's partitioner can read them.
        """
        self.delivery: type[Any] = tuple  # the class of the results of `OpenRows.take`
        self._native = native
        self.closed: deque[Chunk] = deque()
        self.unhandled = UnhandledFailures(in_runtime)
        self.open: dict[str, Chunk] = {}  # by topic: chunks for all writers; may contain a closed one for a while
        self.slow = False  # `send` has to check first: no room, or `refusing`
        self.refusing = False  # `check` has to be called before each record (transactions, closed, failed)
        self.check: Callable[[], None] = _allowed  # raises if the producer accepts no records
        self._limits: dict[str, int] = {}
        self._lines: dict[str, list[Chunk]] = {}  # by topic: chunks, of which the first is written to
        self._opened: dict[int, Chunk] = {}  # by id, in the order of creation: chunks that are not in `closed` yet
        self._passed_on = _Total()  # bytes of all chunks that were ever closed with records
        self._released_bytes = 0  # bytes of those whose results are known; only the runtime changes it
        self._buffer_bytes = buffer_bytes
        self._wake = wake
        self._on_delivery = on_delivery  # for records that are sent without a callback of their own
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._chunk_bytes = chunk_bytes
        self._max_record_bytes = max_record_bytes

    @classmethod
    def of(
        cls, config: ProducerConfig, runtime: Runtime, *, wake: Callable[[], object], in_runtime: InRuntime = at_once
    ) -> Self:
        """Create an accumulator with a producer's sizes and the runtime's clocks."""
        return cls(
            wake=wake,
            in_runtime=in_runtime,
            now_ms=runtime.now_ms,
            wall_ms=runtime.wall_ms,
            chunk_bytes=min(config.batch_size, config.max_request_size),
            max_record_bytes=config.max_request_size,
            buffer_bytes=config.buffer_memory,
            on_delivery=config.on_delivery,
            native=not callable(config.partitioner),
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
        """Accept one record.

        Returns:
            The chunk and the record's index in it, which identify its result.

        Raises:
            RecordRejectedError, TypeError, ConfigurationError: The record is invalid.
            KafkaError: As `check` raises.
        """
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
        on_delivery = self._on_delivery if on_delivery is None else on_delivery
        if partition is not None or timestamp_ms is not None or on_delivery is not None:
            partition, timestamp_ms = _checked_extras(partition, timestamp_ms, on_delivery)
        is_plain = partition is None and not pairs and timestamp_ms is None and on_delivery is None
        extras = None if is_plain else (partition, pairs, timestamp_ms, on_delivery)
        name = topic if topic.__class__ is str else TEXT.of("topic", topic)
        while True:
            chunk = self._current(name, size)
            try:
                if self.refusing:
                    self.check()  # after the look-up: a caller of refuse() closes all chunks, this one included
                index = chunk.add(value, key, size, extras)
            finally:
                if chunk.is_full:
                    self._pass_on_and_wake(chunk)
                elif not chunk.announced:
                    self._announce(chunk)
            if index is not None:
                return chunk, index

    def append_table(self, topic: str, table: Any, size: int) -> Chunk:
        """Accept Arrow data of `size` bytes, after all earlier records of the topic."""
        name = _checked_topic(topic)
        while True:
            for chunk in self._lines.get(name, ())[:1]:
                self._pass_on(chunk)
            chunk = Chunk(name, self._now_ms(), self._wall_ms(), self.unhandled, is_table=True)
            chunk.limit, chunk.values = size, [HOLE]
            self._opened[id(chunk)] = chunk
            try:
                if self.refusing:
                    self.check()
                there = chunk.put(next(chunk.indexes), table, None)
            finally:
                self._pass_on_and_wake(chunk)
            if there:
                return chunk

    def _current(self, topic: str, size: int) -> Chunk:
        """Return the chunk to write to, a new one if necessary. Only its creator writes to it until it is announced."""
        line = self._lines.get(topic)
        if line is None:
            line = self._lines.setdefault(_checked_topic(topic), [])
        while True:
            chunk = next(iter(line), None)
            if chunk is not None:
                if chunk.announced and not chunk.closed:
                    return chunk
                # Its creator, or the thread that closes it, was interrupted or is still running.
                self._pass_on_and_wake(chunk)
                continue
            if self.refusing:
                self.check()
            created = self._new(topic, size)
            line.append(created)
            if next(iter(line), None) is created:
                return created
            self._pass_on(created)  # another thread or a signal handler was faster

    def _new(self, topic: str, size: int) -> Chunk:
        chunk = Chunk(topic, self._now_ms(), self._wall_ms(), self.unhandled)
        limit = self._limits.get(topic, self._chunk_bytes)
        capacity = min(limit // size + 2, _MOST_ROWS)  # estimated from the size of the first record
        chunk.open(limit, self.delivery, native=self._native and engine.is_native, capacity=capacity)
        self._opened[id(chunk)] = chunk  # before `check`: a caller of refuse() finds it here and closes it
        return chunk

    def _announce(self, chunk: Chunk) -> None:
        """Announce the chunk to the sender, then to all writers."""
        self._wake()
        chunk.announced = True
        self.open[chunk.topic] = chunk
        if chunk.closed:
            self.open.pop(chunk.topic, None)

    def _pass_on(self, chunk: Chunk) -> None:
        """Close the chunk and append it to `closed`, once.

        Then remove it, so that the topic's next chunk comes after it.
        """
        chunk.close()
        if not chunk.is_empty:
            self._passed_on.add(chunk.uncounted)  # first: the sender may take and release it at once
            self.closed.extend(chunk.once)
        with suppress(ValueError):
            self._lines.get(chunk.topic, []).remove(chunk)
        self.open.pop(chunk.topic, None)  # this may remove a later chunk, which the next writer puts back
        self._opened.pop(id(chunk), None)
        self._check_room()

    def _pass_on_and_wake(self, chunk: Chunk) -> None:
        try:
            self._pass_on(chunk)
        finally:
            self._wake()

    def _check_room(self) -> None:
        self.slow = self.full
        if self.refusing:  # last: refuse() may have run in between
            self.slow = True

    def take(self) -> Chunk | None:
        """Return the next closed chunk, or None. Its bytes count until it is `released`."""
        if not self.closed:
            return None
        chunk = self.closed.popleft()
        chunk.taken = True
        return chunk

    @property
    def waiting_bytes(self) -> int:
        """Bytes of closed chunks without a result."""
        return self._passed_on.value - self._released_bytes

    @property
    def waiting_rows(self) -> int:
        """Number of records that the sender has not taken yet."""
        return sum(
            chunk.rows for chunk in {id(chunk): chunk for chunk in (*self._opened.values(), *self.closed)}.values()
        )

    @property
    def full(self) -> bool:
        """True if new records have to wait for space."""
        return self.waiting_bytes >= self._buffer_bytes

    def spread_over(self, topic: str, partitions: int) -> None:
        """Enlarge the topic's chunks, so that each of its partitions gets a batch of full size.

        The topic's last chunk went to `partitions` partitions. The new size is at most the largest allowed record.
        """
        self._limits[topic] = max(self._chunk_bytes, min(self._chunk_bytes * partitions, self._max_record_bytes))

    def refuse(self) -> None:
        """Require a check by the producer before each record from now on."""
        self.refusing = True
        self.slow = True  # in this order, see `_check_room`

    def close_due(self, opened_before_ms: float) -> None:
        """Close the chunks that were opened at or before this time."""
        for chunk in list(self._opened.values()):
            if chunk.created_ms <= opened_before_ms:
                self._pass_on(chunk)

    def close_all(self) -> None:
        """Close every open chunk (flush)."""
        self.close_due(math.inf)

    def next_due_ms(self, linger_ms: float) -> float | None:
        """Return the time at which the oldest open chunk has lingered for `linger_ms`, or None."""
        due_ms = min([chunk.created_ms for chunk in list(self._opened.values())], default=None)
        return None if due_ms is None else due_ms + linger_ms

    def released(self, chunk: Chunk) -> None:
        """Free the buffer space of a chunk whose records all have results."""
        if chunk.taken:
            self._released_bytes, chunk.taken = self._released_bytes + chunk.bytes, False
        self._check_room()


def _checked_topic(topic: object) -> str:
    if isinstance(topic, str):
        _check_encodable(topic, "a topic")
    name: str = TEXT.of("topic", topic)
    return name


def _check_encodable(text: str, operation: str) -> None:
    """Reject text that cannot be encoded in UTF-8. Otherwise all records of its chunk would fail."""
    if not is_utf8(text):
        raise RecordRejectedError(f"{operation} cannot be written in UTF-8: {brief_repr(text)}")


def _checked_extras(
    partition: int | None, timestamp_ms: int | None, on_delivery: OnDelivery | None
) -> tuple[int | None, int | None]:
    if on_delivery is not None:
        FUNCTION.of("on_delivery", on_delivery)
    if partition is not None:
        partition = _whole("partition", partition, MAX_INT32, WHOLE_INT32)
    if timestamp_ms is not None:
        timestamp_ms = _whole("timestamp_ms", timestamp_ms, MAX_INT64, WHOLE_NUMBER)
    return partition, timestamp_ms


def _whole(name: str, value: int, most: int, kind: ValueKind) -> int:
    return value if value.__class__ is int and 0 <= value <= most else int(kind.of(name, value))


def _as_bytes(value: Any, operation: str) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, bytes):
        return value
    hint = "; text.encode() makes bytes of it" if isinstance(value, str) else "; serialize it first"
    raise TypeError(f"a record's {operation} is bytes or None, not {type(value).__name__}{hint}")


def _checked_headers(headers: Headers) -> tuple[list[Header], int]:
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else _HEADERS.of("headers", headers)
    checked: list[Header] = []
    size = 0
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f'headers are [("name", b"value"), ...] or a dict of these, not with {brief_repr(pair)}')
        name, value = pair
        _check_encodable(name, "a header's name")
        data = None if value is None else _as_bytes(value, f"header {name!r}")
        checked.append((name, data))
        size += len(name) * 3 + len(data or b"") + 10
    return checked, size
