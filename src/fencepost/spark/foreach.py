"""The other door to the sink: a function for `foreachBatch`, where the frame may be written elsewhere too.

    query = frame.writeStream.foreachBatch(exactly_once(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "sink.id": "out"})).start()

It runs in the driver's own Python process, which opens, decides and completes; the tasks write. Spark replays a batch
with the same number after a failure, and what was decided is then skipped, as with format("fencepost").
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from fencepost.errors import ConfigurationError, KafkaError
from fencepost.spark.options import SinkOptions
from fencepost.spark.sink import QUERY_ID, SinkWriter, TaskMessage, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["exactly_once"]

log = logging.getLogger("fencepost.spark")


def exactly_once(options: Mapping[str, str], *, query_id: str | None = None) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that writes each batch once. `options` are those of the sink.

    `query_id`: where Spark does not tell it (Spark Connect), a name that stays over restarts with the same checkpoint.
    Raises ConfigurationError here, and from the function what plan.py raises.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    if not SinkOptions.parse(lowered).exactly_once:
        raise ConfigurationError("exactly_once() and delivery=at-least-once exclude each other")

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        _write_batch(lowered, query_id or _query_id(frame), frame, batch_id)

    return write_batch


def _query_id(frame: DataFrame) -> str:
    found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise ConfigurationError("Spark does not tell the query's id here; give query_id")
    return found


def _write_batch(options: dict[str, str], query_id: str, frame: DataFrame, batch_id: int) -> None:
    writer = SinkWriter(options, columns_of(frame.schema))
    writer.open()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        message = writer.write_partition(batches, query_id, batch_id, partition)
        yield pa.record_batch({"message": pa.array([pickle.dumps(message)], pa.binary())})

    rows: list[Any] = frame.mapInArrow(write, "message binary").collect()
    messages: list[TaskMessage] = [pickle.loads(bytes(row.message)) for row in rows]
    try:
        writer.commit_messages(messages, batch_id)
    except KafkaError:
        try:
            writer.abort_messages(messages)
        except KafkaError:
            log.exception("batch %d was not committed, and could not be aborted: the next run does it", batch_id)
        raise
