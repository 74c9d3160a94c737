"""The benchmarks run and give every row; what they measure is nobody's test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from bench import (
    common,
    connections,
    memory_over_time,
    pipeline,
    raw,
    report,
    request_calls,
    request_time,
    transactions,
)
from bench.__main__ import arguments
from bench.brokers import Running
from bench.common import new_topic, own_broker
from bench.hot_requests import ROWS
from bench.sweep import Effort, run
from bench.sweeps import SWEEPS
from fencepost_lab.benchmark import contest
from fencepost_lab.benchmark.contest import Row
from tests.support.readme import ROOT


def bench(*options: str) -> str:
    """Return the output of `make bench`."""
    command = [sys.executable, "-m", "bench", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_quick_run_has_every_row(tmp_path: Path) -> None:
    figures, text = tmp_path / "bench.json", tmp_path / "performance.md"
    chosen = ("--quick", "--records", "2000", "--broker", "fencepost", "--only", "produce", "--only", "consume")
    printed = bench(*chosen, "--json", str(figures), "--markdown", str(text))
    for row in ("confluent-kafka produce()", "send_arrow()", "confluent-kafka consume()", "poll()", "poll_arrow()"):
        assert printed.count(row) == 2, f"{row}: once for each size\n{printed}"
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == 12, "two sizes, and three of ours in each direction"
    for row in rows:
        assert len(row["ours"]) == len(row["peers"]) == 1
        assert row["ratio"] == row["ours"][0] / row["peers"][0]
        assert f"| {row['name']} |" in text.read_text()


@pytest.mark.parametrize("option", ["--records", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-5", "many"])
def test_a_number_that_measures_nothing_is_refused(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", option, value])
    with pytest.raises(SystemExit) as ended:
        arguments()
    assert ended.value.code == 2
    assert f"{value!r} is no number above 0" in capsys.readouterr().err


def test_many_connections_are_each_answered() -> None:
    with own_broker() as own:
        load = connections.measure(Running(own.servers, own.pid, 0.0), 30, [b"x" * 100], 0.5, warm_up_s=0.2)
    assert load.requests_s * 0.5 > 30, "each connection writes more than one record"
    assert 0 < load.median_ms <= load.p99_ms
    assert load.processors > 0


def test_the_processor_time_of_requests_is_measured() -> None:
    with own_broker() as own:
        for row in ROWS.values():
            assert request_time.measure(own, row, 2_000) > 0


@pytest.mark.parametrize("name", [name for name in ROWS if name != "one record to each of 1,000 partitions"])
def test_the_calls_of_requests_are_counted(name: str) -> None:
    took_us, calls = request_calls.measure(name, 100)
    assert took_us > 0
    assert calls > 50


def test_a_broker_that_goes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with own_broker() as own:
        ask = connections.Asker.ask

        def ask_whom_is_killed(asker: connections.Asker) -> None:
            ask(asker)
            os.kill(own.pid, signal.SIGKILL)

        monkeypatch.setattr(connections.Asker, "ask", ask_whom_is_killed)
        with pytest.raises(ConnectionError):
            connections.measure(Running(own.servers, own.pid, 0.0), 3, [b"x" * 100], 0.5, warm_up_s=60)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the machine is busy: a second for each comparison."""
    monkeypatch.setattr(contest, "others_share", lambda: 0.0)
    monkeypatch.setattr(raw, "records_s", lambda name, size: 1e9 / size)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SWEEPS))
def test_every_sweep_fills_its_place(name: str, tmp_path: Path, quick: None) -> None:
    """With its first value, at our broker."""
    sweep = SWEEPS[name]
    page = tmp_path / "performance.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    swept = run(sweep, ["fencepost"], sweep.values[:1], Effort(1, 100))
    swept.put(page, "make bench", report.machine())
    _, _, rest = page.read_text().partition(f"<!-- sweep {name}: begin -->\n")
    filled, end, after = rest.partition(f"<!-- sweep {name}: end -->")
    assert end and "## Memory under load" in after, f"{name} has no place of its own in docs/performance.md"
    assert filled.startswith(f"![{sweep.title}](charts/{name}.svg)\n")
    assert "</svg>" in (tmp_path / "charts" / f"{name}.svg").read_text()
    rows = swept.rows()
    assert list(dict.fromkeys(row["value"] for row in rows)) == list(sweep.values[:1])
    for row in rows:
        assert f"{row['panel']} (" in filled
        assert len(row["ours"]) >= 1
        assert min(row["ours"]) > 0


def test_a_sweep_by_its_command(tmp_path: Path) -> None:
    figures = tmp_path / "bench.json"
    chosen = ("--quick", "--broker", "fencepost", "--sweep", "open-transactions", "--values", "3,5")
    assert "open transactions 3: begin, one record, commit" in bench(*chosen, "--json", str(figures))
    assert {row["value"] for row in json.loads(figures.read_text())["rows"]} == {3, 5}


def test_a_page_is_written_between_its_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n")
    report.put(page, "a", ["new"])
    report.put(page, "b", ["more"])
    assert page.read_text() == (
        "before\n<!-- a: begin -->\nnew\n<!-- a: end -->\nafter\n<!-- b: begin -->\nmore\n<!-- b: end -->\n"
    )
    page.write_text("<!-- a: begin -->\n")
    with pytest.raises(ValueError, match="has no place"):
        report.put(page, "a", ["new"])


def test_a_row_without_a_peer_has_no_ratio() -> None:
    (*_, line) = report.table([Row("alone", "ms", [2.0, 4.0, 3.0], "", [], "3 ms")])
    assert line == "| alone | ms | 3 |  |  |  |  |  | 3 ms |  |"


def test_the_rows_of_spark_are_beside_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly once is beside Spark's own connector, and beside our own at least once."""
    rates, first = contest.Contest("rows/s", pipeline.BUILT_IN), contest.Contest("s", pipeline.BUILT_IN)
    for number, name in enumerate(pipeline.CONTESTANTS, 1):
        rates.rates[name], first.rates[name] = [100.0 * number], [10.0 * number]
    monkeypatch.setattr(common, "broker", lambda which: contextlib.nullcontext("127.0.0.1:1"))
    monkeypatch.setattr(pipeline, "contests", lambda servers, rows, size, rounds: (rates, first))
    rows = {row.name: row for row in pipeline.rows(quick=True, rounds=1)}
    assert rows["Kafka to Kafka with Spark: fencepost, exactly once"].ratio == 3
    assert rows["the same: what exactly once costs"].ratio == 1.5
    assert rows["first micro-batch of a fresh driver: fencepost, exactly once"].ratio == 3


def test_memory_is_looked_at_while_records_flow(tmp_path: Path) -> None:
    page, samples = tmp_path / "performance.md", tmp_path / "memory.json"
    memory_over_time.main(["--minutes", "0.02", "--every", "0.5", "--rest", "0", "--json", str(samples)])
    hour = memory_over_time.Hour.read(samples)
    assert [memory.process for memory in hour.processes] == ["broker", "producer", "copier", "consumer"]
    assert all(memory.after > 10e6 and min(memory.resident) > 1e6 for memory in hour.processes)
    assert min(hour.done[role] for role in ("producer", "copier", "consumer")) > 0
    memory_over_time.main(["--read", str(samples), "--markdown", str(page)])
    assert "| copier | " in page.read_text()
    assert "</svg>" in (tmp_path / "charts" / "memory-fencepost.svg").read_text()


def test_the_slope_of_memory_leaves_out_the_first_tenth() -> None:
    minutes = [float(60 * number) for number in range(101)]
    leaking = [5_000_000 if at < 600 else int(100e6 + at / 3600 * 7e6) for at in minutes]
    assert memory_over_time.Memory("leaking", minutes, leaking).megabytes_an_hour == pytest.approx(7, abs=0.01)


def test_a_transaction_that_is_refused_is_told() -> None:
    with fencepost.Broker({"transaction.two.phase.commit.enable": "false"}) as broker:
        topic = new_topic(broker.bootstrap_servers)
        transactions.begin(broker.bootstrap_servers, topic, [f"id-{number}" for number in range(20)])
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            assert len(admin.list_transactions(states=["Ongoing"])) == 20
        with pytest.raises(fencepost.errors.KafkaError, match="API 22 was refused"):
            transactions.begin(broker.bootstrap_servers, topic, ["two"], two_phase=True)
