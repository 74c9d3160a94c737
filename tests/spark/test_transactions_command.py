"""`fencepost transactions` on our broker, with a sink's transactions in every condition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.internal_records import encode_internal_batch
from fencepost.cli.main import main
from fencepost.protocol.batch import set_producer
from fencepost.spark import names, plan, wire
from fencepost.spark.plan import Level
from tests.spark.hand_played import QUERY, Bench


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["transactions", *words])
    return int(ended.value.code or 0)


def decided_and_loser(bench: Bench) -> tuple[plan.Prepared, plan.Prepared]:
    """A decided transaction that was never completed, and one that no decision names."""
    opened = bench.open()
    decided, loser = bench.task(opened, 0), bench.task(opened, 0)
    decide = plan.commit_batch(bench.sink, 0, [decided]).send(None)
    assert bench.link.io.run(bench.runner._steps.perform(decide)) == 0
    assert isinstance(decided, plan.Prepared) and isinstance(loser, plan.Prepared)
    return decided, loser


def test_list_describe_abort_and_resolve(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(broker.bootstrap_servers, Level.KEEP_PREPARED)
    decided, loser = decided_and_loser(bench)
    at = ["--bootstrap-servers", broker.bootstrap_servers]

    assert command("list", *at) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert f"decided, batch 0 of query {QUERY}" in lines[decided.transactional_id]
    assert f"sink {bench.sink}: not decided" in lines[loser.transactional_id]
    assert names.sink_id(bench.sink) not in lines
    assert command("list", "--all", *at) == 0
    assert f"sink {bench.sink}: its own" in capsys.readouterr().out

    assert command("describe", decided.transactional_id, "nobody", *at) == 0
    out = capsys.readouterr().out
    assert f"end with: {decided.pair}" in out
    assert f"partitions: {bench.topic}-0" in out
    assert "nobody\n  state: unknown to the brokers (105)" in out

    assert command("abort", decided.transactional_id, *at) == 1
    assert "use resolve" in capsys.readouterr().err
    assert command("abort", loser.transactional_id, *at) == 0
    assert command("abort", loser.transactional_id, *at) == 1
    assert "not open: CompleteAbort" in capsys.readouterr().err

    assert command("resolve", bench.sink, *at) == 0
    assert f"committed {decided.transactional_id}\n1 committed, 0 aborted\n" in capsys.readouterr().out
    assert bench.committed() == [0]
    assert bench.open_ids() == []


def test_no_decision_topic_is_made_by_looking(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        assert command("list", "-b", broker.bootstrap_servers) == 0
        assert capsys.readouterr().out == "TRANSACTIONAL ID  STATE  SPARK\n"
        bench = Bench(broker.bootstrap_servers, Level.KEEP_PREPARED)
        assert bench.link.io.run(bench.link.admin.list_topics()) == [bench.topic]


def test_no_broker_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("resolve", "some sink", "-b", "not a place") == 1
    assert capsys.readouterr().err.startswith("fencepost: ")


class Stranger:
    """Open transactions of somebody who is gone."""

    def __init__(self, broker: Broker) -> None:
        self.bench = Bench(broker.bootstrap_servers, Level.KEEP_PREPARED)
        self.at = ["--bootstrap-servers", broker.bootstrap_servers]

    def leave(self, transactional_id: str, number: int) -> None:
        bench = self.bench
        owner = bench.link.io.run(bench.link.admin.init_producer_id(transactional_id))
        batch = encode_internal_batch([(b"k", b"%d" % number)], 1_600_000_000_000)
        set_producer(batch, owner.producer_id, owner.producer_epoch, 0, True)
        cluster = bench.link.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + 20_000
        sent = wire.produce_batch(cluster, transactional_id, bench.topic, 0, batch, deadline_ms)
        assert bench.link.io.run(sent) == 0

    def open_ids(self) -> set[str]:
        listed = self.bench.link.io.run(self.bench.link.admin.list_transactions(states=("Ongoing",)))
        return {one.transactional_id for one in listed}


def test_what_a_flink_sink_left_is_finished_by_its_checkpoint(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = Stranger(broker)
    flink = stranger.bench.topic
    for number, name in enumerate((f"{flink}-0-7", f"{flink}-1-7", f"{flink}-0-8", f"{flink}-0-10", f"{flink}-eu-0-7")):
        stranger.leave(name, number)
    command_line = ["finish-flink", flink, "--checkpoint", "8", *stranger.at]
    before = stranger.open_ids()
    assert command(*command_line) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "3 to commit, 1 to abort"
    assert told[:-1] == [*(f"would commit {flink}-{one}" for one in ("0-7", "1-7", "0-8")), f"would abort {flink}-0-10"]
    assert stranger.open_ids() == before
    assert command(*command_line, "--apply") == 0
    assert capsys.readouterr().out.endswith("3 committed, 1 aborted\n")
    assert before - stranger.open_ids() == {f"{flink}-{one}" for one in ("0-7", "1-7", "0-8", "0-10")}
    assert command("list", "--prefix", f"{flink}-eu", *stranger.at) == 0
    assert f"{flink}-eu-0-7" in capsys.readouterr().out
    assert command("abort", f"{flink}-eu-0-7", *stranger.at) == 0
    assert stranger.bench.committed() == [0, 1, 2]


def test_commit_is_for_strangers_and_for_what_is_decided(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(broker.bootstrap_servers, Level.KEEP_PREPARED)
    at = ["--bootstrap-servers", broker.bootstrap_servers]
    decided, loser = decided_and_loser(bench)
    assert command("commit", loser.transactional_id, *at) == 1
    assert "will be written again" in capsys.readouterr().err
    assert command("commit", decided.transactional_id, *at) == 0
    assert command("commit", decided.transactional_id, *at) == 1
    assert "not open: CompleteCommit" in capsys.readouterr().err
    assert command("abort", loser.transactional_id, *at) == 0
    stranger = Stranger(broker)
    stranger.leave(f"{bench.topic}-7", 5)
    assert command("commit", f"{bench.topic}-7", *at) == 0
    assert (bench.committed(), stranger.bench.committed()) == ([0], [5])
