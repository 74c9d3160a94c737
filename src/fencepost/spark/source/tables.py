"""Convert fetched records, or an offset range, to rows with exactly the fields that Spark expects."""

from __future__ import annotations

import pyarrow as pa

from fencepost.client.records import Fetched, chosen_columns
from fencepost.errors import ConfigurationError
from fencepost.spark.source.ranges import Range

__all__ = ["range_row", "to_rows"]


def range_row(wanted: Range, schema: pa.Schema) -> pa.RecordBatch:
    """Return an Arrow batch with one row, the range, whose columns have the names of its fields."""
    return pa.RecordBatch.from_pylist([wanted._asdict()], schema)


def to_rows(fetched: Fetched, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records as one Arrow batch of `schema`. Raises ConfigurationError for an unknown column."""
    try:
        return chosen_columns(fetched, schema)
    except KeyError as error:
        raise ConfigurationError(f"the source has no column {error.args[0]!r}") from error
