"""A task's rows: Arrow batches in, sealed record batches out, to the partitions Kafka's own producer would choose.

Columns as in Spark's Kafka sink: value (required), key, topic, partition, headers; and timestamp. `check_columns`
refuses others before anything is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.runtime import Event
from fencepost.errors import ConfigurationError, error_for
from fencepost.protocol.batch import add_sequence
from fencepost.spark import wire
from fencepost.spark.decision import Pair

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["Identity", "RowSource", "RowWriter", "check_columns", "chunks"]

OUTSTANDING_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES_PER_PARTITION: Final = 512 * 1024
CHUNK_BYTES_MOST: Final = 32 * 1024 * 1024

# Spark SQL's names of the types a column may have; headers are checked by shape.
_TEXT: Final = ("string", "binary")
COLUMN_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """`columns`: (name, Spark SQL type) of the frame. Raises ConfigurationError that names the column."""
    given = dict(columns)
    if len(given) != len(columns):
        raise ConfigurationError("two columns have the same name")
    for name, kind in columns:
        wanted = COLUMN_TYPES.get(name)
        if wanted is None:
            raise ConfigurationError(f"column {name!r} is not one of {', '.join(COLUMN_TYPES)}; drop or rename it")
        if not kind.startswith(wanted):  # a string may carry a collation
            raise ConfigurationError(f"column {name!r} is {kind}; it has to be {' or '.join(wanted)}")
    if "value" not in given:
        raise ConfigurationError("there is no column 'value'")
    if topic is None and "topic" not in given:
        raise ConfigurationError("no topic: set option topic, or have a column 'topic'")


class RowSource:
    """An iterator of Arrow batches that can be asked whether it has a row at all."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._first: pa.RecordBatch | None = None

    def has_rows(self) -> bool:
        """Reads up to the first batch that has a row."""
        while self._first is None:
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._first = batch
        return True

    def drain(self) -> None:
        """Throw everything away."""
        self._first = None
        for _ in self._batches:
            continue

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        yield from self._batches


def chunks(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Few large batches out of many small ones."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= most_bytes:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class Identity(NamedTuple):
    """As whom to produce. `transactional_id` None: idempotent only."""

    transactional_id: str | None
    pair: Pair


class Sealed(NamedTuple):
    """A batch for one partition."""

    topic: str
    partition: int
    batch: bytearray


class RowWriter:
    """Turns chunks into sealed batches, with the sequences of one producer. No I/O."""

    def __init__(
        self,
        identity: Identity,
        *,
        topic: str | None,
        max_batch_bytes: int,
        compression: str,
        first_turn: int,
        now_ms: int,
    ) -> None:
        self._identity = identity
        self._topic = topic
        self._max_batch_bytes = max_batch_bytes
        self._compression = compression
        self._turn = first_turn  # rows without a key go to one partition per chunk, in turn
        self._now_ms = now_ms
        self._sequences: dict[tuple[str, int], int] = {}

    def topics_of(self, chunk: pa.RecordBatch) -> list[str]:
        """The topics its rows go to. Raises ConfigurationError for a row without one."""
        if self._topic is not None:
            return [self._topic]
        import pyarrow.compute as pc

        found: list[Any] = pc.unique(chunk.column("topic")).to_pylist()
        if None in found:
            raise ConfigurationError("a row's topic is null; set option topic, or fill the column")
        return sorted(found)

    def seal(self, chunk: pa.RecordBatch, partitions: dict[str, int]) -> Iterator[Sealed]:
        """`partitions`: how many each topic has. Raises ConfigurationError for a partition that is not there."""
        import pyarrow.compute as pc

        for topic, count in partitions.items():
            rows = chunk
            if self._topic is None and len(partitions) > 1:
                rows = chunk.filter(pc.equal(chunk.column("topic"), topic))
            yield from self._seal_topic(rows, topic, count)
            self._turn += 1

    def _seal_topic(self, rows: pa.RecordBatch, topic: str, count: int) -> Iterator[Sealed]:
        import numpy as np

        chosen = self._choose(rows, topic, count)
        if chosen is None:
            yield from self._seal_partition(rows, topic, self._turn % count)
            return
        order = np.argsort(chosen, kind="stable")
        present, starts = np.unique(chosen[order], return_index=True)
        if len(present) > 1:
            rows = rows.take(order)
        ends = [*starts[1:].tolist(), rows.num_rows]
        for partition, start, end in zip(present.tolist(), starts.tolist(), ends, strict=True):
            yield from self._seal_partition(rows.slice(start, end - start), topic, partition)

    def _seal_partition(self, rows: pa.RecordBatch, topic: str, partition: int) -> Iterator[Sealed]:
        from fencepost.protocol.columns import encode_arrow

        has = rows.schema.names
        sequence = self._sequences.get((topic, partition), 0)
        timestamps = _milliseconds(rows.column("timestamp"), self._now_ms) if "timestamp" in has else self._now_ms
        batches = encode_arrow(
            rows.column("key") if "key" in has else None,
            rows.column("value"),
            timestamps,
            rows.column("headers") if "headers" in has else None,
            max_batch_bytes=self._max_batch_bytes,
            compression=self._compression,
            producer_id=self._identity.pair.producer_id,
            producer_epoch=self._identity.pair.epoch,
            base_sequence=sequence,
            transactional=self._identity.transactional_id is not None,
        )
        self._sequences[topic, partition] = add_sequence(sequence, rows.num_rows)
        for batch in batches:
            yield Sealed(topic, partition, batch)

    def _choose(self, rows: pa.RecordBatch, topic: str, count: int) -> npt.NDArray[np.int32] | None:
        """A partition per row; None when all rows may go to the same one."""
        import numpy as np

        has = rows.schema.names
        named = rows.column("partition") if "partition" in has else None
        keys = rows.column("key") if "key" in has and rows.column("key").null_count < rows.num_rows else None
        if keys is None and (named is None or named.null_count == rows.num_rows):
            return None
        chosen = np.full(rows.num_rows, self._turn % count, np.int32)
        if keys is not None:
            hashed = _partitions_of(keys, count)
            known = np.asarray(keys.is_valid())
            chosen[known] = hashed[known]
        if named is not None:
            known = np.asarray(named.is_valid())
            chosen[known] = np.asarray(named.fill_null(0))[known]
            if int(chosen.min()) < 0 or int(chosen.max()) >= count:
                raise ConfigurationError(f"a row names partition {_outside(chosen, count)}; {topic!r} has {count}")
        return chosen


def _milliseconds(timestamps: pa.Array, default_ms: int) -> pa.Array:
    """int64 milliseconds since 1970, cut off as Spark does; `default_ms` where there is none."""
    import pyarrow as pa

    whole = timestamps.cast(pa.timestamp("ms", timestamps.type.tz), safe=False)
    return whole.cast(pa.int64()).fill_null(default_ms)


def _outside(chosen: npt.NDArray[np.int32], count: int) -> int:
    return int(chosen[(chosen < 0) | (chosen >= count)][0])


def _partitions_of(keys: pa.Array, count: int) -> npt.NDArray[np.int32]:
    """What Java's default partitioner says of each key; something for nulls."""
    import numpy as np
    import pyarrow as pa

    from fencepost.client.partitioner import partitions_for_blob

    plain = keys.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(plain) + 1, plain.offset * 8)
    first = int(bounds[0])
    blob = np.frombuffer(data, np.uint8)[first:] if data is not None else np.empty(0, np.uint8)
    return partitions_for_blob(blob, bounds[1:] - first, count)


class Sender:
    """Sends sealed batches, each partition's in order and one at a time, partitions side by side.

    Async over the client's runtime. The first failure is raised by the next call; everything after it is dropped.
    """

    def __init__(self, cluster: Cluster, transactional_id: str | None, timeout_ms: int) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._queues: dict[tuple[str, int], list[bytearray]] = {}
        self._outstanding = 0
        self._moved: Event = cluster.runtime.event()
        self._failure: Exception | None = None

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has. Raises KafkaTimeoutError when one does not appear."""
        deadline_ms = self._cluster.runtime.now_ms() + self._timeout_ms
        return {topic: len((await self._cluster.topic(topic, deadline_ms)).partitions) for topic in topics}

    async def submit(self, batches: Sequence[Sealed]) -> None:
        """Queue batches; waits while too much is on the way."""
        for topic, partition, batch in batches:
            self._outstanding += len(batch)
            queue = self._queues.get((topic, partition))
            if queue is None:
                self._queues[topic, partition] = [batch]
                self._cluster.runtime.spawn(self._pump(topic, partition))
            else:
                queue.append(batch)
        await self._wait_below(OUTSTANDING_BYTES)

    async def flush(self) -> None:
        """Wait until everything is acknowledged."""
        await self._wait_below(1)

    async def _wait_below(self, most: int) -> None:
        while self._failure is None and self._outstanding >= most:
            self._moved.clear()
            await self._moved.wait()
        if self._failure is not None:
            raise self._failure

    async def _pump(self, topic: str, partition: int) -> None:
        queue = self._queues[topic, partition]
        while queue and self._failure is None:
            batch = queue.pop(0)
            deadline_ms = self._cluster.runtime.now_ms() + self._timeout_ms
            try:
                code = await wire.produce_batch(
                    self._cluster, self._transactional_id, topic, partition, batch, deadline_ms
                )
                if code != 0:
                    self._failure = error_for(code, f"produce to {topic}-{partition}")
            except Exception as error:  # noqa: BLE001 - raised by the next call, or by flush
                self._failure = error
            self._outstanding -= len(batch)
            self._moved.set()
        del self._queues[topic, partition]
