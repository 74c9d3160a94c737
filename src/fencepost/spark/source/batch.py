"""`spark.read.format("fencepost")`: a batch read, like that of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fencepost.errors import ConfigurationError
from fencepost.spark.kafka_settings import log_notes
from fencepost.spark.source.ranges import LATEST
from fencepost.spark.source.shared import RangePartition, Source

__all__ = ["BatchReader"]


class BatchReader(Source, DataSourceReader):
    """The reader of the records between a start and an end offset of each partition."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, stream=False)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one or more tasks for each partition, from startingOffsets (earliest) to endingOffsets (latest)."""
        log_notes()
        self._link().reach()
        options = self._options
        start = self._resolved(options.starting, may_be_late=options.unmatched_start_is_latest)
        topic_ids = dict(self._topic_ids)
        to_the_end = options.committed and options.ending.text.lower() == "latest"
        high = self._found(dict.fromkeys(start, LATEST), committed=False) if to_the_end else {}
        end = self._resolved(options.ending, may_be_late=True)
        self._warn_of_hidden_records(end, high)
        for partition in sorted(start):
            if start[partition] > end.get(partition, start[partition]):
                raise ConfigurationError(
                    f"{partition.topic}-{partition.partition}: {options.starting.option} is {start[partition]}, "
                    f"{options.ending.option} is {end[partition]}"
                )
        return [RangePartition(piece) for piece in self._ranges(start, self._within(end), topic_ids)]
