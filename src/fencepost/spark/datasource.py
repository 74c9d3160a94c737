"""The data source that Spark finds under the name "fencepost". Importing it imports neither pyarrow nor a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from fencepost.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["FencepostDataSource", "register"]

_WHAT: Final = 'format("fencepost")'


class FencepostDataSource(DataSource):
    """Kafka as source and, exactly once, as sink. See source.py and sink.py for options and columns."""

    @classmethod
    def name(cls) -> str:
        """As in format("fencepost")."""
        return "fencepost"

    def schema(self) -> StructType:
        """Return the source's columns. Raises ConfigurationError for options that are wrong in any case."""
        require("spark", _WHAT)
        from fencepost.spark.source.columns import source_schema
        from fencepost.spark.source.options import check

        check(self.options)
        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        require("spark", _WHAT)
        from fencepost.spark.source.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """Return the reader of `spark.readStream`."""
        require("spark", _WHAT)
        from fencepost.spark.source.reader import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """df.write; a log cannot be overwritten."""
        require("spark", _WHAT)
        from fencepost.errors import ConfigurationError
        from fencepost.spark.sink.writer import BatchWriter, columns_of

        if overwrite:
            raise ConfigurationError('a topic cannot be overwritten; use mode("append")')
        return BatchWriter(self.options, columns_of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """df.writeStream. Called in two processes per micro-batch; it opens nothing."""
        require("spark", _WHAT)
        from fencepost.spark.sink.writer import StreamWriter, columns_of

        return StreamWriter(self.options, columns_of(schema))


def register(spark: SparkSession) -> None:
    """Make `format("fencepost")` known to a session.

    Spark finds an installed package by itself. Call this function if the package came by `--py-files` or `addPyFile`,
    if a notebook has set the path, or if the session was there first. The Python of the driver and of the executors has
    to be able to import the package.

    Call it also in each further thread that starts a query or saves a frame. Spark looks for a sink in the active
    session of the thread, and a new thread has no active session. A repeated call changes nothing.
    """
    spark.dataSource.register(FencepostDataSource)
    spark.createDataFrame([], "none int")  # makes the session the active one of this thread
