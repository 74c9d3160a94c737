"""`fencepost spark` on our broker: decisions in every condition, a batch that is lost in part, a damaged checkpoint."""

from __future__ import annotations

import io
import json
import pickle
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from fencepost.errors import ConfigurationError, PreparedTransactionLostError
from fencepost.spark import settle_lost_batch
from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.writer import StreamWriter
from tests.spark.plan_by_hand import Bench
from tests.spark.test_sink_writer import COLUMNS, rows
from tests.support.readme import ROOT
from tests.support.sink_abilities import KEEPING


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


def command(group: str, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([group, *words])
    return int(ended.value.code or 0)


class LostInPart(Bench):
    """A decided batch of three transactions: one committed, one still open, one that was aborted."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.bootstrap_servers, KEEPING)
        self.at = ["-b", broker.bootstrap_servers]
        opened = self.open()
        messages = [self.task(opened, 0) for _ in range(3)]
        self.decide(0, messages)
        self.ids = [message.transactional_id for message in messages if isinstance(message, plan_steps.PreparedTask)]
        committed, _, lost = self.ids
        assert command("transactions", "commit", committed, "--yes", *self.at) == 0
        assert command("transactions", "abort", lost, "--yes", "--even-if-decided", *self.at) == 0

    def epoch(self) -> int:
        """Of the sink's own id: every claim moves it."""
        (found,) = self.link.io.run(self.link.admin.describe_transactions([names.sink_id(self.sink)]))
        return found.producer_epoch


def test_decisions_are_shown_with_what_became_of_their_transactions(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = LostInPart(broker)
    before = bench.epoch()
    capsys.readouterr()
    assert command("spark", "decisions", bench.sink, *bench.at) == 0
    out = capsys.readouterr().out
    assert f"query {bench.query}\n  batch: 0\n  rows: 3\n  checksum: {0:016x}\n" in out
    assert "transactions: 1 committed, 1 open, 1 lost\n" in out
    for word, transactional_id in zip(("committed", "open", "lost"), bench.ids, strict=True):
        assert f"    {word} {transactional_id} (" in out
    assert command("spark", "decisions", bench.sink, "--query", bench.query, "--json", *bench.at) == 0
    reported = json.loads(capsys.readouterr().out)
    (decision,) = reported["decisions"]
    assert (reported["sink"], decision["query"], decision["batch"], decision["rows"]) == (bench.sink, bench.query, 0, 3)
    assert (decision["from"], decision["to"]) == (None, None)
    assert [
        (transaction["transactional_id"], transaction["state"]) for transaction in decision["transactions"]
    ] == list(zip(bench.ids, ("committed", "open", "lost"), strict=True))
    assert command("spark", "decisions", bench.sink, "--query", "other", *bench.at) == 1
    assert f"no decision of query 'other'; it has: {bench.query}" in capsys.readouterr().err
    assert command("spark", "sinks", *bench.at) == 0
    assert [bench.sink, "1", bench.query, "0"] in [row.split() for row in capsys.readouterr().out.splitlines()]
    assert bench.epoch() == before


def test_of_many_transactions_some_are_shown_and_the_others_counted(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    opened = bench.open()
    bench.decide(0, [bench.task(opened, 0) for _ in range(5)])
    at = ["-b", broker.bootstrap_servers]
    monkeypatch.setattr("fencepost.cli.spark.MOST_SHOWN", 2)
    assert command("spark", "decisions", bench.sink, *at) == 0
    out = capsys.readouterr().out
    assert (out.count("    open fencepost-sink/"), out.count("    open: 3 more")) == (2, 1)
    assert command("spark", "decisions", bench.sink, "--json", *at) == 0
    assert len(json.loads(capsys.readouterr().out)["decisions"][0]["transactions"]) == 5


@pytest.mark.parametrize("lost", ["accept", "again"])
def test_a_batch_that_is_lost_in_part_is_settled_when_a_person_says_how(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    bench = LostInPart(broker)
    with pytest.raises(PreparedTransactionLostError, match=f"`fencepost spark decisions {bench.sink}` shows"):
        bench.open()  # which commits the open one
    before = bench.epoch()
    words = ["forget", bench.sink, "--query", bench.query, *bench.at]
    capsys.readouterr()
    for answer in ("", "neither\n", f"{lost}\nn\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert command("spark", *words) == 1
        assert f"    lost {bench.ids[2]} (" in capsys.readouterr().out
    assert command("spark", *words, "--yes") == 2
    assert bench.epoch() == before
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert command("spark", *words, "--lost", lost) == 0
    out, err = capsys.readouterr()
    asked = {"accept": "without the rows of 1 lost", "again": "have the rows of 2 committed transactions twice"}
    assert asked[lost] in err
    assert f"committed {bench.ids[0]}\ncommitted {bench.ids[1]}\nlost {bench.ids[2]}\n" in out
    goes_on = {"accept": "continues after it", "again": "writes all of it again"}
    assert out.endswith(f"batch 0: 2 committed, 1 lost; the query {goes_on[lost]}\n")
    opened = bench.open()
    replayed = [bench.task(opened, 0) for _ in range(3)]
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, replayed)) is (lost == "again")
    assert bench.committed() == ([0, 0] if lost == "accept" else [0] * 5)


def test_what_is_not_lost_is_not_written_again_and_a_query_that_is_gone_is_forgotten(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    bench.decide(0, [bench.task(bench.open(), 0)])
    words = ["forget", bench.sink, "--query", bench.query, "--yes", "-b", broker.bootstrap_servers]
    assert command("spark", *words, "--lost", "again") == 1
    assert "no transaction of batch 0 is lost" in capsys.readouterr().err
    assert command("spark", *words, "--lost", "accept", "--json") == 0
    settled = json.loads(capsys.readouterr().out)
    assert (settled["settled"], settled["batch"], len(settled["committed"]), settled["lost"]) == ("accept", 0, 1, [])
    assert bench.committed() == [0]
    assert command("spark", "decisions", bench.sink, "-b", broker.bootstrap_servers) == 0
    assert "none that would have to be completed" in capsys.readouterr().out


def test_a_sink_or_query_that_is_not_there_is_an_error_and_leaves_nothing(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.ends(0, 5)
    asked = (
        ("decisions", "nosuch"),
        ("forget", "nosuch", "--query", "q", "--lost", "accept", "--yes"),
        ("repair", "nosuch", "--checkpoint", str(tmp_path), "--yes"),
    )
    with Broker({"transaction.two.phase.commit.enable": True}) as empty:
        for words in asked:
            assert command("spark", *words, "-b", empty.bootstrap_servers) == 1
            assert "there is no sink 'nosuch'; there are: none" in capsys.readouterr().err
        with pytest.raises(ConfigurationError, match="no decision of query 'q'"):
            settle_lost_batch(empty.bootstrap_servers, "nosuch", "q", lost="accept")
        with Admin(empty.bootstrap_servers) as admin:
            assert (admin.list_transactions(), admin.list_topics()) == ([], [])
    bench = Bench(broker.bootstrap_servers, KEEPING)
    at = ["-b", broker.bootstrap_servers]
    bench.decide(0, [bench.task(bench.open(), 0)])
    open_ids = bench.open_ids()
    assert command("spark", "forget", bench.sink, "--query", "q", "--lost", "accept", "--yes", *at) == 1
    assert command("spark", "repair", bench.sink, "--checkpoint", str(tmp_path), "--yes", *at) == 1
    assert command("spark", "repair", bench.sink, "--checkpoint", "s3a://b/cp", "--yes", *at) == 1
    reported = capsys.readouterr().err
    assert reported.count(f"it has: {bench.query}") == 2 and "is not a checkpoint in local files" in reported
    assert bench.open_ids() == open_ids


class Checkpoint:
    """As Spark writes it: whose it is, and where each batch ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.query = folder, f"{uuid.uuid4().hex[:8]}-query"
        (folder / "metadata").write_text(json.dumps({"id": self.query}))
        (folder / "offsets").mkdir()

    def ends(self, batch_id: int, at: int) -> Path:
        path = self.folder / "offsets" / str(batch_id)
        path.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"in":{{"0":{at}}}}}')
        return path


class Planned:
    """A sink that has written two batches with a checkpoint, which then loses the second."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.name = f"planned-{uuid.uuid4().hex[:8]}"
        self.at = ["-b", broker.bootstrap_servers]
        self.folder = folder
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(self.name, 1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": self.name, "sink.id": self.name}
        options["checkpointlocation"] = str(folder)
        checkpoint = Checkpoint(folder)
        for batch in range(2):
            checkpoint.ends(batch, 10 * (batch + 1))
            writer: StreamWriter = pickle.loads(pickle.dumps(StreamWriter(options, COLUMNS)))
            StreamWriter(options, COLUMNS).commit([writer.write_partition(rows(3), checkpoint.query, batch)], batch)
        self.other = checkpoint.ends(1, 35)


def test_a_checkpoint_is_repaired_from_the_decision_once_a_person_has_seen_how(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sink = Planned(broker, tmp_path)
    found = sink.other.read_text()
    words = ["repair", sink.name, "--checkpoint", str(tmp_path), *sink.at]
    for answer in ("", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert command("spark", *words) == 1
        out, err = capsys.readouterr()
        assert f'{sink.other}: ends at {{"in":{{"0":35}}}}; is to end at {{"in":{{"0":20}}}}\n' in out
        assert '  from: {"in":{"0":10}}\n  to: {"in":{"0":20}}\n  transactions: 1 committed\n' in out
        assert "Write 1 file " in err
        assert sink.other.read_text() == found
    assert command("spark", *words, "--yes", "--json") == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["file"], change["was"]) == (str(sink.other), found)
    assert sink.other.read_text() == change["becomes"] == found.replace("35", "20")
    assert sink.other.with_name(".1.replaced").read_text() == found
    assert command("spark", *words) == 0  # and there is nothing to be asked
    assert "nothing to repair" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "differs"), [(20, False), (35, True)])
def test_a_release_names_offsets_that_are_not_those_of_the_decision(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, end: int, differs: bool
) -> None:
    sink = Planned(broker, tmp_path)
    (tmp_path / "commits").mkdir()
    for number, at in enumerate((10, end)):
        facts = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000}
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{json.dumps(facts)}\n{{"in":{{"0":{at}}}}}')
        (tmp_path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    words = ["release", str(tmp_path), "--sink-id", sink.name, *sink.at, "--dry-run"]
    assert command("spark", *words) == 0
    assert (
        "the checkpoint has other source offsets for this batch than the sink's decision" in capsys.readouterr().out
    ) is differs
    assert command("spark", *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["offsets_differ"] is differs


@pytest.mark.parametrize(
    "content", [b"", bytes(1230), b"v1\n{}\n" + b"[" * 9000, b"v1\n{}", b"v1\n{}\n9" + b"9" * 9000]
)
def test_damaged_offsets_are_quoted_in_short(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    sink = Planned(broker, tmp_path)
    sink.other.write_bytes(content)
    assert command("spark", "repair", sink.name, "--checkpoint", str(tmp_path), *sink.at, "--dry-run") == 0
    out, _ = capsys.readouterr()
    assert f"{sink.other}: is damaged: " in out
    assert out.isprintable() or not set(out) & set("\0\r")
    assert max(map(len, out.splitlines())) < 400


@pytest.mark.parametrize("harm", ["bytes", "folder"])
def test_offsets_that_are_no_text_are_repaired_as_well(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, harm: str
) -> None:
    sink = Planned(broker, tmp_path)
    sink.other.unlink()
    if harm == "folder":
        sink.other.mkdir()
    else:
        sink.other.write_bytes(b"v1\n{}\n\xff\xfe")
    words = ["repair", sink.name, "--checkpoint", str(tmp_path), *sink.at]
    assert command("spark", *words, "--yes") == 0
    out, err = capsys.readouterr()
    assert f'{sink.other}: cannot be read as text; is to end at {{"in":{{"0":20}}}}\n' in out
    assert "1 file written" in err
    assert sink.other.read_text().endswith('{"in":{"0":20}}')
    assert sink.other.with_name(".1.replaced").exists()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("gone", "there is no file 'metadata', so this is not the checkpoint of a query"),
        ("bytes", "the file 'metadata' does not tell the query's id: it is damaged or cannot be read"),
        ("folder", "the file 'metadata' does not tell the query's id: it is damaged or cannot be read"),
        ("another place", "there is no folder"),
    ],
)
def test_repair_says_why_a_checkpoint_does_not_tell_its_query(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, harm: str, reason: str
) -> None:
    sink = Planned(broker, tmp_path)
    metadata, folder = tmp_path / "metadata", tmp_path
    if harm == "another place":
        folder = tmp_path / "none"
    else:
        metadata.unlink()
    if harm == "bytes":
        metadata.write_bytes(b"\xff\xfe{")
    elif harm == "folder":
        metadata.mkdir()
    assert command("spark", "repair", sink.name, "--checkpoint", str(folder), "--yes", *sink.at) == 1
    assert reason in capsys.readouterr().err


def test_the_commands_of_the_documentation_are_as_they_stand_there(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written = re.findall(r"^ {4,}fencepost spark (.*)$", (ROOT / "docs" / "spark.md").read_text(), re.MULTILINE)
    bench, sink = LostInPart(broker), Planned(broker, tmp_path)
    seen = set()
    for line in written:
        words = line.partition("#")[0].split()
        if words[0] in ("adopt", "release") or "--replan" in words:  # test_adoption.py and test_replan.py have them
            continue
        seen.add(words[0])
        name = sink.name if words[0] == "repair" else bench.sink
        replacements = {"orders-copy": name, "QUERY": bench.query, "/data/checkpoints/orders-copy": str(tmp_path)}
        extra: list[Any] = ["--yes"] if words[0] in ("repair", "forget") else []
        assert command("spark", *(replacements.get(word, word) for word in words), *extra, *bench.at) == 0, line
    assert seen == {"sinks", "decisions", "repair", "forget"}
    assert sink.other.read_text().endswith('{"in":{"0":20}}')
    assert "1 lost; the query continues after it" in capsys.readouterr().out
    bench.open()


@pytest.mark.parametrize("name", ["sinks", "decisions", "repair", "forget", "adopt", "release"])
def test_every_command_has_an_example_that_it_takes(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert command("spark", name, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"Example: fencepost spark {name} ", text)
