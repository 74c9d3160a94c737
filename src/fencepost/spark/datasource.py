"""The data source that Spark finds under the name "fencepost". Its import loads neither pyarrow nor a client."""

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
    """Kafka as source and as exactly-once sink. See source/options.py and options.py for their options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format("fencepost")`."""
        return "fencepost"

    def schema(self) -> StructType:
        """Return the source's columns. Raises ConfigurationError for options that are wrong on any cluster."""
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
        """Return the writer of `df.write`. Raises ConfigurationError for mode "overwrite"."""
        require("spark", _WHAT)
        from fencepost.errors import ConfigurationError
        from fencepost.spark.sink.writer import BatchWriter, columns_of

        if overwrite:
            raise ConfigurationError('a topic cannot be overwritten; use mode("append")')
        return BatchWriter(self.options, columns_of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of `df.writeStream`. Spark calls this in two processes per batch, so it opens nothing."""
        require("spark", _WHAT)
        from fencepost.spark.sink.writer import StreamWriter, columns_of

        return StreamWriter(self.options, columns_of(schema))


def register(spark: SparkSession) -> None:
    """Make `format("fencepost")` known to a session.

    Spark finds an installed package by itself. Call this function if the package came by `--py-files` or `addPyFile`,
    if a notebook has set the path, or if the package was installed after the session started. The Python of the driver
    and of the executors must be able to import the package.

    Call it also in each further thread that starts a query or saves a frame. Spark looks for a sink in the active
    session of the thread, and a new thread has no active session. A repeated call changes nothing.
    """
    spark.dataSource.register(FencepostDataSource)
    spark.createDataFrame([], "none int")  # makes the session the active one of this thread
