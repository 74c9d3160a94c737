"""The columns of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.errors import ConfigurationError
from fencepost.spark.options import flag

__all__ = ["RANGE_SCHEMA", "source_schema"]

_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
RANGE_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("topic_id", StringType()),
    ]
)
"""The columns of a Range. A reader with this schema returns the ranges of its tasks instead of their records."""


def source_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of the option `columns`, in its order. Raises ConfigurationError.

    Without that option: all columns, with `headers` only if includeHeaders is set. The option exists because PySpark
    does not tell a Python source which columns a query uses.
    """
    headers = StructField("headers", ArrayType(_HEADER))
    columns = options.get("columns")
    if columns is None:
        return StructType([*_COLUMNS, *([headers] if flag(options, "includeHeaders", False) else [])])
    known = {field.name.lower(): field for field in (*_COLUMNS, headers)}
    names = [name.strip() for name in columns.split(",")]
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        every = ", ".join(field.name for field in known.values())
        raise ConfigurationError(f"option columns={columns!r}: there is no column {unknown[0]!r}, only {every}")
    chosen = [known[name.lower()] for name in names]
    if len(set(map(id, chosen))) < len(chosen):
        raise ConfigurationError(f"option columns={columns!r}: a column is named twice")
    return StructType(chosen)
