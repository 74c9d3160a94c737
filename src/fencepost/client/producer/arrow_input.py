"""Makes batches from Arrow tables: partitions by key hash or column, vectorised, no Python object per record.

Columns by name: `value`, `key` (binary or string), `partition` (integer, null: not chosen), `timestamp` (timestamp, or
int64 ms), `headers` (list<struct<key, value>>). `value` is required. Other columns are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.arguments import Int32, checked
from fencepost.client.producer.chunks import RECORD_OVERHEAD
from fencepost.client.producer.partitioner import (
    UNDECIDED,
    ByKey,
    Sticky,
    by_key,
    partitions_for_blob,
    partitions_for_keys,
)
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError, RecordRejectedError
from fencepost.protocol.records.arrow import as_milliseconds, encode_arrow, numbers, valid_rows
from fencepost.protocol.records.batch import HEADER_BYTES

COLUMNS: Final = ("key", "value", "headers", "timestamp")  # those that become parts of a record
PIECE_BYTES: Final = 4 * 1024 * 1024
FRAMING_BYTES: Final = 6  # estimated bytes of a record on the wire, beyond Arrow's own offsets


class Target(NamedTuple):
    """The target of rows: a topic, its number of partitions, those with a leader, and the default timestamp."""

    topic: str
    partitions: int
    available: Sequence[int]
    timestamp_ms: int


def check_table(data: pa.RecordBatch | pa.Table, partition: Int32 | None) -> pa.Table:
    """Return the columns that are sent, as a table. Raises ConfigurationError."""
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if "value" not in table.column_names:
        raise ConfigurationError(f"the data has no column 'value', only {', '.join(table.column_names)}")
    for name in (*COLUMNS, "partition"):
        _check_once(table, name)
    known = [name for name in COLUMNS if name in table.column_names]
    chosen = table.select(known)
    if partition is not None:
        return chosen.append_column("partition", numbers(np.full(len(table), partition, np.int32)))
    if "partition" in table.column_names:
        return chosen.append_column("partition", _numbers_of_partitions(table.column("partition")))
    return chosen


def _check_once(table: pa.Table, name: str) -> None:
    if table.column_names.count(name) > 1:
        raise ConfigurationError(f"the data has more than one column {name!r}")


def _numbers_of_partitions(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"the column 'partition' has a value that is no partition: {error}") from error


def by_topic(data: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split by the column `topic`, keeping the order within each. Raises ConfigurationError."""
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if "topic" not in table.column_names:
        raise ConfigurationError("neither a topic nor a column 'topic' was given")
    _check_once(table, "topic")
    topics = table.column("topic")
    if topics.null_count:
        raise ConfigurationError("the column 'topic' has nulls")
    for topic in pc.unique(topics).to_pylist():
        yield str(topic), table.filter(pc.equal(topics, topic))


@checked
def pieces_of(
    topic: str | None, data: pa.RecordBatch | pa.Table, partition: Int32 | None
) -> Iterator[tuple[str, pa.Table]]:
    """Return (topic, rows) pairs of a few megabytes each. All rows are validated before the first pair.

    Raises ConfigurationError, TypeError.
    """
    parts = by_topic(data) if topic is None else [(topic, data)]
    tables = [(name, check_table(part, partition)) for name, part in parts if len(part)]
    return ((name, piece) for name, table in tables for piece in in_pieces(table))


def in_pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield slices of a few megabytes (no copies), so that a large table is not encoded all at once."""
    size = table.nbytes
    if size <= 2 * PIECE_BYTES:
        yield table
        return
    rows = max(1, len(table) * PIECE_BYTES // size)
    for start in range(0, len(table), rows):
        yield table.slice(start, rows)


def encode_table(
    table: pa.Table, target: Target, sticky: Sticky, config: ProducerConfig
) -> Iterator[tuple[int, bytearray]]:
    """Yield (partition, batch) pairs. Batches of one partition are in the order of the rows."""
    if callable(config.partitioner):
        raise ConfigurationError("a partitioner function is not asked about Arrow rows; give them a column 'partition'")
    chosen = _choose(table, target, config)
    if chosen is None:
        for data in _encode(table, target, config):
            yield sticky.choose(target.topic, len(data), target.available), data
        return
    if chosen.min() < 0:
        chosen[chosen < 0] = sticky.choose(target.topic, table.nbytes, target.available)
    if chosen.min() == chosen.max():
        for data in _encode(table, target, config):
            yield int(chosen[0]), data
        return
    order = np.argsort(chosen, kind="stable")
    cuts = np.flatnonzero(np.diff(chosen[order])) + 1
    for rows in np.split(order, cuts):
        for data in _encode(table.take(numbers(rows)), target, config):
            yield int(chosen[rows[0]]), data


def _encode(table: pa.Table, target: Target, config: ProducerConfig) -> list[bytearray]:
    def column(name: str) -> Any:
        return table.column(name) if name in table.column_names else None

    timestamps = column("timestamp")
    if timestamps is None:
        timestamps = target.timestamp_ms
    elif timestamps.null_count:
        timestamps = pc.fill_null(as_milliseconds(timestamps), target.timestamp_ms)
    return encode_arrow(
        column("key"),
        column("value"),
        timestamps,
        column("headers"),
        max_batch_bytes=_even_share(table, config.max_request_size),
        compression=config.compression_type,
        level=config.compression_level,
        sealed=False,
    )


def highest_partition(table: pa.Table) -> int:
    """Return the highest partition that a row requests; UNDECIDED if none does."""
    if "partition" not in table.column_names:
        return UNDECIDED
    highest = pc.max(table.column("partition")).as_py()
    return UNDECIDED if highest is None else int(highest)


def _even_share(table: pa.Table, most: int) -> int:
    """Return a size limit that gives batches of about equal size, instead of full batches and a small remainder."""
    size = table.nbytes + FRAMING_BYTES * len(table)
    batches = -(-size // most)
    return min(most, int(size // batches * 1.02) + HEADER_BYTES + RECORD_OVERHEAD)


def _choose(table: pa.Table, target: Target, config: ProducerConfig) -> npt.NDArray[np.int32] | None:
    """Return each row's partition, -1 if neither column nor key determines it; None if that holds for all rows."""
    chosen: npt.NDArray[np.int32] | None = None
    if "partition" in table.column_names:
        column = table.column("partition")
        chosen = pc.fill_null(column, UNDECIDED).to_numpy().astype(np.int32)
        wrong = (chosen >= target.partitions) | ((chosen < 0) & pc.is_valid(column).to_numpy(zero_copy_only=False))
        if wrong.any():
            raise RecordRejectedError(
                f"partition {chosen[wrong][0]} of {target.topic!r}, which has {target.partitions}"
            )
    choice = by_key(config.partitioner, ignore_keys=config.partitioner_ignore_keys)
    keys = None if choice is None else _keys(table, choice)
    if choice is not None and keys is not None and keys.null_count < len(table):
        if chosen is None:
            chosen = np.full(len(table), UNDECIDED, np.int32)
        _choose_by_key(keys, target.partitions, chosen, choice)
    return chosen


def _keys(table: pa.Table, choice: ByKey) -> pa.ChunkedArray | None:
    """Return the keys that determine partitions; None if no row has such a key."""
    keys = table.column("key") if "key" in table.column_names else None
    if not choice.hashes_none:
        return keys
    if keys is None:
        return pa.chunked_array([pa.array([b""] * len(table), pa.large_binary())])
    return pc.fill_null(keys.cast(pa.large_binary()), b"")


def _choose_by_key(keys: pa.ChunkedArray, partitions: int, chosen: npt.NDArray[np.int32], choice: ByKey) -> None:
    """Fill in the hash's partition for rows that have a key and no partition yet."""
    is_open = chosen < 0
    if keys.null_count:
        has_key = map(valid_rows, keys.chunks)  # for a bool array, pyarrow's to_numpy imports pandas
        is_open &= np.concatenate(
            [
                np.ones(len(chunk), np.bool_) if valid is None else valid
                for chunk, valid in zip(keys.chunks, has_key, strict=True)
            ]
        )
    rows = np.flatnonzero(is_open)
    if not len(rows):
        return
    wanted = keys if len(rows) == len(keys) else keys.take(numbers(rows))
    if choice.partitions is not partitions_for_keys:
        chosen[rows] = choice.partitions(wanted.cast(pa.large_binary()).to_pylist(), partitions)
        return
    array = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in wanted.chunks])
    _, offsets_buffer, data_buffer = array.buffers()
    bounds = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    blob = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    start = int(bounds[0])
    chosen[rows] = partitions_for_blob(blob[start : int(bounds[-1])], bounds[1:] - start, partitions)
