"""A sink knows what its queries have written from the decision topic. It refuses to go on where that is gone."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost import Admin, Consumer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.errors import ConfigurationError, KafkaTimeoutError
from fencepost.spark.errors import CheckpointRolledBackError, SupersededError, UnknownQueryError
from fencepost.spark.sink import plan, runner
from fencepost.spark.sink.decision import Beginning, decode_key, encode_beginning
from fencepost.spark.sink.plan_steps import PreparedTask, SkippedTask
from fencepost.spark.sink.repair import settle_lost_batch
from fencepost.spark.sink.runner import ClusterClient, resolve_sink
from fencepost.spark.sink.writer import BatchWriter, SinkWriter, StreamWriter
from tests.spark.plan_by_hand import decide
from tests.support.commands import Commands

COLUMNS = [("value", "string")]
TOPIC = "__fencepost_decisions"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def another_process() -> Iterator[Callable[[], None]]:
    """Forgets what this process knows of the cluster."""

    def forget() -> None:
        for link in runner._links.values():
            link.close()
        runner._links.clear()

    forget()
    yield forget
    forget()


class Query:
    """One query, played by hand: Spark's checkpoint and the calls that it makes of the sink."""

    def __init__(self, broker: Broker, folder: Path | None, query_id: str | None = None) -> None:
        """`folder`: the checkpoint's, where the sink can read it."""
        self.query_id = query_id or str(uuid.uuid4())
        self.folder = folder
        self.topic = f"out-{uuid.uuid4().hex[:8]}"
        self.servers = broker.bootstrap_servers
        self.link = ClusterClient({"bootstrap.servers": self.servers})
        self.link.io.run(self.link.admin.create_topic(self.topic, 1))
        self.options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic}
        if folder is None:
            self.options["sink.id"] = self.topic
        else:
            (folder / "offsets").mkdir(parents=True)
            (folder / "metadata").write_text(json.dumps({"id": self.query_id}))
            self.options["checkpointlocation"] = str(folder)

    def plan(self, batch_id: int, **more: str) -> StreamWriter:
        """Return the writer that the planning process hands to the tasks."""
        if self.folder is not None:
            (self.folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{batch_id}")
        options = {**self.options, **{name.replace("_", "."): text for name, text in more.items()}}
        planned: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
        return planned

    def batch(self, batch_id: int, count: int = 2, **more: str) -> Any:
        """The whole batch. The message of its task."""
        writer = self.plan(batch_id, **more)
        message = writer.write_partition(rows(count), self.query_id, batch_id)
        committing = StreamWriter(writer._options, COLUMNS)
        try:
            committing.commit([message], batch_id)
        except Exception:
            committing.abort([message], batch_id)
            raise
        return message.message

    def decide_only(self, batch_id: int) -> None:
        """Its driver dies between the decision and its completion."""
        writer = self.plan(batch_id)
        message = writer.write_partition(rows(2), self.query_id, batch_id).message
        decide(writer._link(), plan.commit_batch(writer.name, batch_id, [message]))

    def written(self) -> int:
        partition = TopicPartition(self.topic, 0)
        with Consumer(self.servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([partition])
            end = self.link.io.run(self.link.admin.list_offsets({partition: -1}))[partition].offset
            found = 0
            while consumer.position(partition) < end:
                found += len(consumer.poll(1000))
            return found

    def left_open(self) -> list[str]:
        ongoing = self.link.io.run(self.link.admin.list_transactions(states=("Ongoing",)))
        return [txn.transactional_id for txn in ongoing]


def rows(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": [f"v{number}" for number in range(count)]})


@pytest.fixture(params=["its checkpoint can be read", "its checkpoint is elsewhere"])
def query(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Query:
    return Query(broker, tmp_path / "checkpoint" if "can be read" in request.param else None)


@pytest.mark.parametrize("batch_id", [0, 1, 7])
def test_a_written_batch_does_not_come_again_under_another_decision_topic(
    query: Query, another_process: Callable[[], None], batch_id: int
) -> None:
    for number in range(batch_id + 1):
        query.batch(number)
    another_process()
    elsewhere = f"decisions-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        with pytest.raises(UnknownQueryError, match=r"decision\.topic"):
            query.batch(batch_id, decision_topic=elsewhere)
    assert query.written() == 2 * (batch_id + 1)
    assert query.left_open() == []
    another_process()
    assert isinstance(query.batch(batch_id), SkippedTask)
    query.batch(batch_id + 1)
    assert query.written() == 2 * (batch_id + 2)


@pytest.mark.parametrize("is_another", [True, False], ids=["in another process", "in the same process"])
def test_a_written_batch_does_not_come_again_when_the_decision_topic_was_deleted(
    tmp_path: Path, another_process: Callable[[], None], is_another: bool
) -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        query = Query(broker, tmp_path / "checkpoint")
        for number in range(3):
            query.batch(number)
        with Admin(query.servers) as admin:
            admin.delete_topic(TOPIC)
        if is_another:
            another_process()
        with pytest.raises(UnknownQueryError, match=f"'{TOPIC}' has no record of it.*first.batch=2"):
            query.batch(2)
        assert query.written() == 6


def test_nothing_is_claimed_or_aborted_before_the_refusal(query: Query, another_process: Callable[[], None]) -> None:
    """Otherwise a batch that was decided and not completed would be lost."""
    query.batch(0)
    query.decide_only(1)
    assert len(query.left_open()) == 1
    another_process()
    elsewhere = f"decisions-{uuid.uuid4().hex[:8]}"
    with pytest.raises(UnknownQueryError):
        query.plan(1, decision_topic=elsewhere)
    name = StreamWriter(query.options, COLUMNS).name
    with pytest.raises(UnknownQueryError, match=r"created again, or decision\.topic has changed"):
        resolve_sink(query.servers, name, decision_topic=elsewhere)
    another_process()
    assert isinstance(query.batch(1), SkippedTask)
    assert query.written() == 4


def test_another_cluster_is_noticed(query: Query, another_process: Callable[[], None]) -> None:
    query.batch(0)
    query.batch(1)
    with Broker({"transaction.two.phase.commit.enable": True}) as other:
        query.link = ClusterClient({"bootstrap.servers": other.bootstrap_servers})
        query.link.io.run(query.link.admin.create_topic(query.topic, 1))
        query.servers = query.options["kafka.bootstrap.servers"] = other.bootstrap_servers
        with pytest.raises(UnknownQueryError, match=r"kafka\.bootstrap\.servers"):
            query.batch(1)
        assert query.written() == 0
        assert isinstance(query.batch(1, first_batch="1"), PreparedTask)  # a person says that it is not there
        another_process()
        query.batch(2, first_batch="1")  # which may stay where it is
        another_process()
        query.batch(3)
        assert query.written() == 6


def test_first_batch_names_one_batch_and_no_other(query: Query) -> None:
    """As a query that moves here from another sink: its checkpoint has 12 batches."""
    with pytest.raises(UnknownQueryError, match=r"comes with batch 12: .*first\.batch=12"):
        query.batch(12)
    for wrong in ("11", "13", "0"):
        with pytest.raises(UnknownQueryError, match=f"comes with batch 12 .option first.batch says {wrong}"):
            query.batch(12, first_batch=wrong)
    assert isinstance(query.batch(12, first_batch="12"), PreparedTask)
    assert isinstance(query.batch(12, first_batch="12"), SkippedTask)
    with pytest.raises(CheckpointRolledBackError):
        query.batch(11, first_batch="11")
    assert query.written() == 2


def test_a_query_whose_batches_have_no_rows_is_known(query: Query, another_process: Callable[[], None]) -> None:
    for number in range(3):
        query.batch(number, 0)
    another_process()
    query.batch(3, 5)
    assert query.written() == 5


def test_a_query_that_is_to_write_a_lost_batch_again_is_known(
    query: Query, another_process: Callable[[], None]
) -> None:
    query.batch(0)
    query.batch(1)
    name = query.plan(1).name
    settle_lost_batch(query.servers, name, query.query_id, lost="again")
    another_process()
    query.batch(1)
    assert query.written() == 6


def test_a_batch_of_foreach_batch_is_refused_under_another_query_id(
    broker: Broker, another_process: Callable[[], None]
) -> None:
    """Spark Connect does not tell the query's id: exactly_once() is given one."""
    query = Query(broker, None)

    def write(query_id: str, batch_id: int, **more: str) -> None:
        options = {**query.options, **{name.replace("_", "."): text for name, text in more.items()}}
        planned = SinkWriter(options, COLUMNS, batch=(query_id, batch_id))
        planned.open()
        writer: SinkWriter = pickle.loads(pickle.dumps(planned))
        writer.commit_messages([writer.write_partition(rows(2), query_id, batch_id)], batch_id)

    write("orders", 0)
    write("orders", 1)
    another_process()
    with pytest.raises(UnknownQueryError, match=r"query_id of exactly_once\(\)"):
        write("orders-2", 1)
    query.options["sink.id"] += "-renamed"
    with pytest.raises(UnknownQueryError, match=r"sink\.id"):
        write("orders", 1)
    write("orders", 2, first_batch="2")
    assert query.written() == 6


def test_a_batch_write_is_refused_where_its_sink_is_forgotten(
    broker: Broker, another_process: Callable[[], None]
) -> None:
    """A batch that an earlier job has decided and not completed would be aborted."""
    query = Query(broker, None)

    def save(**more: str) -> None:
        options = {**query.options, **{name.replace("_", "."): text for name, text in more.items()}}
        writer: BatchWriter = pickle.loads(pickle.dumps(BatchWriter(options, COLUMNS)))
        message = writer.write(rows(2))
        pickle.loads(pickle.dumps(writer)).commit([message])

    save()
    save()
    another_process()
    elsewhere = f"decisions-{uuid.uuid4().hex[:8]}"
    with pytest.raises(UnknownQueryError, match=r"decision\.topic"):
        save(decision_topic=elsewhere)
    save(decision_topic=elsewhere, first_batch="0")
    assert query.written() == 6


def test_a_beginning_is_not_taken_for_a_decision() -> None:
    key, _ = encode_beginning(Beginning("sink", "query", 3, (("topic", "out"),)))
    assert decode_key(key) is None


# --- the default name ---


def test_two_queries_with_the_same_relative_checkpoint_have_sinks_of_their_own(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for folder in ("one", "other"):
        query = Query(broker, tmp_path / folder / "checkpoint")
        query.options["checkpointlocation"] = "checkpoint"
        monkeypatch.chdir(tmp_path / folder)
        query.batch(0)
        found.append((query.plan(1).name, query.query_id))
        assert query.written() == 2
    assert [name for name, _ in found] == [query_id for _, query_id in found]


@pytest.mark.parametrize("spelled", ["{}", "{}/", "file:{}", "file://{}"])
def test_a_checkpoint_is_one_sink_however_it_is_spelled_and_wherever_it_lies(
    broker: Broker, tmp_path: Path, spelled: str
) -> None:
    query = Query(broker, tmp_path / "checkpoint")
    query.batch(0)
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    query.folder = tmp_path / "moved"
    query.options["checkpointlocation"] = spelled.format(query.folder)
    assert isinstance(query.batch(0), SkippedTask)
    query.batch(1)
    assert query.written() == 4


def test_a_checkpoint_elsewhere_names_its_sink_by_its_whole_location(broker: Broker) -> None:
    query = Query(broker, None)
    del query.options["sink.id"]
    query.options["checkpointlocation"] = "hdfs://namenode/cp/"
    assert query.plan(0).name == "hdfs://namenode/cp"


def test_a_relative_path_that_cannot_be_read_is_refused(broker: Broker) -> None:
    query = Query(broker, None)
    del query.options["sink.id"]
    query.options["checkpointlocation"] = "no/such/checkpoint"
    with pytest.raises(ConfigurationError, match=r"relative path and cannot be read here.*sink\.id"):
        query.batch(0)


def test_a_copied_checkpoint_needs_a_name_of_its_own(broker: Broker, tmp_path: Path) -> None:
    query = Query(broker, tmp_path / "checkpoint")
    query.batch(0)
    with pytest.raises(ConfigurationError, match=r"query\.copied needs sink\.id"):
        StreamWriter({**query.options, "query.copied": "true"}, COLUMNS).open()
    copy = Query(broker, tmp_path / "copy", query.query_id)
    copy.batch(0, query_copied="true", sink_id="copy")
    assert (query.written(), copy.written()) == (2, 2)


def test_a_superseded_query_hears_which_other_query_there_is(broker: Broker, tmp_path: Path) -> None:
    first, second = (Query(broker, tmp_path / name) for name in ("one", "other"))
    first.options["sink.id"] = second.options["sink.id"] = "shared"
    message = first.plan(0).write_partition(rows(1), first.query_id, 0)
    late = first.plan(0)
    second.batch(0)
    reported = (
        f"query {second.query_id} .*topic '{second.topic}', checkpoint '{tmp_path / 'other'}'.*last decided batch 0"
    )
    with pytest.raises(SupersededError, match=reported):
        StreamWriter(first.options, COLUMNS).commit([message], 0)
    with pytest.raises(SupersededError, match=reported):
        late.write_partition(rows(1), first.query_id, 0)


def test_a_superseded_driver_hears_that_it_is_the_same_query(broker: Broker, tmp_path: Path) -> None:
    query = Query(broker, tmp_path / "checkpoint")
    message = query.plan(0).write_partition(rows(1), query.query_id, 0)
    query.plan(0)
    with pytest.raises(SupersededError, match="another driver runs this query with the same checkpoint"):
        StreamWriter(query.options, COLUMNS).commit([message], 0)


def test_the_command_shows_which_query_a_sink_is(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default name of a sink is an id, which tells a person nothing."""
    query, empty = Query(broker, tmp_path / "checkpoint"), Query(broker, tmp_path / "empty")
    query.batch(0)
    empty.batch(0, 0)
    run = Commands(query.servers, capsys)
    lines = [line.split() for line in run("spark", "sinks").splitlines()]
    assert [query.query_id, "0", query.query_id, "0", query.topic] in lines
    assert [empty.query_id, "0", empty.query_id, empty.topic] in lines
    shown = {row["sink"]: row for row in run.json("spark", "sinks")}
    assert shown[query.query_id]["decided"] == {query.query_id: 0}
    about = shown[query.query_id]["queries"][query.query_id]
    assert (about["topic"], about["checkpoint"]) == (query.topic, str(query.folder))
    assert shown[empty.query_id]["decided"] == {}


def test_a_decision_topic_with_too_few_partitions_is_refused(broker: Broker, tmp_path: Path) -> None:
    query = Query(broker, tmp_path / "checkpoint")
    for count in (1, 3):
        topic = f"{query.topic}-{count}"
        query.link.io.run(query.link.admin.create_topic(topic, count))
        with pytest.raises(ConfigurationError, match=f"topic '{topic}' has {count} partitions?; the sink needs 16"):
            query.plan(0, decision_topic=topic)


def test_brokers_that_do_not_answer_in_time_are_told_as_that(
    broker: Broker, another_process: Callable[[], None], tmp_path: Path
) -> None:
    query = Query(broker, tmp_path / "checkpoint")
    with broker.faults.swallow("InitProducerId", times=None), pytest.raises(KafkaTimeoutError, match="InitProducerId"):
        query.batch(0, step_timeout="500 ms")
    another_process()  # the connection with the request that is not answered answers no other
    assert isinstance(query.batch(0), PreparedTask)
    assert query.written() == 2
