"""A short torture of our broker: every fault of a seed, both clients, a history that `check` reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fencepost import Admin, Broker
from fencepost.broker.log.partition import PartitionLog
from fencepost.cli.main import main
from fencepost_lab.check.history.file import operations_of
from fencepost_lab.check.history.model import History, Outcome
from fencepost_lab.check.report.verdict import judge
from fencepost_lab.torture import clients
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.supervisor import Torture, TortureError, TortureOptions
from fencepost_lab.torture.worker import WorkerJob


def loaded(path: Path) -> History:
    with path.open() as lines:
        return History(operations_of(lines))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "mechanism", "level"),
    [("fencepost", "SCRAM-SHA-512", "keep-prepared"), ("confluent", "PLAIN", "two-phase")],
)
def test_a_storm_leaves_a_history_without_anomalies_and_nothing_else(
    client: str, mechanism: str, level: str, tmp_path: Path
) -> None:
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": 'pass=word,"'}
    with Broker(fsync="commit", users={"alice": 'pass=word,"'}) as broker:
        access = Access(broker.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT", **login})
        options = TortureOptions(access, 0.1, 7, client, "storm-", False, tmp_path, two_phase=level)
        torture = Torture(options, lambda line: None)
        torture.run(tmp_path / "history.json")
        with Admin(**access.options()) as admin:
            assert [name for name in admin.list_topics() if name.startswith("storm-")] == []
            assert admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"]) == []
    history = loaded(tmp_path / "history.json")
    verdict = judge(history, 3)
    assert verdict.listed == []
    assert verdict.clean
    outcomes = Counter(transaction.outcome for transaction in history.transactions.values())
    assert outcomes[Outcome.COMMITTED] > 0
    assert any(transaction.decisions for transaction in history.transactions.values())
    assert verdict.records_read > 0
    assert torture.happened.total() > 0
    assert not [worker for worker in torture.processes() if worker.is_running]


@pytest.mark.slow
def test_ctrl_c_ends_the_storm_and_checks_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost", "torture", "--start", "fencepost", "--minutes", "30"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "the faults begin" not in process.stderr.readline():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        printed, reported = process.communicate()
    assert process.returncode == 0, printed + reported
    assert "stopped: checking what there is" in reported
    assert printed.endswith("no anomalies\n")
    assert loaded(tmp_path / "history.jsonl").transactions


@pytest.mark.slow
@pytest.mark.parametrize("client", ["fencepost", "confluent"])
def test_only_a_crash_of_another_client_is_counted_and_told(client: str, tmp_path: Path) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "the faults begin" in line:
            torture.processes()[0].send(signal.SIGABRT)

    with Broker() as broker:
        access = Access(broker.bootstrap_servers)
        options = TortureOptions(access, 0.1, 7, client, "storm-", False, tmp_path, faults=("cut",))
        torture = Torture(options, say)
        if client == "fencepost":
            with pytest.raises(TortureError, match="writer-0 ended by itself"):
                torture.run(tmp_path / "history.json")
            return
        torture.run(tmp_path / "history.json")
    assert torture.happened["client crashed"] == 1
    assert any(line.startswith("writer-0 crashed with SIGABRT and is restarted") for line in said)
    assert judge(loaded(tmp_path / "history.json"), 3).clean


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert clients.needs("fencepost") is None
    assert "pip install confluent-kafka" in (clients.needs("confluent") or "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client", "sarama"], "'sarama' is not one of"),
        (["--faults", "kill-moon"], "'kill-moon' is not one of"),
        (["--two-phase", "three"], "'three' is not one of two-phase"),
        ([], "is needed, unless"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["torture", *arguments, *(["--start", "fencepost"] if arguments else [])])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_broker_that_hides_what_was_aborted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "aborted_between", lambda self, start, end: [])
    jobs = Torture._jobs

    def fewer(torture: Torture, proxied: Access, chance: Random) -> Iterator[WorkerJob]:
        """Return only the jobs of writers, which abort, and of readers."""
        return (job for job in jobs(torture, proxied, chance) if job.role in ("writer", "reader"))

    monkeypatch.setattr(Torture, "_jobs", fewer)
    for minutes in (0.05, 0.5, 2.0):  # until somebody has aborted something, however busy the machine is
        work = tmp_path / str(minutes)
        work.mkdir()
        with Broker() as broker:
            options = TortureOptions(
                Access(broker.bootstrap_servers), minutes, 8, "fencepost", "storm-", False, work, faults=("cut",)
            )
            Torture(options, lambda line: None).run(tmp_path / "history.json")
        history = loaded(tmp_path / "history.json")
        aborted = [
            transaction for transaction in history.transactions.values() if transaction.outcome is Outcome.ABORTED
        ]
        if any(send.ok for transaction in aborted for send in transaction.sends):
            break
    verdict = judge(history, 1)
    assert "aborted_read" in verdict.counts
    assert [anomaly.operations[0].F for anomaly in verdict.listed if anomaly.check == "aborted_read"] == ["begin"]
