"""Check a task's rows, and pass them to the client's producer.

The columns are those of Spark's Kafka sink: value (required), key, topic, partition, headers. A further column is
timestamp. `check_columns` refuses any other column before the sink is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.client.net.cluster import Cluster
from fencepost.client.producer.adopted import AdoptedProducer
from fencepost.client.producer.batching import BatchLimits
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError
from fencepost.spark.sink import wire
from fencepost.spark.sink.decision import Pair

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProducerIdentity", "RowSource", "check_columns", "chunks", "largest_row", "producer_for", "send_rows"]

OUTSTANDING_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES_PER_PARTITION: Final = 512 * 1024
CHUNK_BYTES_MOST: Final = 32 * 1024 * 1024

# Spark SQL's names of the types that each column may have.
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
    """Raise ConfigurationError, which names the column, for a wrong or missing column.

    `columns` are name and Spark SQL type of the frame's columns. `topic` is the option of that name.
    """
    given = dict(columns)
    if len(given) != len(columns):
        raise ConfigurationError("two columns have the same name")
    for name, kind in columns:
        wanted = COLUMN_TYPES.get(name)
        if wanted is None:
            raise ConfigurationError(f"column {name!r} is not one of {', '.join(COLUMN_TYPES)}; drop or rename it")
        if kind.split(" ", 1)[0] not in wanted:  # a string may carry a collation
            raise ConfigurationError(f"column {name!r} is {kind}; it has to be {' or '.join(wanted)}")
    if "value" not in given:
        raise ConfigurationError("there is no column 'value'")
    if topic is None and "topic" not in given:
        raise ConfigurationError("no topic: set option topic, or have a column 'topic'")


class RowSource:
    """An iterator of Arrow batches that can check in advance if it has a row."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._first: pa.RecordBatch | None = None

    def has_rows(self) -> bool:
        """Return True if there is a row. Reads up to the first batch with a row, and keeps it for the iteration."""
        while self._first is None:
            batch = next(self._batches, None)
            if batch is None:
                return False
            if batch.num_rows:
                self._first = batch
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        yield from self._batches


def chunks(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small batches to chunks of about `most_bytes`, and cut large ones.

    No chunk exceeds CHUNK_BYTES_MOST, unless one row does.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in (piece for whole in batches if whole.num_rows for piece in _cut(whole)):
        if waiting and size + batch.nbytes > CHUNK_BYTES_MOST:
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch to pieces of at most CHUNK_BYTES_MOST. Spark's batches may have 100,000 rows of any size."""
    if batch.nbytes <= CHUNK_BYTES_MOST or batch.num_rows == 1:
        yield batch
        return
    rows = -(-batch.num_rows // -(-batch.nbytes // CHUNK_BYTES_MOST))
    for first in range(0, batch.num_rows, rows):
        yield from _cut(batch.slice(first, rows))  # rows may differ much in size


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def largest_row(rows: pa.RecordBatch) -> int:
    """Return the size of the largest row, in bytes of key and value."""
    import pyarrow.compute as pc

    sizes = [pc.fill_null(pc.binary_length(rows[name]), 0) for name in ("key", "value") if name in rows.schema.names]
    most = pc.max(sizes[0] if len(sizes) == 1 else pc.add(sizes[0], sizes[1])).as_py()
    return int(most or 0)


class ProducerIdentity(NamedTuple):
    """The identity of a task's producer. `transactional_id` None: idempotent, without a transaction."""

    transactional_id: str | None
    pair: Pair
    verified: bool = False  # see plan_steps.WriteRows


def producer_for(
    cluster: Cluster, config: ProducerConfig, identity: ProducerIdentity, limits: BatchLimits | None = None
) -> AdoptedProducer:
    """Return the task's producer. Call this in the runtime's thread.

    `config` is the user's. Linger, batch size, buffer, block time, retries and in-flight requests are replaced, because
    rows come in large chunks.
    """
    own = replace(
        config,
        transactional_id=identity.transactional_id,
        linger_ms=0,
        batch_size=CHUNK_BYTES_PER_PARTITION,
        buffer_memory=OUTSTANDING_BYTES,
        max_block_ms=config.delivery_timeout_ms,
        retries=ProducerConfig.retries,
        max_in_flight_requests_per_connection=ProducerConfig.max_in_flight_requests_per_connection,
    )
    admit = wire.check_verifies if identity.verified else None
    return AdoptedProducer(cluster, own, identity.pair.producer_id, identity.pair.epoch, limits, admit=admit)


async def send_rows(producer: AdoptedProducer, topic: str | None, rows: pa.RecordBatch, decisions: str) -> None:
    """Pass a chunk to the producer.

    Raises ConfigurationError for a row without a topic in UTF-8 or for the topic `decisions`, and the first failure.
    """
    if topic is None:
        _check_column(rows.column("topic"), decisions)
    await producer.send(topic, rows)


def _check_column(topics: pa.Array, decisions: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        topics.validate(full=True)
    except pa.ArrowInvalid:  # Spark casts bytes to text without a check
        raise ConfigurationError("a row's topic is not UTF-8") from None
    if topics.null_count:
        raise ConfigurationError("a row's topic is null; set option topic, or fill the column")
    # Readers of decisions would wait for the rows' transaction, and find records that they cannot read.
    if pc.any(pc.equal(topics, decisions)).as_py():
        raise ConfigurationError(f"column topic: {decisions!r} is the decision topic, which takes no rows")
