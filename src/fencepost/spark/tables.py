"""Fetched columns as rows of Spark's Kafka source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.errors import ConfigurationError
from fencepost.protocol.batch import Buffer, iter_batches
from fencepost.protocol.columns import Columns

__all__ = ["to_rows"]


def to_rows(columns: Columns, fetched: Buffer, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch with exactly the fields of `schema`. `fetched`: the batches that `columns` was decoded from.

    Raises ConfigurationError for a field the source does not have.
    """
    rows = len(columns)
    decoded = columns.to_arrow(headers="headers" in schema.names)
    arrays = []
    for field in schema:
        made: Any
        if field.name in ("key", "value", "offset", "headers"):
            made = decoded.column(field.name)
        elif field.name == "topic":
            made = pa.repeat(pa.scalar(topic, pa.string()), rows)
        elif field.name == "partition":
            made = pa.repeat(pa.scalar(partition, pa.int32()), rows)
        elif field.name == "timestamp":
            # -1 is "no timestamp"; Spark's own source shows it as it is, one millisecond before 1970.
            made = decoded.column("timestamp").cast(pa.timestamp("ms", tz="UTC"))
        elif field.name == "timestampType":
            made = _timestamp_types(columns, fetched)
        else:
            raise ConfigurationError(f"the source has no column {field.name!r}")
        arrays.append(made if made.type == field.type else made.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timestamp_types(columns: Columns, fetched: Buffer) -> pa.Array:
    """0 where the producer set the timestamp, 1 where the broker did; it is a property of each batch."""
    starts, kinds = [], []
    for header, _ in iter_batches(fetched, allow_partial=True):
        starts.append(header.base_offset)
        kinds.append(1 if header.timestamp_type == "log_append_time" else 0)
    if len(set(kinds)) == 1:
        return pa.repeat(pa.scalar(kinds[0], pa.int32()), len(columns))
    at = np.searchsorted(np.array(starts), columns.offsets, side="right") - 1
    return pa.array(np.array(kinds, np.int32)[at])
