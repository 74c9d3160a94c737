"""Stateless pipelines from topic to topic whose records stay in Arrow. The JVM receives only offset ranges.

The rows of such a query are offset ranges, as the source plans them. Each task that writes gets some of them. It reads,
transforms and writes their records in one Python process, in the sink's transaction. Spark and the sink's protocol
treat it like any other query: planning, checkpoint, retries, speculation and decisions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from fencepost.errors import ConfigurationError
from fencepost.spark.compat import arrow_schema
from fencepost.spark.datasource import FencepostDataSource
from fencepost.spark.sink.rows import check_columns
from fencepost.spark.sink.runner import unique_bytes
from fencepost.spark.sink.writer import BatchWriter, StreamWriter
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.columns import RANGE_SCHEMA, source_schema
from fencepost.spark.source.ranges import Range
from fencepost.spark.source.reader import (
    StreamReader,
    stream_reader,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Pipeline", "Transform", "arrow_batch", "arrow_pipeline"]

Options = Mapping[str, str | int | bool]
Transform = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch] | None]

MakeReader = Callable[[Mapping[str, str], StructType], StreamReader | BatchReader]

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_MAY_RETURN: Final = "a RecordBatch, a Table, an iterable of RecordBatches, or None"


def arrow_pipeline(spark: SparkSession, *, source: Options, transform: Transform, sink: Options) -> DataStreamWriter:
    """Create a streaming query that is ready for `start()`. Its trigger and name can be set before.

    Args:
        spark: The session.
        source: Options of `format("fencepost")` as source.
        transform: A function from an Arrow batch with the source's columns to Arrow batches with the sink's columns:
            one, several, or None. It gets the records of a task in their order. This function calls it once with a
            batch without rows to find its columns.
        sink: Options of `format("fencepost")` as sink, with `checkpointLocation`.

    Raises:
        ConfigurationError: A column or an option of the source is refused, or `transform` cannot be pickled.
        Exception: Any error that `transform` raises for the batch without rows.
    """
    reading, writing = _texts(source), _texts(sink)
    name = _register(spark, Pipeline.of(stream_reader, reading, transform), reading, writing)
    return spark.readStream.format(name).options(**reading).load().writeStream.format(name).options(**writing)


def arrow_batch(spark: SparkSession, *, source: Options, transform: Transform, sink: Options) -> DataFrameWriter:
    """Create a batch write of the records in the topics that is ready for `save()`. Arguments as `arrow_pipeline`."""
    reading, writing = _texts(source), _texts(sink)
    name = _register(spark, Pipeline.of(BatchReader, reading, transform), reading, writing)
    return spark.read.format(name).options(**reading).load().write.format(name).mode("append").options(**writing)


@dataclass
class Pipeline:
    """The part of a pipeline that a task runs on its offset ranges. Picklable."""

    reader: StreamReader | BatchReader
    source: pa.Schema
    """The columns of the batches that `transform` gets."""
    transform: Transform
    schema: pa.Schema = field(init=False)
    """The columns of the batches that `transform` returns."""

    def __post_init__(self) -> None:
        batch = next(_batches(self.transform(pa.RecordBatch.from_pylist([], self.source))), None)
        if batch is None:
            raise ConfigurationError(
                "the transform returned no batch for a batch without rows: let it return a batch without rows, "
                "which has its columns"
            )
        self.schema = batch.schema.remove_metadata()

    @classmethod
    def of(cls, reader: MakeReader, options: Mapping[str, str], transform: Transform) -> Pipeline:
        """Make a pipeline with a new reader. Raises ConfigurationError, and any error of `transform`."""
        lower = {name.lower(): value for name, value in options.items()}  # as Spark hands them over
        return cls(reader(lower, RANGE_SCHEMA), arrow_schema(source_schema(lower)), transform)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The name and type of each column that `transform` returns: Spark SQL's name of the type, or Arrow's."""
        return [(each.name, _sql_type(each.type)) for each in self.schema]

    def rows(self, ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read and transform the records of offset ranges (rows of RANGE_SCHEMA). Raises ConfigurationError."""
        for batch in ranges:
            for row in batch.to_pylist():
                for records in self.reader.records(Range(**row), self.source):
                    yield from map(self._of_schema, _batches(self.transform(records)))

    def _of_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        wrong = ConfigurationError(
            f"the transform made the columns {_describe_schema(batch.schema)}, and of a batch without rows "
            f"{_describe_schema(self.schema)}: they have to be the same"
        )
        names = self.schema.names
        if sorted(batch.schema.names) != sorted(names):
            raise wrong
        try:
            return batch.select(names).cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise wrong from error


class PipelineDataSource(FencepostDataSource):
    """Source and sink of a pipeline. Each pipeline has its own subclass, which Spark pickles with the transform."""

    pipeline: Pipeline
    reading: Mapping[str, str]
    writing: Mapping[str, str]

    def schema(self) -> StructType:
        """Return the columns of an offset range, because each row is a range."""
        self._check(self.reading)
        return RANGE_SCHEMA

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of `df.write`."""
        self._check(self.writing)
        return BatchWriter(self.options, self.pipeline.columns, self.pipeline.rows)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - PySpark's name
        """Return the writer of `df.writeStream`."""
        self._check(self.writing)
        return StreamWriter(self.options, self.pipeline.columns, self.pipeline.rows)

    def _check(self, own: Mapping[str, str]) -> None:
        """Raise ConfigurationError if the options differ from the pipeline's, which Spark finds only by its name."""
        given = {name.lower(): value for name, value in self.options.items()}
        other = sorted(name for name, value in own.items() if given.get(name.lower()) != value)
        if other:
            raise ConfigurationError(
                f"{self.name()} was made with other values of {', '.join(other)} than it is used with: another "
                "pipeline was registered under its name; make this pipeline again"
            )


def _register(spark: SparkSession, new_pipeline: Pipeline, source: Mapping[str, str], sink: Mapping[str, str]) -> str:
    """Register the pipeline's data source, and return its format name. Raises ConfigurationError.

    Spark looks the name up when it loads the source and again when it starts the query. The name is unique among all
    processes: under Spark Connect several clients can share a session, and its data sources outlive the clients.
    """
    check_columns(new_pipeline.columns, sink.get("topic"))
    _check_travels(new_pipeline.transform)
    format_name = f"fencepost-pipeline-{unique_bytes().hex()}"

    class Registered(PipelineDataSource):
        pipeline, reading, writing = new_pipeline, source, sink

        @classmethod
        def name(cls) -> str:
            return format_name

    spark.dataSource.register(Registered)
    return format_name


def _check_travels(transform: Transform) -> None:
    """Raise ConfigurationError if the transform cannot be pickled. Spark's own error names neither cause nor remedy."""
    try:
        cloudpickle.dumps(transform)  # type: ignore[no-untyped-call]
    except Exception as error:  # objects that the transform refers to can raise any error
        raise ConfigurationError(
            f"the transform cannot be sent to Spark's Python workers: {error}; what it uses of that kind (a lock, a "
            "connection, the session) has to be made within it"
        ) from error


def _texts(options: Options) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def _batches(returned: object) -> Iterator[pa.RecordBatch]:
    """Yield the batches that a transform returned. Raises ConfigurationError."""
    if returned is None:
        return
    if isinstance(returned, pa.RecordBatch):
        yield returned
        return
    if isinstance(returned, pa.Table):
        yield from returned.to_batches() or [pa.RecordBatch.from_pylist([], returned.schema)]
        return
    if not isinstance(returned, Iterable) or isinstance(returned, (str, bytes, Mapping)):
        raise ConfigurationError(f"the transform returned a {type(returned).__name__}: {_MAY_RETURN}")
    for batch in returned:
        if not isinstance(batch, pa.RecordBatch):
            raise ConfigurationError(f"the transform returned an iterable with a {type(batch).__name__}: {_MAY_RETURN}")
        yield batch


def _sql_type(kind: pa.DataType) -> str:
    """Return Spark SQL's name of the type if the sink accepts the type, else Arrow's name."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_int32(kind):
        return "int"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return "array<struct<key:string,value:binary>>" if kind == _HEADERS else str(kind)


def _describe_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema) or "none"
