"""Columns that a pipeline's transform may return for the records of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fencepost.errors import ConfigurationError
from fencepost.spark.pipeline import Pipeline
from fencepost.spark.source.ranges import Range

RECORDS = pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"]), "topic": pa.array(["in"])})
RANGES = pa.RecordBatch.from_pylist([Range("in", 0, 0, 1, "")._asdict()])


class Reader:
    def records(self, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield RECORDS.cast(schema)


def batches_of(said: list[str], of_rows: list[str]) -> list[pa.RecordBatch]:
    """Run a transform that returns other columns for rows than for an empty batch, where they are `said`."""

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(of_rows if rows.num_rows else said)

    reader: Any = Reader()
    return list(Pipeline(reader, RECORDS.schema, transform).rows(iter([RANGES])))


def test_columns_may_come_in_another_order() -> None:
    (batch,) = batches_of(["key", "value"], ["value", "key"])
    assert batch.to_pylist() == [{"key": b"k", "value": b"v"}]


@pytest.mark.parametrize(("said", "of_rows"), [(["key", "value"], ["value"]), (["value"], ["key", "value"])])
def test_columns_that_are_missing_or_more_are_refused(said: list[str], of_rows: list[str]) -> None:
    came, before = (", ".join(f"{name} binary" for name in names) for names in (of_rows, said))
    with pytest.raises(ConfigurationError, match=f"made the columns {came}, and of a batch without rows {before}:"):
        batches_of(said, of_rows)
