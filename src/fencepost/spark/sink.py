"""`df.writeStream.format("fencepost")` and `df.write.format("fencepost")`: glue between PySpark and plan.py.

How PySpark calls a Python sink (observed on 4.3.0): for every micro-batch the writer is made twice, in two processes on
the driver's host. In the planning process it is pickled into the tasks; there, once, the sink is opened. The other one
only ever commits or aborts, knows nothing but the tasks' messages, and may be a zombie of a dead run: it never claims.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fencepost.errors import UsageError
from fencepost.spark import plan
from fencepost.spark.decision import Pair
from fencepost.spark.options import SinkOptions
from fencepost.spark.rows import (
    CHUNK_BYTES_MOST,
    CHUNK_BYTES_PER_PARTITION,
    Identity,
    RowSource,
    RowWriter,
    Sender,
    check_columns,
    chunks,
)
from fencepost.spark.runner import SinkLink, link_to, sink_link

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_QUERY", "BatchWriter", "SinkWriter", "StreamWriter", "TaskMessage", "columns_of"]

log = logging.getLogger("fencepost.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
BATCH_QUERY: Final = "batch"  # batch writes of a sink are one query whose batches count on


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver; None when rows were written at least once, without a transaction."""

    message: plan.Message | None


class SinkWriter:
    """What all doors to the sink share. Pickling it opens the sink, once; an unpickled one has been opened."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> None:
        self._options = dict(options)
        self._columns = list(columns)
        self._parsed = SinkOptions.parse(self._options)
        check_columns(self._columns, self._parsed.topic)
        self._opened: plan.Opened | None = None

    def _link(self) -> SinkLink:
        return sink_link(dict(self._parsed.client.common), self._parsed.steps)

    def open(self) -> None:
        """Steps 1-5, if that was not done yet. Claims the sink: only ever where a batch is planned."""
        if self._parsed.topic is not None:
            link_to(dict(self._parsed.client.common)).check_topic(self._parsed.topic)
        if self._opened is None and self._parsed.exactly_once:
            self._opened = self._link().open(self._parsed.sink, self._parsed.required)

    def __reduce__(self) -> tuple[Any, ...]:
        self.open()
        return _restored, (type(self), self._options, self._columns, self._opened)

    def write_partition(
        self, batches: Iterator[pa.RecordBatch], query_id: str, batch_id: int, task: int
    ) -> TaskMessage:
        """One task attempt: steps 6-7. `task` is the partition's number."""
        rows = RowSource(batches)
        if not self._parsed.exactly_once:
            if rows.has_rows():
                self._write_rows(rows, Identity(None, self._idempotent_pair()), task)
            return TaskMessage(None)
        if self._opened is None:
            raise UsageError("the writer was not opened before its tasks: it did not come through pickling")
        steps = plan.write_task(self._opened, query_id, batch_id)

        def write_rows(step: Any) -> None:
            self._write_rows(rows, Identity(step.transactional_id, step.pair), task)

        own = {
            plan.HasRows: lambda _: rows.has_rows(),
            plan.Drain: lambda _: rows.drain(),
            plan.WriteRows: write_rows,
        }
        return TaskMessage(self._link().run_task(steps, own))

    def _idempotent_pair(self) -> Pair:
        link = link_to(dict(self._parsed.client.common))
        result = link.io.run(link.admin.init_producer_id(None))
        return Pair(result.producer_id, result.producer_epoch)

    def _write_rows(self, rows: RowSource, identity: Identity, task: int) -> None:
        parsed = self._parsed
        link = link_to(dict(parsed.client.common))
        sender = Sender(link.admin.cluster, identity.transactional_id, int(parsed.client.value("delivery_timeout_ms")))
        writer = RowWriter(
            identity,
            topic=parsed.topic,
            max_batch_bytes=int(parsed.client.value("max_request_size")),
            compression=str(parsed.client.value("compression_type")),
            first_turn=task,
            now_ms=time.time_ns() // 1_000_000,
        )
        partitions: dict[str, int] = {}
        if parsed.topic is not None:
            partitions = link.io.run(sender.partitions([parsed.topic]))
        size = min(CHUNK_BYTES_MOST, CHUNK_BYTES_PER_PARTITION * max(sum(partitions.values()), 1))
        for chunk in chunks(rows, size):
            if parsed.topic is None:
                partitions = link.io.run(sender.partitions(writer.topics_of(chunk)))
            link.io.run(sender.submit(list(writer.seal(chunk, partitions))))
        link.io.run(sender.flush())

    def commit_messages(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Steps 8-10."""
        told = _messages(messages)
        if self._parsed.exactly_once and self._link().run(plan.commit_batch(self._parsed.sink, batch_id, told)):
            log.info("sink %r: batch %d is committed", self._parsed.sink, batch_id)

    def abort_messages(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Step 11."""
        if self._parsed.exactly_once:
            outcome = self._link().run(plan.abort_batch(self._parsed.sink, _messages(messages)))
            log.info("sink %r: %s", self._parsed.sink, outcome.value)


def _messages(messages: Sequence[WriterCommitMessage | None]) -> list[plan.Message | None]:
    return [one.message if isinstance(one, TaskMessage) else None for one in messages]


def _restored(
    kind: type[SinkWriter], options: dict[str, str], columns: list[tuple[str, str]], opened: plan.Opened | None
) -> SinkWriter:
    writer = kind(options, columns)
    writer._opened = opened
    return writer


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """(name, Spark SQL type) of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: the partition's rows, in a transaction of their own that is left prepared."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if context is None or query_id is None or batch_id is None:
            raise UsageError(f"the task does not know its query and batch ({QUERY_ID}, {BATCH_ID})")
        return self.write_partition(iterator, query_id, int(batch_id), context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """In Spark's commit worker: decide the batch, then complete its transactions."""
        self.commit_messages(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """In Spark's commit worker: abort what can never be decided any more."""
        self.abort_messages(messages)


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """Writes one data frame. Its number counts on from the sink's last batch write."""

    def _batch_id(self) -> int:
        decided = dict(self._opened.decided) if self._opened is not None else {}
        return decided.get(BATCH_QUERY, -1) + 1

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: see StreamWriter.write."""
        context = TaskContext.get()
        return self.write_partition(
            iterator, BATCH_QUERY, self._batch_id(), 0 if context is None else context.partitionId()
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver's host: decide, then complete."""
        self.commit_messages(messages, self._batch_id())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver's host: see StreamWriter.abort."""
        self.abort_messages(messages)
