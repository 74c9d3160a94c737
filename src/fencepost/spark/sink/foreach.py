"""The sink as a function for `foreachBatch`, whose caller can also write the frame to other outputs.

    query = frame.writeStream.foreachBatch(exactly_once(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "sink.id": "out"})).start()

The function runs in the driver's Python process, which opens the sink, decides and completes the batch. The tasks write
the rows. Query id and number identify a batch: a replayed batch is skipped if it was decided, and a sink accepts only
one frame of each batch.
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
JOB_GROUP: Final = "spark.jobGroup.id"  # Spark sets it to the run's id too


class _Batch(NamedTuple):
    """One batch of one run of a query. A restarted query is another run, which may write the same batch again."""

    query_id: str
    run_id: str
    batch_id: int


class _Written:
    """For each sink and query, the batch that this process has written last or is writing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], _Batch] = {}
        self._lock = threading.Lock()

    @contextmanager
    def once(self, servers: str, sink: str, batch: _Batch) -> Iterator[None]:
        """Raise UsageError if the sink has accepted a frame of this batch. Forgets the batch if the block fails."""
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
                if self._last.get(key) == batch:  # another run may have begun a batch since then
                    del self._last[key]
            raise


_written = _Written()


def exactly_once(options: Mapping[str, str], *, query_id: str | None = None) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes each batch exactly once.

    The function raises the errors of plan.py, and UsageError for a second frame of a batch.

    Args:
        options: Options of the sink.
        query_id: A name of the query that stays the same over restarts with the same checkpoint. Needed under Spark
            Connect, which does not provide the query's id.

    Raises:
        ConfigurationError: An option is wrong.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    parsed = SinkOptions.parse(lowered)
    if not parsed.exactly_once:
        raise ConfigurationError("exactly_once() and delivery=at-least-once exclude each other")
    sink = parsed.given_id or parsed.checkpoint or parsed.query_name or ""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        _write_once(lowered, sink, query_id, frame, batch_id)

    return write_batch


# A module-level function: Spark Connect pickles `write_batch` with everything it refers to, and the lock in _written
# cannot be pickled.
def _write_once(options: dict[str, str], sink: str, query_id: str | None, frame: DataFrame, batch_id: int) -> None:
    batch = _Batch(query_id or query_id_of(frame), _run_id(frame), batch_id)
    with _written.once(options["kafka.bootstrap.servers"], sink, batch):
        _write_batch(options, batch.query_id, frame, batch_id)


def query_id_of(frame: DataFrame) -> str:
    """Return the id of the query whose batch the frame is. Raises ConfigurationError if Spark does not provide it."""
    found = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise ConfigurationError("Spark does not tell the query's id here; give query_id")
    return found


def _run_id(frame: DataFrame) -> str:
    """Return an id that differs between the runs of a query."""
    from pyspark.sql.utils import is_remote

    session: Any = frame.sparkSession
    if is_remote():
        return str(session.session_id)  # each run calls the function in a new process with a new session
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
    except BaseException:  # also if the query is stopped, so that readers do not wait for open transactions
        try:
            writer.abort_messages(messages)
        except KafkaError:
            log.exception("batch %d was not committed, and could not be aborted: the next run does it", batch_id)
        raise
