"""`fencepost spark adopt` and `release`, with real brokers and real steps of the sink, killed at each of them.

Spark's own sink is played here: its checkpoint is written as it writes it, its rows come from a plain producer.
test_adoption_by_spark.py has the same with Spark.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from fencepost.errors import KafkaError
from fencepost.spark.adoption.batch_rows import BatchRows, _piece, write_rows
from fencepost.spark.adoption.judgement import Rows, compare
from fencepost.spark.adoption.move import adopt_steps
from fencepost.spark.adoption.tail import read_tail
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.errors import SupersededError, UnknownQueryError
from fencepost.spark.sink import plan
from fencepost.spark.sink.decision import Beginning, Decision
from fencepost.spark.sink.plan_steps import PreparedTask, SkippedTask
from fencepost.spark.sink.runner import ClusterClient, SinkLink
from fencepost.spark.sink.steps import SinkConfig
from fencepost.spark.sink.writer import StreamWriter
from tests.spark.moved_query import COLUMNS, Query, forget
from tests.spark.plan_by_hand import decide
from tests.support.apache_kafka import ApacheKafka
from tests.support.readme import ROOT
from tests.unit.spark import adoption_files as files


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True, "log.retention.ms": -1}) as broker:
        yield broker


def test_a_query_that_was_stopped_in_order_goes_on_here(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path)
    with pytest.raises(UnknownQueryError, match=r"first\.batch=3"):
        query.batch(3)
    (query.folder / "offsets" / "3").unlink()
    assert query.adopt("--yes") == 0
    out = capsys.readouterr().out
    assert "source 0: Kafka offsets of orders (2 partitions), in the form of Spark's own source" in out
    assert "batches: 2 is the last one, and finished" in out
    assert "to write: the decision that batch 2 is in the output" in out
    assert query.known() == (2, 3, False)
    assert query.adopt("--yes") == 0
    assert "nothing to write" in capsys.readouterr().out
    assert isinstance(query.batch(3), PreparedTask)
    assert isinstance(query.batch(4), PreparedTask)
    assert query.output() == query.expected(4)
    assert query.adopt("--yes") == 0  # of a query that is here already
    assert query.known() == (4, 3, False)


def test_a_restored_checkpoint_of_an_adopted_query_is_refused(broker: Broker, tmp_path: Path) -> None:
    query = Query(broker, tmp_path, 5)
    assert query.adopt("--yes") == 0
    for batch_id in (3, 5):
        for path in (query.folder / "offsets").glob("[0-9]*"):
            if int(path.name) > batch_id:
                path.unlink()
        with pytest.raises(UnknownQueryError, match=f"comes with batch {batch_id}.*begin with batch 6"):
            query.batch(batch_id)


@pytest.mark.parametrize("last", [0, 2])
def test_of_a_batch_that_wrote_nothing_the_silence_of_the_output_is_proof(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], last: int
) -> None:
    query = Query(broker, tmp_path, last, begun=True)
    assert query.adopt("--yes") == 0
    out = capsys.readouterr().out
    assert "nothing was written to the output since it was planned" in out
    assert ('its first batch begins at {"orders":{"0":0,"1":0}}' in out) == (last == 0)
    assert query.known() == (last - 1 if last else None, last, False)
    assert isinstance(query.batch(last), PreparedTask)
    assert query.output() == query.expected(last)


@pytest.mark.parametrize("last", [0, 2])
def test_a_batch_that_is_there_is_not_written_again(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], last: int
) -> None:
    query = Query(broker, tmp_path, last, begun=True)
    query.produce(*query.values(last))
    assert query.adopt("--yes") == 3
    reported = capsys.readouterr().err
    assert "2 records were written to the output since it was planned" in reported and "describe_batch" in reported
    assert query.known() == (None, None, False)
    assert query.adopt("--yes", *query.describe(last)) == 0
    assert "all of its 2 rows are in the output" in capsys.readouterr().out
    assert query.known() == (last, last, False)
    assert isinstance(query.batch(last), SkippedTask)
    assert isinstance(query.batch(last + 1), PreparedTask)
    assert query.output() == query.expected(last + 1)


def test_a_batch_that_is_partly_there_needs_a_persons_word(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce("2-0")
    rows = query.describe(2)
    assert query.adopt("--yes", *rows) == 3
    assert "1 of its 2 rows is in the output, and 1 is not" in capsys.readouterr().err
    query.produce("2-1")  # a person writes what is missing
    assert query.adopt("--yes", *rows, "--begun", "again") == 1
    assert "it would be there twice" in capsys.readouterr().err
    assert query.adopt("--yes", *rows) == 0
    assert isinstance(query.batch(2), SkippedTask)
    assert query.output() == query.expected(2)


def test_the_rows_that_are_missing_are_written(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path, begun=True)
    batch_values = ["2-0", "2-0", "2-1", "2-2", "2-0"]
    query.produce("2-0", "2-2")
    assert query.adopt("--yes", *query.describe(2, batch_values), "--begun", "missing") == 1
    assert "keep_rows=True" in capsys.readouterr().err
    rows = query.describe(2, batch_values, keep=True)
    assert query.adopt("--dry-run", *rows, "--begun", "missing") == 0
    assert "the rows of the batch that are missing, in one transaction" in capsys.readouterr().out
    assert len(query.output()) == 6
    assert query.adopt("--yes", *rows, "--begun", "missing") == 0
    assert query.output() == sorted(query.expected(1) + batch_values)
    assert query.known() == (2, 2, False)
    assert query.adopt("--yes", *rows, "--begun", "missing") == 0
    assert query.output() == sorted(query.expected(1) + batch_values)


def test_rows_keep_key_headers_and_partition(broker: Broker, tmp_path: Path) -> None:
    query = Query(broker, tmp_path, begun=True)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([b"k", None, b"", b"k"], pa.binary()),
            "value": pa.array([b"2-0", b"2-1", None, b"2-3"], pa.binary()),
            "partition": pa.array([1, 0, None, 0], pa.int32()),
            "headers": pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], None, None], header),
        }
    )
    piece = _piece(batch, query.topic, keep_rows=True)
    rows = pa.ipc.open_stream(piece["rows"][0].as_py()).read_all()
    hashes = np.frombuffer(piece["hashes"][0].as_py(), "<u8")
    described = BatchRows(query.id, 2, tuple(piece["topics"][0].as_py()), hashes, rows)
    write_rows(query.rows_file, described)
    with Producer(query.servers) as producer:
        producer.send(query.topic, b"2-1", partition=0)
    arguments = ("--yes", "--rows", str(query.rows_file))
    assert query.adopt(*arguments) == 3
    assert query.adopt(*arguments, "--begun", "missing") == 0
    link = ClusterClient({"bootstrap.servers": query.servers})
    tail = read_tail(link, [query.topic], int(time.time() * 1000) - 60_000, 0)
    assert compare(Rows.of([hashes]), tail, others_write=False)[0] is BatchVerdict.WHOLE
    assert tail.after.total == 4
    with Consumer(query.servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(query.topic, 1)])
        found = [record for record in consumer.poll(5000) if record.key == b"k"]
    assert [(record.value, list(record.headers)) for record in found] == [(b"2-0", [("a", b"1"), ("a", None)])]


@pytest.mark.parametrize("point", ["begun", "sent", "committed"])
def test_killed_while_it_writes_the_missing_rows_it_writes_them_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce("2-1")
    arguments = ["--yes", *query.describe(2, keep=True), "--begun", "missing"]

    class Killed(BaseException):
        pass

    died: list[Producer] = []

    class Dying(Producer):
        """Its process dies: what is open stays open."""

        @contextlib.contextmanager
        def transaction(self, consumer: Any = None) -> Iterator[Any]:  # type: ignore[override]
            self.begin_transaction()
            if point != "begun":
                yield self
                self.flush()
            if point == "committed":
                self.commit_transaction()
            raise Killed

        def __exit__(self, *_: object) -> None:
            """Nothing is aborted."""
            died.append(self)

    with monkeypatch.context() as patch:
        patch.setattr("fencepost.spark.adoption.fill.Producer", Dying)
        with pytest.raises((Killed, RuntimeError)):
            query.adopt(*arguments)
    assert query.known() == (None, None, False)
    assert query.adopt(*arguments, "--dry-run") == (1 if point == "sent" else 0)
    assert query.adopt(*arguments) == 0
    for producer in died:
        with contextlib.suppress(KafkaError):  # it is fenced
            producer.close()
    assert query.output() == query.expected(2)
    assert isinstance(query.batch(2), SkippedTask)
    query.batch(3)
    assert query.output() == query.expected(3)


@pytest.mark.parametrize(("word", "rows"), [("again", 9), ("done", 7)])
def test_a_persons_word_counts_where_nothing_is_proved(broker: Broker, tmp_path: Path, word: str, rows: int) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce("2-0")
    assert query.adopt("--yes", "--begun", word) == 0
    query.batch(2)
    query.batch(3)
    assert len(query.output()) == rows


@pytest.mark.parametrize("routed", [False, True], ids=["option topic", "column topic"])
def test_a_batch_that_was_looked_for_in_another_topic_is_not_written(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], routed: bool
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce(*query.values(2))
    other, query.routed = f"{query.topic}-other", routed
    with Admin(query.servers) as admin:
        admin.create_topic(other, 1)
    assert query.command("adopt", "--topic", other, "--yes") == 0
    with pytest.raises(UnknownQueryError, match=f"looked for the batch in '{other}'.*--topic {query.topic},"):
        query.batch(2)
    assert query.output() == query.expected(2)
    assert query.adopt("--yes") == 3  # another topic is looked at anew
    assert "2 records were written to the output since it was planned" in capsys.readouterr().err
    assert query.adopt("--yes", *query.describe(2)) == 0
    assert isinstance(query.batch(2), SkippedTask)
    query.routed = False  # batches behind it may go to any topic
    assert isinstance(query.batch(3, topic=other), PreparedTask)
    assert query.output() == query.expected(2)


def test_a_begun_batch_that_is_in_no_topic_is_written_to_those_that_were_looked_at(
    broker: Broker, tmp_path: Path
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.routed = True
    other = f"{query.topic}-other"
    with Admin(query.servers) as admin:
        admin.create_topic(other, 1)
    assert query.command("adopt", "--topic", other, "--yes") == 0
    assert query.adopt("--topic", other, "--yes") == 0
    assert query.known() == (1, 2, False)
    assert isinstance(query.batch(2), PreparedTask)
    assert query.output() == query.expected(2)


def test_rows_of_other_programs_are_told_from_the_batchs(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce("other-1", "other-2", "other-3")
    rows = query.describe(2)
    assert query.adopt("--yes", *rows) == 3
    assert "3 records were written since" in capsys.readouterr().err
    assert query.adopt("--yes", *rows, "--other-writers") == 0
    assert isinstance(query.batch(2), PreparedTask)


def test_rows_shortly_before_the_batch_are_not_proof_unless_the_clocks_agree(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce(*query.values(2), hours_ago=10 / 3600)
    rows = query.describe(2)
    assert query.adopt("--yes", *rows) == 3
    assert "--clocks-within" in capsys.readouterr().err
    assert query.adopt("--yes", *rows, "--clocks-within", "2s") == 0
    assert query.adopt("--clocks-within", "soon") == 2


def test_deleted_records_are_no_silence(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce(*query.values(2))
    with Admin(query.servers) as admin:
        admin.delete_records({TopicPartition(query.topic, number): -1 for number in (0, 1)})
    assert query.adopt("--yes") == 3
    assert "may have been deleted" in capsys.readouterr().err


# --- kills ---


def steps_of(query: Query, last: int) -> Callable[[], plan.Plan[bool]]:
    return lambda: adopt_steps(Decision(query.id, query.id, last, ()), sink_of(query).abilities(query.id, None))


def sink_of(query: Query) -> SinkLink:
    return SinkLink(ClusterClient({"bootstrap.servers": query.servers}), SinkConfig())


def carry_out(query: Query, steps: plan.Plan[Any], count: int) -> bool:
    """The first so many steps; then the process dies. Whether the plan was over before."""
    link = sink_of(query)
    try:
        step = next(steps)
        for _ in range(count):
            step = steps.send(link._perform(step))
    except StopIteration:
        return True
    return False


@pytest.mark.parametrize("begun", [False, True])
def test_killed_at_any_step_an_adoption_is_repeated_to_the_same_end(
    broker: Broker, tmp_path: Path, begun: bool
) -> None:
    """A query whose batch 2 is in the output, noted as finished or not."""
    is_over, count = False, 0
    while not is_over:
        query = Query(broker, tmp_path / str(count), begun=begun)
        if begun:
            query.produce(*query.values(2))
        is_over = carry_out(query, steps_of(query, 2)(), count)
        count += 1
        if query.known()[0] is None:
            with pytest.raises(UnknownQueryError):  # started now, it writes nothing twice
                query.batch(2 if begun else 3)
            if not begun:
                (query.folder / "offsets" / "3").unlink()
        assert query.adopt("--yes", *(query.describe(2) if begun else [])) == 0
        assert query.known()[0] == 2
        if begun:
            assert isinstance(query.batch(2), SkippedTask)
        query.batch(3)
        assert query.output() == query.expected(3)
    assert count > 4


def test_killed_between_the_records_the_sink_knows_enough(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker, tmp_path, begun=True)
    query.produce(*query.values(2))

    def killed(self: SinkLink, beginning: Beginning) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SinkLink, "begin", killed)
        assert query.adopt("--yes", *query.describe(2)) != 0
    assert query.known() == (2, None, False)
    assert query.adopt("--yes") == 0
    assert query.known() == (2, 2, False)
    assert isinstance(query.batch(2), SkippedTask)
    assert query.output() == query.expected(2)


def test_a_query_that_runs_is_noticed_by_its_checkpoint(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path)

    def meanwhile(*_: Any, **__: Any) -> None:
        query.checkpoint(3)

    monkeypatch.setattr("fencepost.cli.adoption.confirmed", meanwhile)
    assert query.adopt() == 1
    assert "has changed meanwhile: the query runs" in capsys.readouterr().err
    assert query.known() == (None, None, False)


# --- the way back ---


def moved(broker: Broker, folder: Path) -> Query:
    """A query that came here after batch 2 and has finished batch 3."""
    query = Query(broker, folder)
    assert query.adopt("--yes") == 0
    query.batch(3)
    return query


def test_there_and_back_and_here_again(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = moved(broker, tmp_path)
    assert query.command("release", "--yes") == 0
    assert "Start the query with format('kafka')" in capsys.readouterr().out
    assert query.known() == (3, 3, True)
    assert query.command("release", "--yes") == 0
    for name in (query.id, "renamed"):
        with pytest.raises(UnknownQueryError, match=r"given back to another sink.*fencepost spark adopt"):
            query.batch(4, sink_id=name)
    query.produce(*query.values(4))
    query.produce(*query.values(5))
    query.checkpoint(5)
    with pytest.raises(UnknownQueryError, match=r"comes with batch 6"):
        query.batch(6)
    (query.folder / "offsets" / "6").unlink()
    assert query.adopt("--yes") == 0
    assert query.known() == (5, 6, False)
    query.batch(6)
    assert query.output() == query.expected(6)


def test_first_batch_says_that_a_released_query_is_back(broker: Broker, tmp_path: Path) -> None:
    query = moved(broker, tmp_path)
    assert query.command("release", "--yes") == 0
    query.batch(4, first_batch="4")
    query.batch(5)
    assert query.output() == query.expected(5)


def test_a_batch_that_is_decided_and_not_noted_is_not_given_back(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = moved(broker, tmp_path)
    forget()
    writer = query.plan(4)
    decide(writer._link(), plan.commit_batch(writer.name, 4, [query.message(writer, 4).message]))
    assert query.command("release", "--yes") == 1
    assert "batch 4 is in the output, and Spark has not noted" in capsys.readouterr().err
    assert isinstance(query.batch(4), SkippedTask)
    assert query.command("release", "--yes") == 0
    assert query.output() == query.expected(4)


def test_a_late_commit_worker_decides_nothing_after_a_release(broker: Broker, tmp_path: Path) -> None:
    """It was seen to live on for minutes after its driver's death."""
    query = moved(broker, tmp_path)
    forget()
    writer = query.plan(4)
    message = query.message(writer, 4)
    assert query.command("release", "--yes") == 0
    forget()
    with pytest.raises((SupersededError, UnknownQueryError)):
        StreamWriter(writer._options, COLUMNS).commit([message], 4)
    assert query.output() == query.expected(3)
    query.produce(*query.values(4))  # by Spark's own sink
    assert query.output() == query.expected(4)


def test_killed_at_any_step_a_release_is_repeated_to_the_same_end(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a batch that was begun here and left open: none of it may come later."""
    is_over, count = False, 0
    while not is_over:
        query = moved(broker, tmp_path / str(count))
        forget()
        query.message(query.plan(4), 4)
        is_over = carry_out(query, plan.open_sink(query.id, sink_of(query).abilities(query.id, None)), count)
        count += 1
        assert query.command("release", "--yes") == 0
        assert query.known() == (3, 3, True)
        assert query.output() == query.expected(3)
    assert count > 3


# --- Apache Kafka ---


@pytest.mark.kafka
def test_a_query_moves_at_apache_kafka_and_back(kafka_without_two_phase: ApacheKafka, tmp_path: Path) -> None:
    query = Query(kafka_without_two_phase, tmp_path, begun=True)
    query.produce("2-1")
    rows = query.describe(2, keep=True)
    assert query.adopt("--yes", *rows) == 3
    assert query.adopt("--yes", *rows, "--begun", "missing") == 0
    assert isinstance(query.batch(2), SkippedTask)
    query.batch(3)
    assert query.command("release", "--yes") == 0
    query.produce(*query.values(4))
    query.checkpoint(4)
    assert query.adopt("--yes") == 0
    query.batch(5)
    assert query.output() == query.expected(5)


# --- arguments, and what is refused ---


def test_looking_writes_nothing(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as empty:
        query = Query(empty, tmp_path)
        before = {path: path.read_bytes() for path in query.folder.rglob("*") if path.is_file()}
        assert query.adopt("--dry-run") == 0
        assert "dry run: nothing was written" in capsys.readouterr().out
        assert query.adopt() == 1  # nobody answers
        assert query.adopt("--dry-run", "--json") == 0
        out = capsys.readouterr().out
        reported = json.loads(out[out.index("{") :]) if not out.startswith("{") else json.loads(out)
        assert (reported["outcome"], reported["batch"], reported["decision"], reported["first_batch"]) == (
            "dry run",
            2,
            2,
            3,
        )
        with Admin(query.servers) as admin:
            assert (admin.list_transactions(), list(admin.list_topics())) == ([], [query.topic])
        assert {path: path.read_bytes() for path in query.folder.rglob("*") if path.is_file()} == before


def test_only_the_source_moves(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(broker, tmp_path, begun=True)
    assert query.command("adopt") == 0
    assert "only the source moves" in capsys.readouterr().out
    assert query.known() == (None, None, False)
    (query.folder / "offsets" / "2").write_bytes(files.entry("12"))
    (query.folder / "offsets" / ".2.crc").unlink()
    assert query.command("adopt") == 1
    assert "no source of the query is a Kafka source" in capsys.readouterr().err


def test_what_cannot_be_moved_is_refused_by_name(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(broker, tmp_path, begun=True)

    def refused(words: str, *arguments: str, name: str = "adopt") -> None:
        assert query.command(name, *arguments) == 1
        assert words in capsys.readouterr().err

    refused("there is no topic 'nosuch'", "--topic", "nosuch", "--yes")
    refused("describes batch 1 of query", "--topic", query.topic, *query.describe(1))
    query.describe(2)
    refused(f"rows for topic {query.topic!r}", "--topic", "orders", "--rows", str(query.rows_file))
    query.rows_file.write_bytes(query.rows_file.read_bytes() + b"12345678")
    refused("is damaged", "--topic", query.topic, "--rows", str(query.rows_file))
    query.rows_file.write_bytes(b"value\n1\n")
    refused("was not written by describe_batch", "--topic", query.topic, "--rows", str(query.rows_file))
    refused("nothing to release", name="release")
    (query.folder / "metadata").unlink()
    refused("no file 'metadata'", "--topic", query.topic)
    query.folder = tmp_path / "nosuch"
    refused("there is no folder", "--topic", query.topic)
    with pytest.raises(SystemExit) as ended:
        main(["spark", "adopt", "s3a://bucket/checkpoint", "-b", query.servers])
    assert ended.value.code == 1
    assert "is not in local files" in capsys.readouterr().err


def test_the_commands_of_the_documentation_are_as_they_stand_there(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "spark.md").read_text()
    written = [
        line.split() for line in re.findall(r"^ {4,}fencepost spark ((?:adopt|release) .*)$", text, re.MULTILINE)
    ]
    stopped, begun = Query(broker, tmp_path / "one"), Query(broker, tmp_path / "other", begun=True)
    begun.produce(*begun.values(2))
    begun.describe(2)
    seen = []
    for name, _, *words in written:
        query = begun if "--rows" in words else stopped
        replacements = {"orders-copy": query.topic, "/tmp/batch.rows": str(query.rows_file)}
        assert query.command(name, *(replacements.get(word, word) for word in words), "--yes") == 0, words
        seen.append((name, len(words)))
    assert seen == [("adopt", 2), ("adopt", 4), ("release", 0)]
    assert (stopped.known(), begun.known()) == ((2, 3, True), (2, 2, False))
