"""Classes of PySpark 4.2 or newer, with replacements for 4.1, where a stream has no admission control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "ADMISSION_CONTROL",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsAvailableNow",
    "arrow_schema",
]

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsAvailableNow

    ADMISSION_CONTROL: Final = True
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsAvailableNow

        ADMISSION_CONTROL = True
    except ModuleNotFoundError:
        ADMISSION_CONTROL = False

        class ReadLimit:
            """A limit on the rows of a batch."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """A limit of at most `max_rows` rows."""

            max_rows: int

        @dataclass
        class ReadMinRows(ReadLimit):
            """A limit of at least `min_rows` rows."""

            min_rows: int

        class SupportsAvailableNow:
            """A placeholder. PySpark 4.1 reads all available records in one batch instead."""


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a reader with this StructType. Timestamps are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # PySpark 4.1 uses UTC and has no such argument.
    return to_arrow_schema(schema, timezone="UTC") if ADMISSION_CONTROL else to_arrow_schema(schema)
