"""The sink claims once: where the writer is pickled into the tasks, and nowhere else."""

from __future__ import annotations

import pickle
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from fencepost import Consumer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.client.net.asyncio_runtime import AsyncioRuntime
from fencepost.errors import ConfigurationError, InvalidTopicError, KafkaTimeoutError, RecordRejectedError, UsageError
from fencepost.protocol.codes import ErrorCode
from fencepost.spark import exactly_once
from fencepost.spark.errors import (
    BatchChangedError,
    BatchTimedOutError,
    CheckpointRolledBackError,
    SupersededError,
    UnfinishedSinkError,
)
from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.decision import Decision, Pair, Winner, decode_value, encode_value
from fencepost.spark.sink.plan_steps import EmptyTask, PreparedTask, SkippedTask
from fencepost.spark.sink.runner import ClusterClient, SinkLink, resolve_sink
from fencepost.spark.sink.steps import SinkConfig
from fencepost.spark.sink.writer import BatchWriter, SinkWriter, StreamWriter, TaskMessage
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.reader import StreamReader
from tests.spark.plan_by_hand import decide

COLUMNS = [("key", "string"), ("value", "string")]
QUERY = "5b91-query"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


class Sink:
    """Options of a fresh sink, and its claims as the broker counts them."""

    def __init__(self, broker: Broker) -> None:
        self.name = f"writer-{uuid.uuid4().hex[:8]}"
        self.link = ClusterClient({"bootstrap.servers": broker.bootstrap_servers})
        self.link.io.run(self.link.admin.create_topic(self.name, 2))
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": self.name,
            "sink.id": self.name,
        }

    def epoch(self) -> int:
        """Of S; -1 when it was never claimed."""
        (found,) = self.link.io.run(self.link.admin.describe_transactions([names.sink_id(self.name)]))
        return -1 if found.error_code else found.producer_epoch

    def writer(self) -> StreamWriter:
        return StreamWriter(self.options, COLUMNS)


def rows(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"key": [f"k{n}" for n in range(count)], "value": [f"v{n}" for n in range(count)]})


def test_only_pickling_claims_and_only_once(broker: Broker) -> None:
    sink = Sink(broker)
    planned = sink.writer()
    assert sink.epoch() == -1
    sent = pickle.dumps(planned)
    assert pickle.dumps(planned) == sent  # PySpark pickles it twice: into the function, and by itself
    assert sink.epoch() == 0
    in_a_task: StreamWriter = pickle.loads(sent)
    message = in_a_task.write_partition(rows(10), QUERY, 0)
    assert pickle.dumps(in_a_task) == sent
    assert sink.epoch() == 0
    assert isinstance(message.message, PreparedTask)
    # The commit side makes a writer of its own; its decision ends the claim's one transaction: one epoch on.
    sink.writer().commit([message], 0)
    assert sink.epoch() == 1
    sink.writer().abort([message], 0)  # as Spark does when it lost commit's answer
    assert sink.epoch() == 1


def test_the_messages_survive_pickling_and_a_replayed_batch_is_skipped(broker: Broker) -> None:
    sink = Sink(broker)
    first: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    messages = [first.write_partition(rows(count), QUERY, 0) for count in (5, 0)]
    assert [type(message.message) for message in messages] == [PreparedTask, EmptyTask]
    sink.writer().commit(pickle.loads(pickle.dumps(messages)), 0)
    again: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    replayed = again.write_partition(rows(5), QUERY, 0)
    assert isinstance(messages[0].message, PreparedTask)
    content = messages[0].message.content
    assert content.rows == 5
    assert replayed == TaskMessage(SkippedTask(QUERY, 0, content, content))
    sink.writer().commit([replayed, again.write_partition(rows(0), QUERY, 0)], 0)
    with pytest.raises(BatchChangedError, match="5 rows"):
        sink.writer().commit([replayed, replayed], 0)
    sink.writer().commit([again.write_partition(rows(1), QUERY, 1)], 1)
    behind: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    with pytest.raises(CheckpointRolledBackError):
        behind.write_partition(rows(5), QUERY, 0)
    assert sink.link.io.run(sink.link.admin.list_transactions(states=("Ongoing",))) == []


def test_a_batch_that_was_adopted_without_its_rows_is_skipped_by_its_number(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(broker)
    writer: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    message = writer.write_partition(rows(5), QUERY, 0).message
    assert isinstance(message, PreparedTask)
    decision = Decision(sink.name, QUERY, 0, (Winner(message.transactional_id, message.pair),))
    assert decode_value(encode_value(decision)).content is None
    runner = SinkLink(sink.link, SinkConfig())
    assert runner.run(writing(message.claim, decision)) == 0
    again: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    with caplog.at_level("INFO", "fencepost.spark"):
        sink.writer().commit([again.write_partition(rows(3), QUERY, 0)], 0)
    assert "batch 0 was adopted without its rows: skipped by its number" in caplog.text


def writing(claim: Pair, decision: Decision) -> plan.Plan[int]:
    code: int = yield plan_steps.WriteDecision(claim, decision)
    return code


def test_batch_writes_count_on(broker: Broker) -> None:
    sink = Sink(broker)
    for number in range(3):
        writer: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(sink.options, COLUMNS)))
        message = writer.write(rows(4))
        assert isinstance(message, TaskMessage)
        assert isinstance(message.message, PreparedTask)
        assert message.message.batch_id == number
        pickle.loads(pickle.dumps(writer)).commit([message])


def test_at_least_once_claims_nothing(broker: Broker) -> None:
    sink = Sink(broker)
    options = {**sink.options, "delivery": "at-least-once"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
    message = writer.write_partition(rows(3), QUERY, 0)
    assert message == TaskMessage(None)
    StreamWriter(options, COLUMNS).commit([message], 0)
    StreamWriter(options, COLUMNS).abort([message, None], 0)
    assert sink.epoch() == -1


def test_what_cannot_work_is_said_before_anything_is_opened(broker: Broker) -> None:
    sink = Sink(broker)
    with pytest.raises(ConfigurationError, match="colour"):
        StreamWriter(sink.options, [*COLUMNS, ("colour", "string")])
    with pytest.raises(UsageError, match="not pickled"):
        sink.writer().write_partition(rows(1), QUERY, 0)
    with pytest.raises(UsageError, match="query and batch"):
        pickle.loads(pickle.dumps(sink.writer())).write(rows(1))
    assert sink.epoch() == 0


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("decisions", ["__fencepost_decisions", "our-decisions"])
def test_no_row_goes_to_the_topic_of_the_decisions(broker: Broker, decisions: str, delivery: str) -> None:
    """Readers of decisions would wait for its transaction, or find a record that none can read."""
    sink = Sink(broker)
    options = {**sink.options, "delivery": delivery}
    if not decisions.startswith("__"):
        options["decision.topic"] = decisions
    with pytest.raises(ConfigurationError, match=f"option topic.*{decisions}"):
        StreamWriter({**options, "topic": decisions}, COLUMNS)
    del options["topic"]
    sink.link.io.run(sink.link.admin.create_topic(decisions, 16, configs={"cleanup.policy": "compact"}))
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, [*COLUMNS, ("topic", "string")])))
    columns = {"key": ["a", "b"], "value": ["1", "2"], "topic": [sink.name, decisions]}
    with pytest.raises(ConfigurationError, match=f"column topic.*{decisions}"):
        writer.write_partition(iter([pa.record_batch(columns)]), QUERY, 0)
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_uncommitted") as reader:
        reader.assign([TopicPartition(decisions, number) for number in range(16)])
        assert b"b" not in [record.key for record in reader.poll(1000)]
    assert sink.link.io.run(sink.link.admin.list_transactions(states=("Ongoing",))) == []


def test_a_topic_that_does_not_exist_is_said_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.sink.runner.TOPIC_PATIENCE_MS", 500)
    with Broker({"auto.create.topics.enable": False}) as strict:
        sink = Sink(strict)
        with pytest.raises(ConfigurationError, match="topic 'nowhere' does not exist"):
            pickle.dumps(StreamWriter({**sink.options, "topic": "nowhere"}, COLUMNS))
        assert sink.epoch() == -1
        with pytest.raises(ConfigurationError, match="topic 'nowhere' does not exist"):
            pickle.dumps(StreamWriter({**sink.options, "topic": "nowhere", "delivery": "at-least-once"}, COLUMNS))
    with Broker({"auto.create.topics.enable": True}) as generous:
        sink = Sink(generous)
        writer = pickle.loads(pickle.dumps(StreamWriter({**sink.options, "topic": "made-for-me"}, COLUMNS)))
        assert isinstance(writer.write_partition(rows(1), QUERY, 0).message, PreparedTask)


def test_pyspark_reports_why_a_sink_is_not_opened_and_no_failure_to_pickle(broker: Broker) -> None:
    """pyspark pickles the writer, which opens the sink, and takes an error in between for one of pickling."""
    from pyspark.serializers import CloudPickleSerializer

    writer = StreamWriter({**Sink(broker).options, "topic": "no name"}, COLUMNS)
    with pytest.raises(InvalidTopicError, match=r"^topic 'no name': INVALID_TOPIC_EXCEPTION") as raised:
        CloudPickleSerializer().dumps(writer)  # type: ignore[no-untyped-call]
    shown = traceback.format_exception_only(raised.value)
    assert shown[0].startswith("fencepost.errors.InvalidTopicError: topic 'no name'")


def test_an_epoch_of_continuous_processing_is_refused_by_name(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink(broker)
    for epoch in range(2):  # Spark goes on all the same, so each of them says so
        caplog.clear()
        with pytest.raises(ConfigurationError, match=r"nothing is written.*trigger\(continuous=\.\.\.\)"):
            sink.writer().commit([None, None], epoch)
        (said,) = (record for record in caplog.records if record.levelname == "ERROR")
        assert f"sink {sink.name!r}, epoch {epoch}: a task has no message, so nothing is written" in said.message


def test_continuous_processing_is_refused_where_its_checkpoint_can_be_seen(broker: Broker, tmp_path: Path) -> None:
    """A micro-batch is in Spark's offset log before its writer is made; an epoch is when it ends."""
    sink = Sink(broker)
    sink.options["checkpointlocation"] = str(tmp_path)
    (tmp_path / "metadata").write_text('{"id": "q"}')
    with pytest.raises(ConfigurationError, match=r"has no planned batch.*trigger\(continuous=\.\.\.\)"):
        pickle.dumps(sink.writer())
    assert sink.epoch() == -1
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    pickle.dumps(sink.writer())
    assert sink.epoch() == 0


def open_ids(sink: Sink) -> list[str]:
    listed = sink.link.io.run(sink.link.admin.list_transactions(states=("Ongoing",)))
    return [listing.transactional_id for listing in listed]


@pytest.mark.parametrize("late", ["before it has written", "when it has written"])
@pytest.mark.parametrize("ends", ["commit", "abort", "newer run"])
def test_a_copy_that_is_late_leaves_nothing_open(broker: Broker, late: str, ends: str) -> None:
    """Spark kills it with its worker, so that it may never come to end its transaction."""
    sink = Sink(broker)
    writer: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    message = writer.write_partition(rows(5), QUERY, 0)

    def end_the_batch() -> None:
        if ends == "newer run":
            pickle.dumps(sink.writer())
        else:
            end = sink.writer().commit if ends == "commit" else sink.writer().abort
            end([message], 0)

    def rows_of_the_copy() -> Iterator[pa.RecordBatch]:
        yield from rows(5)
        assert late == "when it has written"  # otherwise it reads no further
        end_the_batch()  # few rows are sent at the end: its transaction is open from then on
        yield from rows(5)

    if late == "before it has written":
        end_the_batch()
    with pytest.raises(SupersededError, match="ended without this task attempt"):
        writer.write_partition(rows_of_the_copy(), QUERY, 0)
    assert open_ids(sink) == []
    assert committed_rows(sink) == (5 if ends == "commit" else 0)


def test_a_batch_write_whose_tasks_all_die_leaves_nothing_open(broker: Broker) -> None:
    """Killed workers send no messages: the job's writer knows its claim, and what was begun under it."""
    sink = Sink(broker)
    writer: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(sink.options, COLUMNS)))
    message = writer.write_partition(rows(5), "batch", 0).message
    assert isinstance(message, PreparedTask)
    assert open_ids(sink) == [message.transactional_id]
    writer.abort([None, None])
    assert open_ids(sink) == []
    decided: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(sink.options, COLUMNS)))
    decided.commit([decided.write_partition(rows(5), "batch", 0)])
    decided.abort([None])  # late, and without effect
    assert committed_rows(sink) == 5


def test_a_streams_batch_whose_tasks_all_die_leaves_nothing_open(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit worker has no message; it finds the claim where the planning process of its driver has left it."""
    sink = Sink(broker)
    folders = {driver: tmp_path / driver for driver in ("first", "second")}

    def act_in(driver: str) -> None:
        folders[driver].mkdir(exist_ok=True)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folders[driver]},/another")

    def planned() -> StreamWriter:
        writer: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
        return writer

    act_in("first")
    planned().write_partition(rows(5), QUERY, 0)
    assert len(open_ids(sink)) == 1
    sink.writer().abort([None, None], 0)
    assert open_ids(sink) == []
    # A newer run's transactions are not an older one's, whatever of it is still alive.
    writer = planned()
    act_in("second")
    newer = planned().write_partition(rows(7), QUERY, 0)
    act_in("first")
    with pytest.raises(SupersededError):
        writer.write_partition(rows(5), QUERY, 0)
    sink.writer().abort([None], 0)
    assert len(open_ids(sink)) == 1
    act_in("second")
    sink.writer().commit([newer], 0)
    sink.writer().abort([None], 0)  # late, and without effect
    assert committed_rows(sink) == 7
    assert "claim is not known" not in caplog.text
    # Without a folder it is said what may be left.
    planned().write_partition(rows(5), QUERY, 1)
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    sink.writer().abort([None, None], 1)
    assert "this process does not know the batch's claim" in caplog.text
    assert len(open_ids(sink)) == 1


class BrokenFrame:
    """A data frame for foreachBatch, one of whose tasks fails when another one has written. Spark's part is played."""

    schema = StructType().add("key", "string").add("value", "string")

    def __init__(self) -> None:
        self.sparkSession = self.sparkContext = self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - PySpark's name
        return name

    def mapInArrow(self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]], _: str) -> BrokenFrame:  # noqa: N802
        self.write = write
        return self

    def collect(self) -> list[Any]:
        assert [batch.num_rows for batch in self.write(rows(5))] == [1]
        raise RuntimeError("a task has failed for good")


def test_a_frame_whose_job_fails_leaves_nothing_open(broker: Broker) -> None:
    sink = Sink(broker)
    for batch in range(2):
        with pytest.raises(RuntimeError, match="failed for good"):
            exactly_once(sink.options)(BrokenFrame(), batch)  # type: ignore[arg-type]
        assert open_ids(sink) == []
    assert committed_rows(sink) == 0


@pytest.mark.parametrize("settings", [{"transaction.two.phase.commit.enable": True}, {}])
def test_a_task_that_is_too_slow_says_so(settings: dict[str, bool]) -> None:
    with Broker({**settings, "transaction.max.timeout.ms": 1000}) as slow:
        sink = Sink(slow)

        def slowly() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"key": ["k"] * 10, "value": ["x" * 1_000_000] * 10})
            wait_until_none_is_open(sink)
            yield from rows(5)

        with pytest.raises(BatchTimedOutError, match=r"longer than kafka\.transaction\.timeout\.ms=1000"):
            pickle.loads(pickle.dumps(sink.writer())).write_partition(slowly(), QUERY, 0)
        assert committed_rows(sink) == 0


def wait_until_none_is_open(sink: Sink) -> None:
    """Of the task's, whose first megabytes have to be sent first."""
    until = time.monotonic() + 30
    was_open = False
    while time.monotonic() < until and not (was_open and not open_ids(sink)):
        was_open = was_open or bool(open_ids(sink))
        time.sleep(0.05)


def test_two_queries_with_one_sink_id_hear_of_each_other(broker: Broker) -> None:
    sink = Sink(broker)
    first: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    message = first.write_partition(rows(1), QUERY, 0)
    pickle.dumps(sink.writer())  # another query plans its batch
    with pytest.raises(SupersededError, match=r"two queries have the same sink\.id"):
        sink.writer().commit([message], 0)


def decide_without_completing(sink: Sink, batch_id: int) -> None:
    """A batch whose driver died between its decision and its completion."""
    writer: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    message = writer.write_partition(rows(5), QUERY, batch_id).message
    decide(writer._link(), plan.commit_batch(sink.name, batch_id, [message]))


def committed_rows(sink: Sink) -> int:
    partitions = [TopicPartition(sink.name, 0), TopicPartition(sink.name, 1)]
    with Consumer(sink.options["kafka.bootstrap.servers"], auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = sink.link.io.run(sink.link.admin.list_offsets(dict.fromkeys(partitions, -1)))
        found = 0
        while any(consumer.position(partition) < ends[partition].offset for partition in partitions):
            found += len(consumer.poll(1000))
        return found


def test_at_least_once_does_not_begin_over_open_transactions(broker: Broker) -> None:
    sink = Sink(broker)
    decide_without_completing(sink, 0)
    options = {**sink.options, "delivery": "at-least-once"}
    for _ in range(2):
        with pytest.raises(UnfinishedSinkError, match=f"fencepost transactions resolve {sink.name}"):
            pickle.dumps(StreamWriter(options, COLUMNS))
    resolve_sink(options["kafka.bootstrap.servers"], sink.name)
    pickle.dumps(StreamWriter(options, COLUMNS))
    assert committed_rows(sink) == 5


def test_a_batch_is_not_written_again_under_another_name(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink(broker)
    decide_without_completing(sink, 3)
    renamed = {**sink.options, "sink.id": f"{sink.name}-renamed"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(renamed, COLUMNS)))
    assert f"sink {sink.name!r} has 1 open transaction on topic {sink.name!r}" in caplog.text
    message = writer.write_partition(rows(5), QUERY, 3)
    for _ in range(2):
        with pytest.raises(UnfinishedSinkError, match=f"batch 3 of query {QUERY} was written by sink {sink.name!r}"):
            StreamWriter(renamed, COLUMNS).commit([message], 3)
    StreamWriter(renamed, COLUMNS).abort([message], 3)
    # As the message says: under the old name the batch is skipped, and the next one may go by the new name.
    old: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    skipped = old.write_partition(rows(5), QUERY, 3)
    assert isinstance(skipped.message, SkippedTask)
    sink.writer().commit([skipped], 3)
    writer = pickle.loads(pickle.dumps(StreamWriter(renamed, COLUMNS)))
    StreamWriter(renamed, COLUMNS).commit([writer.write_partition(rows(7), QUERY, 4)], 4)
    assert committed_rows(sink) == 5 + 7


def test_a_copied_checkpoint_may_write_what_the_other_query_wrote(broker: Broker) -> None:
    sink, copy = Sink(broker), Sink(broker)
    decide_without_completing(sink, 3)
    options = {**copy.options, "query.copied": "true"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
    StreamWriter(options, COLUMNS).commit([writer.write_partition(rows(7), QUERY, 3)], 3)
    assert committed_rows(copy) == 7


def test_two_sinks_of_one_query_may_decide_the_same_batch(broker: Broker) -> None:
    """As two functions for foreachBatch do, which use the writer without Spark's commit."""
    first, second = Sink(broker), Sink(broker)
    for sink in (first, second):
        writer: SinkWriter = pickle.loads(pickle.dumps(SinkWriter(sink.options, COLUMNS)))
        writer.commit_messages([writer.write_partition(rows(2), QUERY, 0)], 0)
    assert (committed_rows(first), committed_rows(second)) == (2, 2)


def test_a_checkpoint_is_one_sink_however_it_is_spelled(broker: Broker) -> None:
    sink = Sink(broker)
    del sink.options["sink.id"]
    for number, text in enumerate(("/data/cp", "/data/cp/", "file:/data/cp", "file:///data/cp")):
        options = {**sink.options, "checkpointlocation": text}
        writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
        message = writer.write_partition(rows(1), QUERY, number)
        assert isinstance(message.message, PreparedTask)
        assert names.parse(message.message.transactional_id.rpartition("/")[0]) == names.SinkId("/data/cp")
        StreamWriter(options, COLUMNS).commit([message], number)
    assert committed_rows(sink) == 4


def small_topic(sink: Sink) -> None:
    sink.link.io.run(sink.link.admin.create_topic("small", 2, configs={"max.message.bytes": "20000"}))
    sink.options["topic"] = "small"


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_cut_as_the_topics_max_message_bytes_asks(broker: Broker, codec: str) -> None:
    sink = Sink(broker)
    small_topic(sink)
    options = {**sink.options, "kafka.compression.type": codec}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
    chance = Random(1)
    values = [f"{n}-{chance.randbytes(100).hex()}" for n in range(3000)]
    batches = [
        pa.record_batch({"key": [f"k{n}" for n in range(1500)], "value": part})
        for part in (values[:1500], values[1500:])
    ]
    message = writer.write_partition(iter(batches), QUERY, 0)
    StreamWriter(options, COLUMNS).commit([message], 0)
    sink.name = "small"
    assert committed_rows(sink) == 3000


def test_a_row_that_is_too_large_for_its_topic_is_named(broker: Broker) -> None:
    sink = Sink(broker)
    small_topic(sink)
    writer: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    frame = pa.record_batch({"key": ["a", "b"], "value": ["x" * 100, "y" * 30_000]})
    reported = (
        r"MESSAGE_TOO_LARGE.*30001 bytes of key and value, and topic 'small' accepts .*max\.message\.bytes=20000 bytes"
    )
    with pytest.raises(RecordRejectedError, match=reported):
        writer.write_partition(iter([frame]), QUERY, 0)


def test_a_row_whose_time_is_refused_is_told_with_the_limit(broker: Broker) -> None:
    sink = Sink(broker)
    columns = [("value", "string"), ("timestamp", "timestamp")]
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(sink.options, columns)))
    ahead = datetime.now(UTC) + timedelta(days=2)
    frame = pa.record_batch({"value": ["a"], "timestamp": pa.array([ahead], pa.timestamp("us", "UTC"))})
    reported = f"column timestamp is further .*topic '{sink.name}' allows .*message.timestamp.after.max.ms=3600000"
    with pytest.raises(RecordRejectedError, match=reported):
        writer.write_partition(iter([frame]), QUERY, 0)


def test_rows_that_retention_deletes_soon_are_warned_of_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink(broker)
    columns = [("value", "string"), ("timestamp", "timestamp")]

    def write(age: timedelta) -> int:
        before = caplog.text.count("deletes records after retention.ms=604800000")
        writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(sink.options, columns)))
        times = [None, datetime.now(UTC), datetime.now(UTC) - age]
        frame = pa.record_batch({"value": ["a", "b", "c"], "timestamp": pa.array(times, pa.timestamp("us", "UTC"))})
        writer.write_partition(iter([frame]), QUERY, 0)
        return caplog.text.count("deletes records after retention.ms=604800000") - before

    assert write(timedelta(seconds=1)) == 0
    assert write(timedelta(days=8)) == 1
    assert write(timedelta(days=9)) == 0  # it is known
    assert "8 d old by their column timestamp" in caplog.text


def test_a_hosts_clock_that_is_wrong_is_told_with_how_far_it_is_off(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(broker)
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(sink.options, [("value", "string")])))
    monkeypatch.setattr(AsyncioRuntime, "wall_ms", lambda _: int((time.time() + 7200) * 1000))
    reported = "this host's clock, .*message.timestamp.after.max.ms=3600000.*; it is 2 h ahead of the controller's"
    with pytest.raises(RecordRejectedError, match=reported):
        writer.write_partition(iter([pa.record_batch({"value": ["a"]})]), QUERY, 0)


def test_rows_without_keys_spread_over_all_partitions(broker: Broker) -> None:
    sink = Sink(broker)
    sink.link.io.run(sink.link.admin.create_topic("wide", 12))
    options = {**sink.options, "topic": "wide", "delivery": "at-least-once"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, [("value", "string")])))
    for number in range(150):  # the chance that one of twelve is never taken is 3e-5
        writer.write_partition(iter([pa.record_batch({"value": ["v"] * 3})]), QUERY, number)
    partitions = {TopicPartition("wide", number): -1 for number in range(12)}
    ends = sink.link.io.run(sink.link.admin.list_offsets(partitions))
    assert sum(end.offset for end in ends.values()) == 450
    assert min(end.offset for end in ends.values()) > 0


def test_what_the_broker_refuses_is_named_when_time_runs_out(broker: Broker) -> None:
    sink = Sink(broker)
    options = {**sink.options, "kafka.delivery.timeout.ms": "1500"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
    with broker.faults.fail("Produce", ErrorCode.KAFKA_STORAGE_ERROR, times=None, topic=sink.name) as full:
        with pytest.raises(KafkaTimeoutError, match="KAFKA_STORAGE_ERROR"):
            writer.write_partition(rows(3), QUERY, 0)
        assert full.hits > 1


def test_wrong_servers_are_told_soon_where_a_job_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterClient.reach, "__defaults__", (300,))  # a default is taken when a function is made
    wrong = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "sink.id": "s", "subscribe": "t"}
    source = {key: value for key, value in wrong.items() if key not in ("topic", "sink.id")}
    sink = {key: value for key, value in wrong.items() if key != "subscribe"}
    beginnings: list[Callable[[], object]] = [
        lambda: pickle.dumps(BatchWriter(sink, COLUMNS)),
        BatchReader(source, StructType([])).partitions,
        StreamReader({**source, "startingoffsets": "earliest"}, StructType([])).initialOffset,
        # A run with availableNow asks for the end before anything else, and a restart may begin with a planned batch.
        StreamReader(source, StructType([])).prepareForTriggerAvailableNow,
        lambda: StreamReader(source, StructType([])).partitions({"t": {"0": 0}}, {"t": {"0": 1}}),
    ]
    for begin in beginnings:
        with pytest.raises(KafkaTimeoutError, match=r"bootstrap\.servers=127\.0\.0\.1:1: no broker can be reached"):
            begin()
