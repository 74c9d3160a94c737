"""`fencepost transactions` on our broker, with a sink's transactions in every condition."""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost import Admin, Producer
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from fencepost.errors import ConfigurationError
from fencepost.protocol.records.batch import set_producer
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.spark.errors import UnfinishedSinkError
from fencepost.spark.sink import names, plan, plan_steps, wire
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.runner import resolve_sink
from tests.spark.plan_by_hand import Bench
from tests.support.older_kafka import OlderKafka
from tests.support.sink_abilities import KEEPING, ONE_PHASE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True, "log.retention.ms": -1}) as broker:
        yield broker


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *words])
    return int(ended.value.code or 0)


def decided_and_loser(bench: Bench) -> tuple[plan_steps.PreparedTask, plan_steps.PreparedTask]:
    """A decided transaction that was never completed, and one that no decision names."""
    opened = bench.open()
    decided, loser = bench.task(opened, 0), bench.task(opened, 0)
    bench.decide(0, [decided])
    assert isinstance(decided, plan_steps.PreparedTask) and isinstance(loser, plan_steps.PreparedTask)
    return decided, loser


def test_list_describe_abort_and_resolve(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    decided, loser = decided_and_loser(bench)
    at = ["--bootstrap-servers", broker.bootstrap_servers]

    assert command("list", *at) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert f"decided, batch 0 of query {bench.query}" in lines[decided.transactional_id]
    assert f"sink {bench.sink}: not decided" in lines[loser.transactional_id]
    assert names.sink_id(bench.sink) not in lines
    assert command("list", "--all", *at) == 0
    assert f"sink {bench.sink}: its own" in capsys.readouterr().out

    assert command("describe", decided.transactional_id, "nobody", *at) == 1
    out = capsys.readouterr().out
    next_pair = replace(decided.pair, epoch=decided.pair.epoch + 1)  # before it was decided it was kept
    assert f"end with: {next_pair}" in out
    assert f"partitions: {bench.topic}-0" in out
    assert "nobody\n  state: unknown to the brokers: TRANSACTIONAL_ID_NOT_FOUND (105)" in out
    assert "  age: " in out
    assert "timeout: none: it waits for a decision" in out

    assert command("abort", decided.transactional_id, *at) == 1
    assert "use resolve" in capsys.readouterr().err
    assert command("abort", loser.transactional_id, "--yes", *at) == 0  # a loser is never prepared
    assert command("abort", loser.transactional_id, "--yes", *at) == 1
    assert "not open: CompleteAbort" in capsys.readouterr().err

    assert command("resolve", bench.sink, *at) == 0
    assert f"committed {decided.transactional_id}\n1 committed, 0 aborted\n" in capsys.readouterr().out
    assert bench.committed() == [0]
    assert bench.open_ids() == []


def test_no_decision_topic_is_made_by_looking(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        assert command("list", "-b", broker.bootstrap_servers) == 0
        assert capsys.readouterr().out == "TRANSACTIONAL ID  STATE  PREPARED  AGE  PARTITIONS  SPARK\n"
        bench = Bench(broker.bootstrap_servers, KEEPING)
        assert bench.link.io.run(bench.link.admin.list_topics()) == [bench.topic]


def test_no_broker_is_said_in_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.cli.cluster_settings.REACH_MS", 300)
    assert command("resolve", "some sink", "-b", "127.0.0.1:1") == 1
    assert capsys.readouterr().err.startswith("fencepost: ")
    assert command("resolve", "some sink", "-b", "not a place") == 2
    assert "bootstrap address 'not a place': a host name has no spaces" in capsys.readouterr().err


class ForeignTransactions:
    """Open transactions of somebody who is gone."""

    def __init__(self, broker: Broker) -> None:
        self.bench = Bench(broker.bootstrap_servers, KEEPING)
        self.at = ["--bootstrap-servers", broker.bootstrap_servers]

    def leave(self, transactional_id: str, number: int) -> None:
        bench = self.bench
        owner = bench.link.io.run(bench.link.admin.init_producer_id(transactional_id))
        batch = encode_pairs([(b"k", b"%d" % number)], 1_600_000_000_000)
        set_producer(batch, owner.producer_id, owner.producer_epoch, 0, True)
        cluster = bench.link.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + 20_000
        sent = wire.produce_batch(cluster, transactional_id, bench.topic, 0, batch, deadline_ms)
        assert bench.link.io.run(sent) == 0

    def open_ids(self) -> set[str]:
        listed = self.bench.link.io.run(self.bench.link.admin.list_transactions(states=("Ongoing",)))
        return {listing.transactional_id for listing in listed}


def test_what_a_flink_sink_left_is_finished_by_its_checkpoint(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = ForeignTransactions(broker)
    flink = foreign.bench.topic
    numbers = ("0-4710", "1-4710", "0-4711", "0-4713", "eu-0-4710")
    for number, name in enumerate(numbers):
        foreign.leave(f"{flink}-{name}", number)
    command_line = ["finish-flink", flink, "--checkpoint", "4711", *foreign.at]
    before = foreign.open_ids()
    assert command(*command_line, "--dry-run") == 0
    reported = capsys.readouterr().out.splitlines()
    assert reported[-1] == "3 to commit, 1 to abort"
    assert reported[:-1] == [
        *(f"would commit {flink}-{suffix}" for suffix in numbers[:3]),
        f"would abort {flink}-0-4713",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert command(*command_line) == 1
    out, err = capsys.readouterr()
    asked = [*(f"commit {flink}-{suffix}" for suffix in numbers[:3]), f"abort {flink}-0-4713"]
    assert (out, err.splitlines()[:-1]) == ("", asked)
    assert err.splitlines()[-1] == "Commit 3 and abort 1? [y/N]: fencepost: nothing was done: the answer was not yes"
    assert foreign.open_ids() == before
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert command(*command_line) == 0
    assert capsys.readouterr().out.endswith("3 committed, 1 aborted\n")
    assert before - foreign.open_ids() == {f"{flink}-{suffix}" for suffix in numbers[:4]}
    assert command("list", "--prefix", f"{flink}-eu", *foreign.at) == 0
    assert f"{flink}-eu-0-4710" in capsys.readouterr().out
    assert command("abort", f"{flink}-eu-0-4710", "--yes", *foreign.at) == 0
    assert foreign.bench.committed() == [0, 1, 2]


@pytest.mark.parametrize(
    ("numbers", "checkpoint"),
    [(("0-0", "0-1"), "4711"), (("0-1",), "4711"), (("0-3",), "5"), (("0-31", "1-30"), "3")],
)
def test_pooled_names_of_a_flink_sink_are_not_taken_for_checkpoints(
    broker: Broker, capsys: pytest.CaptureFixture[str], numbers: tuple[str, ...], checkpoint: str
) -> None:
    """POOLING takes the smallest free number: of 0-0 and 0-1 either may be what the savepoint lists."""
    foreign = ForeignTransactions(broker)
    ids = {f"{foreign.bench.topic}-{suffix}" for suffix in numbers}
    for number, transactional_id in enumerate(sorted(ids)):
        foreign.leave(transactional_id, number)
    command_line = ["finish-flink", foreign.bench.topic, "--checkpoint", checkpoint, *foreign.at]
    for more in ("--dry-run", "--yes"):
        assert command(*command_line, more) == 1
        out, err = capsys.readouterr()
        assert "TransactionNamingStrategy.POOLING" in err and "commit" not in out
        assert "Start the job from the savepoint, stop it with a new one" in err
    assert ids <= foreign.open_ids()
    assert command(*command_line, "--named-by-checkpoint", "--dry-run") == 0
    to_commit = sum(int(suffix.rpartition("-")[2]) <= int(checkpoint) for suffix in numbers)
    assert f"{to_commit} to commit, {len(numbers) - to_commit} to abort" in capsys.readouterr().out


def test_commit_is_for_strangers_and_for_what_is_decided(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    at = ["--bootstrap-servers", broker.bootstrap_servers]
    decided, loser = decided_and_loser(bench)
    assert command("commit", loser.transactional_id, *at) == 1
    assert "will be written again" in capsys.readouterr().err
    assert command("commit", decided.transactional_id, "--yes", *at) == 0
    assert command("commit", decided.transactional_id, "--yes", *at) == 1
    assert "not open: CompleteCommit" in capsys.readouterr().err
    assert command("abort", loser.transactional_id, "--yes", "--even-if-prepared", *at) == 0
    foreign = ForeignTransactions(broker)
    foreign.leave(f"{bench.topic}-7", 5)
    capsys.readouterr()
    assert command("commit", f"{bench.topic}-7", "--yes", "--json", *at) == 0
    assert json.loads(capsys.readouterr().out) == {"done": "committed", "transactional_id": f"{bench.topic}-7"}
    assert (bench.committed(), foreign.bench.committed()) == ([0], [5])


@pytest.fixture(scope="module", params=[0, pytest.param("3.9.1", marks=[pytest.mark.kafka, pytest.mark.slow])])
def older(request: pytest.FixtureRequest) -> Iterator[Broker | OlderKafka]:
    """Yield a broker whose transactions have no epoch of their own: EndTxn v5 differs there, or is missing."""
    with (
        Broker({"transaction.version": 0, "log.retention.ms": -1})
        if request.param == 0
        else OlderKafka(request.param) as running
    ):
        yield running


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_transactions_of_older_brokers_are_ended_too(
    older: Broker | OlderKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    name = f"x-{uuid.uuid4().hex[:8]}"
    with Admin(older.bootstrap_servers) as admin:
        admin.create_topic(name)
    producer = Producer(older.bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"left").result(60)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert command(verb, name, "-b", older.bootstrap_servers) == 0
    out, err = capsys.readouterr()
    assert "Stop its producer first: this cluster cannot tell its next transaction from this one." in err
    assert out == ("committed" if verb == "commit" else "aborted") + f" {name}\n"
    assert command("describe", name, "--json", "-b", older.bootstrap_servers) == 0
    (fact,) = json.loads(capsys.readouterr().out)
    assert fact["state"] in (f"Complete{verb.capitalize()}", f"Prepare{verb.capitalize()}")
    producer.close(0)


class PreparedTask:
    """A prepared transaction that a program left, with its state stored elsewhere, and a record behind it."""

    def __init__(self, broker: Broker) -> None:
        self.at = ["-b", broker.bootstrap_servers]
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.id = f"{self.topic}-book"
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(self.topic, 2)
        self.producer = Producer(broker.bootstrap_servers, transactional_id=self.id, two_phase_commit=True)
        with self.producer as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(self.topic, b"book", partition=1)
            self.state = producer.prepare_transaction()
        with Producer(broker.bootstrap_servers) as other:
            for number in range(5):
                other.send(self.topic, b"later %d" % number, partition=1)

    def is_open(self) -> bool:
        with Admin(self.at[1]) as admin:
            (found,) = admin.describe_transactions([self.id])
        return found.state == "Ongoing"


@pytest.fixture
def prepared(broker: Broker) -> PreparedTask:
    return PreparedTask(broker)


@pytest.mark.parametrize("verb", ["abort", "commit"])
def test_a_prepared_transaction_is_not_ended_unasked(
    prepared: PreparedTask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    assert command(verb, prepared.id, "--yes", *prepared.at) == 1
    assert "whoever keeps its state is to decide it" in capsys.readouterr().err
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert command(verb, prepared.id, "--even-if-prepared", *prepared.at) == 1
        assert f"{verb.capitalize()} {prepared.id} (" in capsys.readouterr().err
    assert prepared.is_open()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert command(verb, prepared.id, "--even-if-prepared", *prepared.at) == 0
    assert not prepared.is_open()


def test_list_shows_age_partitions_and_what_holds_readers_back(
    prepared: PreparedTask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("list", "--prefix", prepared.id, *prepared.at) == 0
    out = capsys.readouterr().out
    (line,) = [row for row in out.splitlines() if row.startswith(f"{prepared.id} ")]
    assert "two-phase: prepared" in line and f"{prepared.topic}-1" in line and re.search(r" \d+(\.\d)? m?s ", line)
    (held,) = [row.split() for row in out.splitlines() if row.startswith(f"{prepared.topic}-1 ")]
    assert held == [f"{prepared.topic}-1", "0", "6", prepared.id]

    assert command("list", "--prefix", "nobody's", "--topic", prepared.topic, "--json", *prepared.at) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["transactions"] == []
    assert reported["held_back"] == [
        {"partition": f"{prepared.topic}-1", "last_stable_offset": 0, "behind": 6, "held_by": prepared.id}
    ]
    assert command("describe", prepared.id, "--json", *prepared.at) == 0
    (fact,) = json.loads(capsys.readouterr().out)
    assert (fact["two_phase"], fact["timeout_ms"], fact["partitions"]) == (True, None, [f"{prepared.topic}-1"])
    assert fact["prepared"] == str(prepared.state)
    assert fact["age_s"] >= 0
    assert command("describe", "nobody", "--json", *prepared.at) == 1
    (fact,) = json.loads(capsys.readouterr().out)
    assert (fact["state"], fact["age_s"], fact["error"]) == (None, None, "TRANSACTIONAL_ID_NOT_FOUND (105)")
    assert command("abort", prepared.id, "--yes", "--even-if-prepared", *prepared.at) == 0
    capsys.readouterr()
    assert command("describe", prepared.id, "--json", *prepared.at) == 0
    (fact,) = json.loads(capsys.readouterr().out)
    assert (fact["state"], fact["age_s"], fact["two_phase"]) == ("CompleteAbort", None, False)
    assert command("list", "--topic", "nowhere", *prepared.at) == 1
    assert "there is no topic 'nowhere'" in capsys.readouterr().err


def test_a_sink_that_is_not_there_is_an_error_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        assert command("resolve", "nosuchsink", "-b", broker.bootstrap_servers) == 1
        assert "there is no sink 'nosuchsink'; there are: none" in capsys.readouterr().err
        with pytest.raises(ConfigurationError, match="there is no sink 'nosuchsink'"):
            resolve_sink(broker.bootstrap_servers, "nosuchsink")
        with Admin(broker.bootstrap_servers) as admin:
            assert (admin.list_transactions(), admin.list_topics()) == ([], [])


def test_sinks_are_listed_with_what_they_have_decided(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    decided_and_loser(bench)
    assert command("sinks", "-b", broker.bootstrap_servers) == 0
    (line,) = [row.split() for row in capsys.readouterr().out.splitlines() if row.startswith(bench.sink)]
    assert line == [bench.sink, "2", bench.query, "0"]
    assert command("sinks", "--json", "-b", broker.bootstrap_servers) == 0
    shown = {"sink": bench.sink, "open": 2, "decided": {bench.query: 0}, "queries": {bench.query: {}}}
    assert shown in json.loads(capsys.readouterr().out)


def test_what_another_sink_has_written_is_not_committed_again(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        old, new = (Bench(broker.bootstrap_servers, KEEPING) for _ in range(2))
        decided_and_loser(old)
        new.query = old.query
        new.runner.run(plan.commit_batch(new.sink, 0, [new.task(new.open(), 0)]))
        at = ["-b", broker.bootstrap_servers]
        assert command("resolve", old.sink, *at) == 1
        reported = capsys.readouterr().err
        assert f"sink {new.sink!r} has decided batch 0" in reported and "--even-if-written-again" in reported
        with pytest.raises(UnfinishedSinkError):
            resolve_sink(broker.bootstrap_servers, old.sink)
        assert len(old.open_ids()) == 2
        assert command("resolve", old.sink, "--even-if-written-again", *at) == 0
        assert "1 committed, 1 aborted" in capsys.readouterr().out
        assert command("resolve", new.sink, *at) == 0


def test_a_secured_cluster_is_reached_with_a_properties_file_or_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "client.properties"
    with Broker(users={"ann": "secret"}) as broker:
        login.write_text(
            f"# as for Kafka's tools\nbootstrap.servers={broker.bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism = PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="ann" password="secret";\n'
        )
        assert command("list", "--command-config", str(login)) == 0
        assert "TRANSACTIONAL ID" in capsys.readouterr().out
        for name, value in {
            "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SASL_USERNAME": "ann",
            "SASL_PASSWORD": "no",
        }.items():
            monkeypatch.setenv(f"FENCEPOST_{name}", value)
        assert command("list", "-b", broker.bootstrap_servers) == 1
        assert "Authentication failed" in capsys.readouterr().err
        monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", "secret")
        assert command("list", "-b", broker.bootstrap_servers) == 0
        login.write_text("# a line that java.util.Properties refuses\nsasl.password=secret\\u00zz\n")
        assert command("list", "--command-config", str(login)) == 2
        reported = capsys.readouterr().err
        assert "line 2" in reported and "secret" not in reported


def meanings(bench: Bench, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """By transactional id: what `list` says each of the sink's is to it."""
    capsys.readouterr()
    assert command("list", "--json", "--prefix", names.sink_id(bench.sink), "-b", bench.servers, *words) == 0
    reported = json.loads(capsys.readouterr().out)["transactions"]
    return {
        transaction["transactional_id"]: transaction["spark"].removeprefix(f"sink {bench.sink}: ")
        for transaction in reported
    }


@pytest.mark.parametrize("abilities", [KEEPING, ONE_PHASE])
def test_what_is_over_is_not_called_undecided(abilities: BrokerAbilities, capsys: pytest.CaptureFixture[str]) -> None:
    """A decision is kept until its query's next one: what older batches have written is written all the same."""
    with Broker({"transaction.two.phase.commit.enable": abilities == KEEPING}) as broker:
        bench = Bench(broker.bootstrap_servers, abilities)
        written: list[str] = []
        lost: list[str] = []
        for number in range(2):
            opened = bench.open()
            winner, loser = bench.task(opened, number), bench.task(opened, number)
            assert isinstance(winner, plan_steps.PreparedTask) and isinstance(loser, plan_steps.PreparedTask)
            assert bench.runner.run(plan.commit_batch(bench.sink, number, [winner])) is True
            written.append(winner.transactional_id)
            lost.append(loser.transactional_id)
        assert sorted(bench.committed()) == [0, 1]
        reported = meanings(bench, capsys, "--all")
        assert reported[written[0]] == "committed"
        assert reported[written[1]] == f"decided, batch 1 of query {bench.query}: committed"
        assert [reported[each] for each in lost] == ["aborted", "aborted"]
        assert meanings(bench, capsys) == {}
        for verb in ("commit", "abort"):
            for over in written:
                assert command(verb, over, "--yes", "-b", bench.servers) == 1
                assert f"{over} is not open: CompleteCommit" in capsys.readouterr().err
        running = bench.task(bench.open(), 2)
        assert isinstance(running, plan_steps.PreparedTask)
        assert meanings(bench, capsys) == {running.transactional_id: "not decided"}


def test_a_decided_transaction_that_was_aborted_is_called_lost(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(broker.bootstrap_servers, KEEPING)
    decided, loser = decided_and_loser(bench)
    named = f"decided, batch 0 of query {bench.query}: "
    assert meanings(bench, capsys) == {
        decided.transactional_id: f"{named}to be committed",
        loser.transactional_id: "not decided",
    }
    words = (decided.transactional_id, "--even-if-decided", "--yes", "-b", bench.servers)
    assert command("abort", *words) == 0
    assert meanings(bench, capsys, "--all")[decided.transactional_id] == f"{named}lost, its rows are not in the topic"
