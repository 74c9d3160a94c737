"""The demo's command when it cannot do its work: a clear sentence, exit status 2, and nothing of others is touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from rich.console import Console

import fencepost
from bench.demo import waits
from fencepost.cli.main import main
from fencepost_lab.demo import flights, supervisor
from fencepost_lab.demo.supervisor import Demo, Options


@pytest.fixture
def capsys(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """The command ends its processes on SIGTERM; this process ends as it did before."""
    before = signal.getsignal(signal.SIGTERM)
    yield capsys
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def one_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read them all takes a second."""
    frame = pandas.DataFrame({"flight_id": [0], "carrier": ["UA"], "arr_delay": [11.0]})
    monkeypatch.setattr(flights, "load", lambda limit: frame)


def refused(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    assert ended.value.code == 2


def test_a_kafka_that_is_not_there_is_said_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, one_flight: None
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_CONTACT_MS", 1000)
    refused("--bootstrap-servers", "127.0.0.1:1")
    reported = capsys.readouterr()
    assert "could not be carried through" in reported.err
    assert "Traceback" not in reported.err


def test_topics_of_others_are_neither_written_nor_deleted(capsys: pytest.CaptureFixture[str], one_flight: None) -> None:
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("flights", b"mine").result()
        refused("--bootstrap-servers", broker.bootstrap_servers)
        assert "exist already" in capsys.readouterr().err
        with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("flights", 0)])
            assert [record.value for record in consumer.poll(5000)] == [b"mine"]


def test_a_misspelled_delivery_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused("--delivery", "twice")
    assert "exactly-once" in capsys.readouterr().err


def a_run(folder: Path) -> Demo:
    options = Options(
        seed=1, kills=1, bootstrap_servers="127.0.0.1:1", delivery="exactly-once", flights=1, keep=True, topic_prefix=""
    )
    return Demo(options, folder, Console(file=StringIO()))


def test_how_long_the_work_stood_still_is_told_for_each_kill(tmp_path: Path) -> None:
    """Two kills before one batch have both waited for it, and the batches after it had nobody to wait for."""
    run = a_run(tmp_path)
    run._take({"event": "batch", "id": 1, "rows": 10})
    run._count("worker", "kill -9 worker")
    run._count("driver", "kill -9 driver")
    for number in (2, 3):
        run._take({"event": "batch", "id": number, "rows": 10})
    run._count("worker", "kill -9 worker")
    run._take({"event": "batch", "id": 4, "rows": 10})
    reported = waits(f"  9 s  {run.counters.waited}\nverdict")
    assert {name: len(seconds) for name, seconds in reported.items()} == {"driver": 1, "worker": 2}


def test_who_has_the_id_of_a_driver_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another:
        ended: Any = SimpleNamespace(pid=another.pid, is_running=False)
        run.driver = ended
        run.close()
        another.communicate(b"\n")
    assert another.returncode == 0
