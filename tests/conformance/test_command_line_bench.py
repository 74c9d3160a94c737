"""`fencepost bench` against both brokers: every contestant moves what was asked for, and nothing stays behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import fencepost
from fencepost_lab.benchmark import clients
from tests.support.brokers import BrokerUnderTest
from tests.support.commands import Commands

CONTESTANTS = {
    "produce": {
        "confluent-kafka produce()",
        "fencepost send()",
        "fencepost send() with keys",
        "fencepost send_arrow()",
    },
    "consume": {"confluent-kafka consume()", "fencepost poll()", "fencepost poll_arrow()", "fencepost fetch_range()"},
    "transactions": {"confluent-kafka transactions", "fencepost transactions"},
}
FEW = ("--records", "400", "--rounds", "2")


@pytest.fixture
def run(broker: BrokerUnderTest, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap_servers, capsys)


def left(admin: fencepost.Admin) -> set[str]:
    return {topic for topic in admin.list_topics() if topic.startswith("bench-")}


def test_all_are_measured_and_compared(broker: BrokerUnderTest, run: Commands, admin: fencepost.Admin) -> None:
    measured = run.json("bench", *FEW, "--partitions", "2", "--size", "10", "--size", "2000", "--compression", "lz4")
    assert len(measured) == 2 * len(CONTESTANTS)
    for contest in measured:
        name = contest["name"].partition(":")[0]
        assert contest["rates"].keys() == CONTESTANTS[name]
        assert contest["yardstick"].startswith("confluent-kafka")
        for rates in contest["rates"].values():
            assert len(rates) == 2
            assert all(rate > 0 for rate in rates)
    assert "produce: values of 2000 B, partitions 2, compression lz4 ..." in run.error
    assert not left(admin)


def test_without_the_peer_it_says_so(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    printed = run("bench", "transactions", *FEW)
    assert "confluent-kafka is not installed, so there is nothing to compare with" in run.error
    assert re.search(r"fencepost transactions .* 1\.00x", printed)


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("produces",), 2, "'produces' is not one of produce, consume, transactions"),
        (("produce", "--compression", "best"), 2, "'best' is not one of none, gzip, snappy, lz4, zstd"),
        (("produce", "--start"), 2, "a broker that is started has an address of its own"),
    ],
)
def test_what_cannot_be_measured(run: Commands, words: tuple[str, ...], status: int, why: str) -> None:
    run("bench", *words, *FEW, status=status)
    assert why in re.sub(r"[\s│]+", " ", run.error)


def test_what_does_not_come_is_not_waited_for_for_ever(
    broker: BrokerUnderTest, run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes what is to be read."""
    monkeypatch.setattr(clients, "PATIENCE_S", 1.0)
    send: Callable[[clients.Load, str, int], None] = clients._send_arrow
    monkeypatch.setattr(clients, "_send_arrow", lambda load, topic, records: send(load, topic, records // 2))
    run("bench", "consume", *FEW, status=1)
    assert re.search(r"20 of 40 records came, and none for 1 s|200 of 400|are not there", run.error)


def test_ctrl_c_leaves_no_topics(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    command = [sys.executable, "-m", "fencepost", "bench", "produce", "-b", broker.bootstrap_servers]
    with subprocess.Popen(
        [*command, "--records", "50000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        while not left(admin):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, reported = process.communicate()
        watchdog.cancel()
    assert process.returncode == 128 + signal.SIGINT, reported
    assert reported.endswith("stopped\n")
    assert not left(admin)


def test_a_broker_is_started_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    from fencepost.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["bench", "transactions", "--start", *FEW])
    assert ended.value.code == 0
    assert "fencepost transactions" in capsys.readouterr().out
