"""Fetched records, or the range they are to come from, as rows with exactly the fields that Spark expects."""

from __future__ import annotations

import pyarrow as pa

from fencepost.client.records import Fetched, to_arrow
from fencepost.errors import ConfigurationError
from fencepost.spark.source.ranges import Range

__all__ = ["range_row", "to_rows"]


def range_row(wanted: Range, schema: pa.Schema) -> pa.RecordBatch:
    """The range as a row: columns are named as its fields."""
    return pa.RecordBatch.from_pylist([wanted._asdict()], schema)


def to_rows(fetched: Fetched, schema: pa.Schema) -> pa.RecordBatch:
    """One Arrow batch of `schema`. Raises ConfigurationError for a field the source does not have."""
    found = to_arrow(fetched, headers="headers" in schema.names)
    unknown = [name for name in schema.names if name not in found.schema.names]
    if unknown:
        raise ConfigurationError(f"the source has no column {unknown[0]!r}")
    arrays = [_as(found.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
