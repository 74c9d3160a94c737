"""`df.writeStream.format("fencepost")` and `df.write.format("fencepost")`: the adapter between PySpark and plan.py.

PySpark makes the writer twice for every micro-batch, in two processes on the driver's host (observed on 4.3.0). The
planning process pickles it for the tasks, and opens the sink once when it does so. The other process only commits or
aborts. It knows only the tasks' messages, and may be a zombie of a dead run, so it never claims the sink.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fencepost.client.producer.adopted import AdoptedProducer
from fencepost.counted import duration_words
from fencepost.errors import ConfigurationError, KafkaError, RecordRejectedError, UsageError
from fencepost.protocol.codes import ErrorCode
from fencepost.spark.errors import (
    CheckpointLostError,
    SupersededError,
    TaskTimedOutError,
    UnknownQueryError,
    shown_as_it_is,
)
from fencepost.spark.kafka_settings import log_notes, warn_once
from fencepost.spark.old_rows import OldRows
from fencepost.spark.options import SinkOptions
from fencepost.spark.sink import checkpoint, plan, plan_steps
from fencepost.spark.sink.checkpoint import SAY, SinkName, name_of
from fencepost.spark.sink.content import content_of
from fencepost.spark.sink.decision import NO_ROWS, Beginning, Content, Pair, SourceOffsets
from fencepost.spark.sink.local.claim_file import ClaimFile
from fencepost.spark.sink.rows import (
    CHUNK_BYTES_MOST,
    CHUNK_BYTES_PER_PARTITION,
    ProducerIdentity,
    RowSource,
    check_columns,
    chunks,
    largest_row,
    producer_for,
    send_rows,
)
from fencepost.spark.sink.runner import ClusterClient, SinkLink, link_to, sink_link
from fencepost.spark.sink.unfinished import elsewhere_begun

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_QUERY", "BatchWriter", "SinkWriter", "StreamWriter", "TaskMessage", "columns_of"]

log = logging.getLogger("fencepost.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
# The error codes of Produce after the end of its transaction. Fencepost's broker answers with the last, Kafka with the
# others.
_ENDED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
TIME_LIMITS: Final = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
BATCH_QUERY: Final = "batch"  # the query id of all batch writes of a sink, which are numbered one after the other

RowsOf = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass
class TaskMessage(WriterCommitMessage):
    """The message of a task to the driver.

    `message` is None if the rows were written at least once, without a transaction. `planned` is the digest of Spark's
    plan of the batch, from before its tasks ran.
    """

    message: plan_steps.TaskResult | None
    planned: int | None = None


class SinkWriter:
    """The common part of all writers of the sink. Pickling opens the sink once; an unpickled writer is open."""

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Sequence[tuple[str, str]],
        rows_of: RowsOf | None = None,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """Check the options and the columns.

        Args:
            options: The options, with lower-case keys.
            columns: Name and Spark SQL type of the rows' columns.
            rows_of: Converts the rows that Spark passes to rows with these columns.
            batch: The query's id and the batch's number, if they are known.
        """
        self._options = dict(options)
        self._columns = list(columns)
        self._rows_of = rows_of
        self._parsed = SinkOptions.parse(self._options)
        check_columns(self._columns, self._parsed.topic)
        self._opened: plan_steps.OpenedSink | None = None
        self._planned: int | None = None
        self._named: str | None = None
        self._batch = batch
        self._only: frozenset[str] | None = None  # the topics to which this batch may be written; None: any

    def _link(self) -> SinkLink:
        return sink_link(dict(self._parsed.client.common), self._parsed.steps)

    def _name(self) -> SinkName:
        parsed = self._parsed
        return name_of(parsed.given_id, parsed.checkpoint, parsed.query_name, is_copy=parsed.query_is_copy)

    @property
    def name(self) -> str:
        """The sink's name. Raises ConfigurationError if the options do not name one."""
        if self._named is None:
            found = self._name()
            if found.refusal:
                raise ConfigurationError(found.refusal)
            self._named = found.name
            if not (self._parsed.given_id or self._parsed.checkpoint):
                warn_once(
                    f"the sink is named {self._named!r}, as its query: another query of that name on the same brokers, "
                    f"of whatever application, would end this query; {SAY}"
                )
        return self._named

    def _planned_batch(self) -> tuple[str, int] | None:
        """Return the query's id and the batch's number, if they are known before the tasks run."""
        return self._batch

    def _beginning(self, query_id: str, batch_id: int) -> Beginning:
        parsed = self._parsed
        about = {
            "name": parsed.query_name,
            "topic": parsed.topic,
            "checkpoint": parsed.checkpoint,
            "host": socket.gethostname(),
        }
        return Beginning(self.name, query_id, batch_id, tuple((key, text) for key, text in about.items() if text))

    def check_begun(self, query_id: str, batch_id: int) -> None:
        """Raise UnknownQueryError unless the decision topic knows the query, or this is its first batch."""
        beginning = self._beginning(query_id, batch_id)
        self._only = self._link().check_begun(beginning, self._parsed.first_batch, others_count=self._others_count)

    def _check_topics(self, rows: pa.RecordBatch, query_id: str, batch_id: int) -> None:
        """Check the rows' own topics as `check_begun` checks the option `topic`. Raises UnknownQueryError."""
        if self._only is None or self._parsed.topic is not None:
            return
        topics = [topic for topic in rows["topic"].unique().to_pylist() if topic is not None]
        reason = elsewhere_begun(self._beginning(query_id, batch_id), topics, self._only)
        if reason is not None:
            raise UnknownQueryError(reason)

    @property
    def _others_count(self) -> bool:
        """Return True if a query with decisions in a sink of another name counts as known."""
        return self._parsed.query_is_copy

    @contextmanager
    def _naming_others(self, query_id: str | None) -> Iterator[None]:
        """Add the sink's other queries to a SupersededError."""
        try:
            yield
        except SupersededError as error:
            raise SupersededError(f"{error}. {self._link().others(self.name, query_id)}", code=error.code) from error

    def open(self) -> None:
        """Carry out steps 1-5 once. Claims the sink, so only the planning process may call it."""
        log_notes()
        if not self._parsed.exactly_once:
            name = self._name().name
            if name:
                self._link().check_finished(name)
            self._inspect_topic(name)
            return
        self._inspect_topic(self.name)
        if self._opened is None:
            self._take_over()

    def _inspect_topic(self, sink: str) -> None:
        if self._parsed.topic is not None:
            link = self._link()
            link.check_topic(self._parsed.topic)
            link.warn_of_open_transactions(self._parsed.topic, sink)

    def _take_over(self) -> None:
        link, batch, first = self._link(), self._planned_batch(), self._parsed.first_batch
        link.abilities(self.name, self._parsed.required)
        if batch is not None:
            self.check_begun(*batch)
        elif first is None:
            link.check_sink_remembered(self.name)
        with self._naming_others(None if batch is None else batch[0]):
            self._opened = link.open(self.name, self._parsed.required)
        if batch is not None:
            link.check_still_known(self._beginning(*batch), first, others_count=self._others_count)
        folder = checkpoint.local_folder(self._parsed.checkpoint)
        self._planned = None if folder is None else checkpoint.newest(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            self.open()
        except KafkaError as error:
            raise shown_as_it_is(error)  # noqa: B904 (the same error)
        given = (self._options, self._columns, self._rows_of)
        return _restored, (type(self), given, self._opened, self._planned, self._only)

    def write_partition(self, batches: Iterator[pa.RecordBatch], query_id: str, batch_id: int) -> TaskMessage:
        """Write one task attempt: steps 6-7."""
        rows = RowSource(self._checked(batches, query_id, batch_id))
        if not self._parsed.exactly_once:
            if rows.has_rows():
                self._write_rows(rows, ProducerIdentity(None, self._idempotent_pair()))
            return TaskMessage(None)
        if self._opened is None:
            raise UsageError("the writer was not opened before its tasks, because it was not pickled")
        opened = self._opened
        steps = plan.write_task(opened, query_id, batch_id)

        def write_rows(step: Any) -> Content:
            # A late attempt that Spark kills would leave a transaction open until its timeout.
            self._check_is_wanted(opened, query_id, batch_id)
            content = self._write_in_time(rows, step)
            # If the claim is still valid here, the process that decides the batch will list the transaction.
            self._check_is_wanted(opened, query_id, batch_id)
            return content

        own: dict[type, Callable[[Any], Any]] = {
            plan_steps.HasRows: lambda _: rows.has_rows(),
            plan_steps.DrainRows: lambda _: self._drain(rows),
            plan_steps.WriteRows: write_rows,
        }
        return TaskMessage(self._link().run_task(steps, own), self._planned)

    def _checked(self, batches: Iterator[pa.RecordBatch], query_id: str, batch_id: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write. Raises UnknownQueryError for a row to a topic that is not allowed."""
        for batch in batches if self._rows_of is None else self._rows_of(batches):
            self._check_topics(batch, query_id, batch_id)
            yield batch

    def _claim_file(self, sink: str) -> ClaimFile:
        return ClaimFile(os.environ, dict(self._parsed.client.common)["bootstrap.servers"], sink)

    def _check_is_wanted(self, opened: plan_steps.OpenedSink, query_id: str, batch_id: int) -> None:
        if self._link().is_over(opened.sink, opened.claim):
            raise SupersededError(
                f"batch {batch_id} of sink {opened.sink!r} has ended without this task attempt: it was decided or "
                f"aborted, or a newer run took over. {self._link().others(opened.sink, query_id)}"
            )

    def _write_in_time(self, rows: RowSource, step: Any) -> Content:
        began_s = time.monotonic()
        try:
            return self._write_rows(rows, ProducerIdentity(step.transactional_id, step.pair, step.verified))
        except KafkaError as error:
            if error.code not in _ENDED:
                raise
            age_s, timeout_ms = time.monotonic() - began_s, self._link().transaction_timeout_ms
            raise TaskTimedOutError(step.transactional_id, age_s, timeout_ms, error) from error

    def _idempotent_pair(self) -> Pair:
        link = link_to(dict(self._parsed.client.common))
        result = link.io.run(self._link().admin.init_producer_id(None))
        return Pair(result.producer_id, result.producer_epoch)

    def _drain(self, rows: RowSource) -> Content:
        return sum((content_of(batch, self._parsed.topic) for batch in rows), NO_ROWS)

    def _write_rows(self, rows: RowSource, identity: ProducerIdentity) -> Content:
        """Write the rows and return their content."""
        parsed = self._parsed
        link = link_to(dict(parsed.client.common))
        cluster = link.admin.cluster

        async def begin() -> tuple[AdoptedProducer, int]:
            partitions = 1
            if parsed.topic is not None:
                deadline_ms = cluster.runtime.now_ms() + int(parsed.client.value("delivery_timeout_ms"))
                partitions = len((await cluster.topic(parsed.topic, deadline_ms)).partitions)
            return producer_for(cluster, parsed.client.producer(), identity, link.batch_limits), partitions

        async def end(producer: AdoptedProducer) -> None:
            producer.stop()

        producer, partitions = link.io.run(begin())
        content, largest, old = NO_ROWS, 0, OldRows(parsed.topic)
        try:
            for chunk in chunks(rows, min(CHUNK_BYTES_MOST, CHUNK_BYTES_PER_PARTITION * partitions)):
                if identity.transactional_id is not None:
                    content += content_of(chunk, parsed.topic)
                largest = max(largest, largest_row(chunk))
                old.note(chunk)
                link.io.run(send_rows(producer, parsed.topic, chunk, parsed.steps.decision_topic))
            link.io.run(producer.flush())
            old.warn(link, parsed.steps.step_timeout_ms)
        except RecordRejectedError as error:
            reason = {ErrorCode.MESSAGE_TOO_LARGE: self._too_large, ErrorCode.INVALID_TIMESTAMP: self._untimely}
            if error.code not in reason:
                raise
            advice = reason[ErrorCode(error.code)](link, largest)
            raise RecordRejectedError(f"{error}: {advice}", code=error.code) from error
        finally:
            link.io.run(end(producer))
        return content

    def _topic_settings(self, link: ClusterClient) -> dict[str, str | None]:
        """Return the settings of the option's topic; {} if they cannot be read."""
        topic = self._parsed.topic
        with suppress(KafkaError):
            return dict(link.io.run(self._link().admin.describe_configs(topic))) if topic is not None else {}
        return {}

    def _too_large(self, link: ClusterClient, largest: int) -> str:
        limit = self._topic_settings(link).get(MAX_MESSAGE_BYTES)
        return (
            f"the largest row has {largest} bytes of key and value, and {self._where} accepts record batches of at "
            f"most {f'{MAX_MESSAGE_BYTES}={limit}' if limit else f'its {MAX_MESSAGE_BYTES}'} bytes; raise that "
            "setting of the topic, or write smaller rows"
        )

    def _untimely(self, link: ClusterClient, _: int) -> str:
        settings = self._topic_settings(link)
        limits = [f"{name}={settings[name]} ms" for name in TIME_LIMITS if settings.get(name)]
        allowed = f"{self._where} allows ({', '.join(limits or TIME_LIMITS)})"
        if "timestamp" in dict(self._columns):
            return f"a row's column timestamp is further from the broker's clock than {allowed}"
        skew = _skew(link, self._parsed.steps.step_timeout_ms)
        return (
            f"rows carry the time of this host's clock, which is further from the broker's clock than {allowed}"
            f"{skew}; `fencepost doctor`, run on this host, compares the clocks"
        )

    @property
    def _where(self) -> str:
        return "the row's topic" if self._parsed.topic is None else f"topic {self._parsed.topic!r}"

    def commit_messages(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Decide and complete the batch: steps 8-10."""
        if not self._parsed.exactly_once:
            return
        folder = checkpoint.local_folder(self._parsed.checkpoint)
        planned = {message.planned for message in messages if isinstance(message, TaskMessage)}

        def save(step: Any) -> SourceOffsets | None:
            if folder is None or len(planned) != 1:
                return None
            return checkpoint.save(folder, step.query_id, step.batch_id, *planned)

        plain = _messages(messages)
        steps = plan.commit_batch(self.name, batch_id, plain, self._parsed.same)
        query_id = next((message.query_id for message in plain if message is not None), None)
        with self._naming_others(query_id):
            is_decided = self._link().run_task(steps, {plan_steps.SaveOffsets: save})
        if is_decided:
            log.info("sink %r: batch %d is committed", self.name, batch_id)
        elif any(isinstance(message, plan_steps.SkippedTask) and message.decided is None for message in plain):
            log.info("sink %r: batch %d was adopted without its rows: skipped by its number", self.name, batch_id)

    def abort_messages(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the batch: step 11."""
        if not self._parsed.exactly_once:
            return
        plain, sink = _messages(messages), self.name
        opened = self._opened
        known = self._claim_file(sink).read() if opened is None else opened.claim
        outcome = self._link().run(plan.abort_batch(sink, plain, known))
        if outcome is plan_steps.AbortOutcome.NOTHING and None in plain:
            words = (
                "sink %r: no task of a failed batch has sent a message, and this process does not know the batch's "
                "claim: transactions that the tasks left open end by their timeout, if they have one, or when the sink "
                "is opened again"
            )
            log.warning(words, sink)
        else:
            log.info("sink %r: %s", sink, outcome.value)


def _skew(link: ClusterClient, timeout_ms: int) -> str:
    """Return the difference to the controller's clock for an error text; "" if it is unknown in `timeout_ms`."""
    from fencepost.client.admin.placement import AdminPlacement  # only imported after a failure

    runtime = link.admin.cluster.runtime
    asked_ms = runtime.wall_ms()
    with suppress(KafkaError):  # brokers before Kafka 2.8, or the client is not authorized
        quorum = link.io.run(AdminPlacement(link.admin.cluster, timeout_ms).describe_metadata_quorum())
        ahead_ms = quorum.clock_ahead_ms(asked_ms, runtime.wall_ms())
        if ahead_ms:
            where = "behind" if ahead_ms > 0 else "ahead of"
            return f"; it is {duration_words(abs(ahead_ms))} {where} the controller's"
    return ""


def _messages(messages: Sequence[WriterCommitMessage | None]) -> list[plan_steps.TaskResult | None]:
    return [message.message if isinstance(message, TaskMessage) else None for message in messages]


def _restored(
    kind: type[SinkWriter],
    given: tuple[dict[str, str], list[tuple[str, str]], RowsOf | None],
    opened: plan_steps.OpenedSink | None,
    planned: int | None,
    only: frozenset[str] | None,
) -> SinkWriter:
    writer = kind(*given)
    writer._opened, writer._planned, writer._only = opened, planned, only
    writer._named = None if opened is None else opened.sink
    return writer


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """Return name and Spark SQL type of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


CONTINUOUS: Final = "the sink writes micro-batches, and cannot be used with trigger(continuous=...)"


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`, for micro-batches."""

    @property
    def _others_count(self) -> bool:
        return True

    def _planned_batch(self) -> tuple[str, int] | None:
        folder = checkpoint.local_folder(self._parsed.checkpoint)
        return None if folder is None else checkpoint.planned_batch(folder)

    def open(self) -> None:
        """Open the sink for a batch that is planned. Spark has recorded the batch, except in continuous processing."""
        folder = checkpoint.local_folder(self._parsed.checkpoint)
        if folder is not None and checkpoint.nothing_planned(folder):
            raise ConfigurationError(f"checkpoint {folder} has no planned batch: {CONTINUOUS}")
        planned = None if folder is None else checkpoint.lost_metadata(folder)
        if folder is not None and planned is not None:
            # Otherwise the sink would be named by the folder: a claim of another sink.
            raise CheckpointLostError(folder, checkpoint.METADATA, planned)
        is_new = self._opened is None
        super().open()
        if is_new and self._opened is not None:
            self._save_claim(self._opened)

    def _save_claim(self, opened: plan_steps.OpenedSink) -> None:
        try:
            self._claim_file(opened.sink).write(opened.claim)
        except OSError as error:
            log.warning(
                "sink %r: the batch's claim could not be written to a file for the commit worker: %s",
                opened.sink,
                error,
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the partition's rows in a task, in a transaction of their own that is left open."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch_id = context.getLocalProperty(BATCH_ID) if context is not None else None
        if context is None or query_id is None or batch_id is None:
            raise UsageError(f"the task does not know its query and batch ({QUERY_ID}, {BATCH_ID})")
        return self.write_partition(iterator, query_id, int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Decide the batch, then complete its transactions, in Spark's commit worker."""
        if None in messages:
            # Spark only logs this error. `open` ends the query if it can read the checkpoint.
            reason = f"a task has no message, so nothing is written: {CONTINUOUS}"
            log.error("sink %r, epoch %d: %s", self.name, batchId, reason)  # on stderr, whatever Spark's level is
            raise ConfigurationError(reason)
        query_id = next((message.query_id for message in _messages(messages) if message is not None), None)
        if query_id is not None:
            self.check_begun(query_id, batchId)
        prepared = [message for message in _messages(messages) if isinstance(message, plan_steps.PreparedTask)]
        if prepared and not self._parsed.query_is_copy:
            self._link().check_renamed(self.name, prepared[0].query_id, batchId)
        self.commit_messages(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Abort the batch's open transactions, in Spark's commit worker, if the batch can no longer be decided."""
        self.abort_messages(messages)


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """The writer of `df.write`, for one data frame. Its batch number follows the sink's last batch write."""

    def open(self) -> None:
        """Open the sink at the beginning of the job."""
        self._link().reach()
        super().open()

    def _planned_batch(self) -> tuple[str, int] | None:
        return BATCH_QUERY, 0  # `_batch_id` computes the number, after the sink is open

    def _batch_id(self) -> int:
        last = self._opened.last(BATCH_QUERY) if self._opened is not None else None
        return 0 if last is None else last.batch_id + 1

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the partition's rows in a task, as StreamWriter.write does."""
        context = TaskContext.get()
        if self._parsed.exactly_once and context is not None and context.getLocalProperty(QUERY_ID) is not None:
            raise UsageError(
                "a batch write within foreachBatch would be repeated with the batch, and write its rows twice: "
                "use fencepost.spark.exactly_once(), or choose delivery=at-least-once"
            )
        return self.write_partition(iterator, BATCH_QUERY, self._batch_id())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the batch, then complete its transactions, on the driver's host."""
        self.commit_messages(messages, self._batch_id())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the batch's open transactions, on the driver's host, as StreamWriter.abort does."""
        self.abort_messages(messages)
