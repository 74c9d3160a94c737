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
"""A reader of this schema gives each task its Range, not the records: whoever gets that reads them himself."""


def source_schema(options: Mapping[str, str]) -> StructType:
    """The option `columns`, in its order; else all, with `headers` when includeHeaders is set.

    PySpark tells a Python source not which columns a query uses. Raises ConfigurationError.
    """
    headers = StructField("headers", ArrayType(_HEADER))
    asked = options.get("columns")
    if asked is None:
        return StructType([*_COLUMNS, *([headers] if flag(options, "includeHeaders", False) else [])])
    known = {field.name.lower(): field for field in (*_COLUMNS, headers)}
    names = [name.strip() for name in asked.split(",")]
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        every = ", ".join(field.name for field in known.values())
        raise ConfigurationError(f"option columns={asked!r}: there is no column {unknown[0]!r}, only {every}")
    chosen = [known[name.lower()] for name in names]
    if len(set(map(id, chosen))) < len(chosen):
        raise ConfigurationError(f"option columns={asked!r}: a column is named twice")
    return StructType(chosen)
