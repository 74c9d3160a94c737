"""What PySpark has from 4.2 on, and what stands in for it on 4.1, where a stream has no admission control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

__all__ = ["ADMISSION_CONTROL", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "ReadMinRows", "SupportsAvailableNow"]

if TYPE_CHECKING:
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
            """How much a batch may take."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """At most so many rows."""

            max_rows: int

        @dataclass
        class ReadMinRows(ReadLimit):
            """At least so many rows."""

            min_rows: int

        class SupportsAvailableNow:
            """PySpark 4.1 reads everything that is there in one batch instead."""
