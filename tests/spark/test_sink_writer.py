"""Where the sink claims: where the writer is pickled into the tasks, once, and nowhere else."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fencepost.broker.embedded import Broker
from fencepost.errors import ConfigurationError, UsageError
from fencepost.spark import names
from fencepost.spark.errors import SupersededError
from fencepost.spark.plan import Nothing, Prepared, Skipped
from fencepost.spark.runner import Link
from fencepost.spark.sink import BatchWriter, StreamWriter, TaskMessage

COLUMNS = [("key", "string"), ("value", "string")]
QUERY = "5b91-query"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


class Sink:
    """Options of a fresh sink, and its claims as the broker counts them."""

    def __init__(self, broker: Broker) -> None:
        self.name = f"writer-{uuid.uuid4().hex[:8]}"
        self.link = Link({"bootstrap.servers": broker.bootstrap_servers})
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
    message = in_a_task.write_partition(rows(10), QUERY, 0, 0)
    assert pickle.dumps(in_a_task) == sent
    assert sink.epoch() == 0
    assert isinstance(message.message, Prepared)
    # The commit side makes a writer of its own; its decision ends the claim's one transaction: one epoch on.
    sink.writer().commit([message], 0)
    assert sink.epoch() == 1
    sink.writer().abort([message], 0)  # as Spark does when it lost commit's answer
    assert sink.epoch() == 1


def test_the_messages_survive_pickling_and_a_replayed_batch_is_skipped(broker: Broker) -> None:
    sink = Sink(broker)
    first: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    messages = [first.write_partition(rows(count), QUERY, 0, count) for count in (5, 0)]
    assert [type(one.message) for one in messages] == [Prepared, Nothing]
    sink.writer().commit(pickle.loads(pickle.dumps(messages)), 0)
    again: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    replayed = again.write_partition(rows(5), QUERY, 0, 0)
    assert replayed == TaskMessage(Skipped(QUERY, 0))
    sink.writer().commit([replayed, replayed], 0)
    assert sink.link.io.run(sink.link.admin.list_transactions(states=("Ongoing",))) == []


def test_batch_writes_count_on(broker: Broker) -> None:
    sink = Sink(broker)
    for number in range(3):
        writer: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(sink.options, COLUMNS)))
        message = writer.write(rows(4))
        assert isinstance(message, TaskMessage)
        assert isinstance(message.message, Prepared)
        assert message.message.batch_id == number
        pickle.loads(pickle.dumps(writer)).commit([message])


def test_at_least_once_claims_nothing(broker: Broker) -> None:
    sink = Sink(broker)
    options = {**sink.options, "delivery": "at-least-once"}
    writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
    message = writer.write_partition(rows(3), QUERY, 0, 0)
    assert message == TaskMessage(None)
    StreamWriter(options, COLUMNS).commit([message], 0)
    StreamWriter(options, COLUMNS).abort([message, None], 0)
    assert sink.epoch() == -1


def test_what_cannot_work_is_said_before_anything_is_opened(broker: Broker) -> None:
    sink = Sink(broker)
    with pytest.raises(ConfigurationError, match="colour"):
        StreamWriter(sink.options, [*COLUMNS, ("colour", "string")])
    with pytest.raises(UsageError, match="pickling"):
        sink.writer().write_partition(rows(1), QUERY, 0, 0)
    with pytest.raises(UsageError, match="query and batch"):
        pickle.loads(pickle.dumps(sink.writer())).write(rows(1))
    assert sink.epoch() == 0


def test_a_topic_that_does_not_exist_is_said_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.runner.TOPIC_PATIENCE_MS", 500)
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
        assert isinstance(writer.write_partition(rows(1), QUERY, 0, 0).message, Prepared)


def test_two_queries_with_one_sink_id_hear_of_each_other(broker: Broker) -> None:
    sink = Sink(broker)
    first: StreamWriter = pickle.loads(pickle.dumps(sink.writer()))
    message = first.write_partition(rows(1), QUERY, 0, 0)
    pickle.dumps(sink.writer())  # another query plans its batch
    with pytest.raises(SupersededError, match=r"two queries have the same sink\.id"):
        sink.writer().commit([message], 0)
