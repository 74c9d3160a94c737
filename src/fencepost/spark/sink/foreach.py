"""The other door to the sink: a function for `foreachBatch`, where the frame may be written elsewhere too.

    query = frame.writeStream.foreachBatch(exactly_once(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "sink.id": "out"})).start()

It runs in the driver's own Python process, which opens, decides and completes; the tasks write. A batch is known by its
query and number: when Spark replays it, it is skipped if it was decided, and a sink takes only one frame of it.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.errors import ConfigurationError, KafkaError, UsageError
from fencepost.spark.options import SinkOptions
from fencepost.spark.sink.writer import QUERY_ID, SinkWriter, TaskMessage, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["exactly_once", "query_id_of"]

log = logging.getLogger("fencepost.spark")

RUN_ID: Final = "sql.streaming.runId"
JOB_GROUP: Final = "spark.jobGroup.id"  # Spark gives it the run's id, too


class _Batch(NamedTuple):
    """One batch of one run of a query; a restarted query is another run, and may write the same batch again."""

    query_id: str
    run_id: str
    batch_id: int


class _Written:
    """The batch that each sink of this process wrote last, or is writing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], _Batch] = {}
        self._lock = threading.Lock()

    @contextmanager
    def once(self, servers: str, sink: str, batch: _Batch) -> Iterator[None]:
        """Raises UsageError when the sink has taken a frame of this batch already. A write that failed is forgotten."""
        key = (servers, sink, batch.query_id)
        with self._lock:
            if self._last.get(key) == batch:
                raise UsageError(
                    f"sink {sink!r} was given a second frame of batch {batch.batch_id}: a sink takes one frame of each "
                    "batch, and would skip this frame as written before; give each exactly_once() a sink.id of its own"
                )
            self._last[key] = batch
        try:
            yield
        except BaseException:
            with self._lock:
                if self._last.get(key) == batch:  # another run may have begun a batch since
                    del self._last[key]
            raise


_written = _Written()


def exactly_once(options: Mapping[str, str], *, query_id: str | None = None) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that writes each batch once. `options` are those of the sink.

    `query_id`: where Spark does not tell it (Spark Connect), a name that stays over restarts with the same checkpoint.
    Raises ConfigurationError here; from the function what plan.py raises, and UsageError for a second frame of a batch.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    parsed = SinkOptions.parse(lowered)
    if not parsed.exactly_once:
        raise ConfigurationError("exactly_once() and delivery=at-least-once exclude each other")
    sink = parsed.given_id or parsed.checkpoint or parsed.query_name or ""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        _write_once(lowered, sink, query_id, frame, batch_id)

    return write_batch


# Not inside the function above: Spark Connect pickles that function with all that it names, and _written stays here.
def _write_once(options: dict[str, str], sink: str, query_id: str | None, frame: DataFrame, batch_id: int) -> None:
    batch = _Batch(query_id or query_id_of(frame), _run_id(frame), batch_id)
    with _written.once(options["kafka.bootstrap.servers"], sink, batch):
        _write_batch(options, batch.query_id, frame, batch_id)


def query_id_of(frame: DataFrame) -> str:
    """The id of the query whose batch it is. Raises ConfigurationError where Spark does not tell it."""
    found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise ConfigurationError("Spark does not tell the query's id here; give query_id")
    return found


def _run_id(frame: DataFrame) -> str:
    """Another id whenever the query is started, from whatever says so."""
    from pyspark.sql.utils import is_remote

    session: Any = frame.sparkSession
    if is_remote():
        return str(session.session_id)  # the function has a process of its own in every run
    context = session.sparkContext
    return str(context.getLocalProperty(RUN_ID) or context.getLocalProperty(JOB_GROUP))


def _write_batch(options: dict[str, str], query_id: str, frame: DataFrame, batch_id: int) -> None:
    writer = SinkWriter(options, columns_of(frame.schema), batch=(query_id, batch_id))
    writer.open()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        message = writer.write_partition(batches, query_id, batch_id)
        yield pa.record_batch({"message": pa.array([pickle.dumps(message)], pa.binary())})

    messages: list[TaskMessage] = []
    try:
        rows: list[Any] = frame.mapInArrow(write, "message binary").collect()
        messages = [pickle.loads(bytes(row.message)) for row in rows]
        writer.commit_messages(messages, batch_id)
    except BaseException:  # also when its query is stopped: readers are not to wait for what is left open
        try:
            writer.abort_messages(messages)
        except KafkaError:
            log.exception("batch %d was not committed, and could not be aborted: the next run does it", batch_id)
        raise
