"""`fencepost transactions complete`: a decision about a prepared transaction is carried out by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.testing import read_all
from tests.support.commands import Commands


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def prepared(broker: fencepost.Broker, *, partitions: int = 1) -> str:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(partitions):
            producer.send("t", b"v", partition=partition)
        return str(producer.prepare_transaction())


def keep_prepared(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", two_phase_commit=True) as producer:
        producer.init_transactions(keep_prepared=True)


@pytest.mark.parametrize("keeps", [0, 2])
def test_the_stored_name_commits_however_often(
    broker: fencepost.Broker, capsys: pytest.CaptureFixture[str], keeps: int
) -> None:
    note = prepared(broker)
    for _ in range(keeps):
        keep_prepared(broker)
    run = Commands(broker.bootstrap_servers, capsys)
    (described,) = run.json("transactions", "describe", "x")
    assert described["prepared"] == note
    assert note in run("transactions", "list")
    for _ in range(3):
        assert f"committed {note} of x" in run("transactions", "complete", "x", note)
    assert [record.value for record in read_all(broker, "t")] == [b"v"]
    run("transactions", "complete", "x", note, "--abort", status=1)
    assert "is committed already" in run.error


def test_an_open_transaction_is_not_shown_as_prepared(
    broker: fencepost.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Commands(broker.bootstrap_servers, capsys)
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result(60)
        (described,) = run.json("transactions", "describe", "open")
        assert (described["state"], described["two_phase"], described["prepared"]) == ("Ongoing", False, None)
        assert "prepared" not in run("transactions", "describe", "open")
        (listed,) = run.json("transactions", "list")["transactions"]
        assert listed["prepared"] is None
        producer.abort_transaction()


def test_the_stored_name_aborts_and_a_commit_then_is_lost(
    broker: fencepost.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    note = prepared(broker)
    run = Commands(broker.bootstrap_servers, capsys)
    done = run.json("transactions", "complete", "x", note, "--abort")
    assert done == {"done": "aborted", "transactional_id": "x", "prepared": note, "gone": []}
    run("transactions", "complete", "x", note, "--abort")
    run("transactions", "complete", "x", note, status=1)
    assert "another client has aborted it" in run.error
    assert read_all(broker, "t") == []


@pytest.mark.parametrize(
    "name", ["", "7", "7:", ":1", "7:1:2", "a:b", "-1:0", "1:-1", "7:32768", f"{2**63}:0", "7 : 1"]
)
def test_a_name_that_is_none_is_refused(
    broker: fencepost.Broker, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    note = prepared(broker)
    run = Commands(broker.bootstrap_servers, capsys)
    run("transactions", "complete", "x", "--", name, status=2)
    (described,) = run.json("transactions", "describe", "x")
    assert described["prepared"] == note
    run("transactions", "complete", "x", note)


def test_what_nobody_can_tell_is_not_told_as_done(broker: fencepost.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Commands(broker.bootstrap_servers, capsys)
    for words in ((), ("--abort",)):
        run("transactions", "complete", "x", "7:1", *words, status=1)
        assert "it is unknown if" in run.error


def test_what_is_gone_is_named(broker: fencepost.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Commands(broker.bootstrap_servers, capsys)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2)
        note = prepared(broker, partitions=2)
        admin.delete_topic("t")
        admin.create_topic("t", 1)
        (gone, anew) = sorted(run.json("transactions", "complete", "x", note)["gone"], reverse=True)
        assert gone.startswith("t-1 does not exist any more")
        assert anew.startswith("t-0 has nothing of the transaction")
        assert gone in run.error
        note = prepared(broker)
        admin.delete_records({("t", 0): -1})
        run("transactions", "complete", "x", note)
