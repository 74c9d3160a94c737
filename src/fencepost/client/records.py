"""Fetched records: as `Record` objects, or as Arrow data in the columns of Spark's Kafka source."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice, repeat
from typing import TYPE_CHECKING, NamedTuple

from fencepost.client.types import TimestampType, TopicPartition
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.records import engine
from fencepost.protocol.records.batch import says_log_append_time
from fencepost.protocol.records.columns import FEW, Columns, Numbers

if TYPE_CHECKING:
    import pyarrow as pa


class Record(NamedTuple):
    """A record. `value` None is a tombstone; headers is a sequence of (name, bytes or None).

    With deserializers, `key` and `value` are the objects that these return.

    `leader_epoch` is the epoch of the partition leader that wrote it, or -1 if the log does not have it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_type: TimestampType
    leader_epoch: int = -1


@dataclass(slots=True)
class SharedRecord:
    """A record of a share group: a Record with the number of its deliveries, including this one."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_type: TimestampType
    delivery_count: int
    leader_epoch: int = -1

    @classmethod
    def of(cls, record: Record, delivery_count: int) -> SharedRecord:
        """Create a shared record from a record and its delivery count."""
        return cls(*record[:-1], delivery_count, record.leader_epoch)


class Fetched(NamedTuple):
    """Records of one partition as columns. `next_offset` is the next offset to read, after gaps."""

    partition: TopicPartition
    columns: Columns
    next_offset: int
    timestamp_type: TimestampType
    epochs: Sequence[tuple[int, int]] = ()  # (first offset, leader epoch) at each change of the epoch

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, or -1 if unknown."""
        found = -1
        for first, epoch in self.epochs:
            if first >= offset:
                break
            found = epoch
        return found

    def epoch_of_each(self) -> Iterable[int]:
        """Return the leader epochs of the records in order. The iterator is endless if all have the same epoch."""
        if len(self.epochs) < 2:
            return repeat(self.epochs[0][1] if self.epochs else -1)
        offsets = self.columns.offsets
        starts = [bisect_left(offsets, first) for first, _ in self.epochs]
        ends = [*starts[1:], len(offsets)]
        before = repeat(-1, starts[0])
        runs = (repeat(run[1], end - start) for run, start, end in zip(self.epochs, starts, ends, strict=True))
        return chain(before, *runs)

    def split(self, rows: int) -> tuple[Fetched, Fetched]:
        """Split into the first `rows` records and the rest."""
        first = self.columns.select(slice(0, rows))
        rest = self.columns.select(slice(rows, None))
        after = int(self.columns.offsets[rows])
        return self._replace(columns=first, next_offset=after), self._replace(columns=rest)


_make = partial(tuple.__new__, Record)


def to_records(fetched: Fetched) -> Iterable[Record]:
    """Return the records as objects, created by the native module or else by C functions as far as possible."""
    columns = fetched.columns
    if len(columns) > FEW and engine.is_native and columns.offsets.contiguous:
        return _native_records(fetched)
    headers = columns.all_headers() if columns.has_headers else repeat((), len(columns))
    rows = zip(
        repeat(fetched.partition.topic),
        repeat(fetched.partition.partition),
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        columns.keys(),
        columns.values(),
        headers,
        repeat(fetched.timestamp_type),
        fetched.epoch_of_each(),
        strict=False,  # the repeated columns have no end
    )
    return map(_make, rows)


def _native_records(fetched: Fetched) -> list[Record]:
    """Return what `to_records` returns, in one call. Garbage collection does not examine records without headers."""
    columns, epochs = fetched.columns, fetched.epochs
    epoch: int | list[int] = epochs[0][1] if epochs else -1
    if len(epochs) > 1:
        epoch = list(islice(fetched.epoch_of_each(), len(columns)))
    return engine.native.make_records(
        Record,
        fetched.partition.topic,
        fetched.partition.partition,
        columns.offsets,
        columns.timestamps,
        columns.blob,
        (columns.key_start, columns.key_length),
        (columns.value_start, columns.value_length),
        columns.all_headers() if columns.has_headers else None,
        fetched.timestamp_type,
        epoch,
    )


def timestamp_type_of(records: Buffer) -> TimestampType:
    """Return the timestamp type of the first batch. A partition has one type unless its topic's settings changed."""
    return TimestampType.LOG_APPEND_TIME if says_log_append_time(records) else TimestampType.CREATE_TIME


def arrow_schema(*, headers: bool) -> pa.Schema:
    """Return Spark's Kafka columns: key, value, topic, partition, offset, timestamp, timestampType[, headers]."""
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        struct = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(struct)))
    return pa.schema(fields)


def to_arrow(fetched: Fetched, *, headers: bool = False) -> pa.RecordBatch:
    """Return one partition's records in `arrow_schema`."""
    return chosen_columns(fetched, arrow_schema(headers=headers))


def chosen_columns(fetched: Fetched, schema: pa.Schema) -> pa.RecordBatch:
    """Return some columns of `arrow_schema`, in any order; only these are created. Raises KeyError for others."""
    import pyarrow as pa

    arrays = [_as(only, field.type) for field in schema for only in _column([fetched], field.name)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_table(fetched: Iterable[Fetched], *, headers: bool = False) -> pa.Table:
    """Return a table of all pieces in order. Numbers and topics are in one chunk, because each chunk costs time."""
    import pyarrow as pa

    schema = arrow_schema(headers=headers)
    pieces = [piece for piece in fetched if len(piece.columns)]
    if not pieces:
        return schema.empty_table()
    columns = [[_as(chunk, field.type) for chunk in _column(pieces, field.name)] for field in schema]
    return pa.Table.from_arrays(list(map(pa.chunked_array, columns)), schema=schema)


def _column(pieces: Sequence[Fetched], name: str) -> list[pa.Array]:
    """Return a column of `arrow_schema` for all pieces, in few chunks if that needs no copy of bytes."""
    import numpy as np
    import pyarrow as pa

    from fencepost.protocol.records.arrow import column_to_arrow, numbers, repeated, strings_to_arrow

    rows = [len(piece.columns) for piece in pieces]

    def joined(columns: Iterable[Numbers]) -> np.ndarray:
        arrays = list(map(np.asarray, columns))
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    match name:
        case "topic":
            runs = groupby(zip(pieces, rows, strict=True), lambda run: run[0].partition.topic)
            return [repeated(topic, sum(count for _, count in run)) for topic, run in runs]
        case "partition":
            return [numbers(np.repeat(np.array([piece.partition.partition for piece in pieces], np.int32), rows))]
        case "timestampType":
            return [numbers(np.repeat(np.array([int(piece.timestamp_type) for piece in pieces], np.int32), rows))]
        case "offset":
            return [numbers(joined(piece.columns.offsets for piece in pieces))]
        case "timestamp":
            times = joined(piece.columns.timestamps for piece in pieces)
            return [numbers(times * 1000, pa.timestamp("us", tz="UTC"))]
        case "key" | "value":
            return strings_to_arrow([piece.columns for piece in pieces], name)
        case _:
            return [column_to_arrow(piece.columns, name) for piece in pieces]


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
