"""The benchmarks run and give every row; what they measure is nobody's test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench import connections
from bench.brokers import Running
from bench.common import own_broker
from tests.support.readme import ROOT


@pytest.mark.slow
def test_the_quick_run_has_every_row(tmp_path: Path) -> None:
    figures, text = tmp_path / "bench.json", tmp_path / "performance.md"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--broker",
        "fencepost",
        "--only",
        "produce",
        "--only",
        "consume",
        *("--json", str(figures), "--markdown", str(text)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    for row in ("confluent-kafka produce()", "send_arrow()", "confluent-kafka consume()", "poll()", "poll_arrow()"):
        assert done.stdout.count(row) == 2, f"{row}: once for each size\n{done.stdout}"
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == 12, "two sizes, and three of ours in each direction"
    for row in rows:
        assert len(row["ours"]) == len(row["peers"]) == 1
        assert row["ratio"] == row["ours"][0] / row["peers"][0]
        assert f"| {row['name']} |" in text.read_text()


def test_many_connections_are_each_answered() -> None:
    with own_broker() as own:
        load = connections.measure(Running(own.servers, own.pid, 0.0), 30, [b"x" * 100], 0.5, warm_up_s=0.2)
    assert load.requests_s * 0.5 > 30, "each connection writes more than one record"
    assert 0 < load.median_ms <= load.p99_ms
    assert load.processors > 0


def test_a_broker_that_goes_is_told() -> None:
    with own_broker() as own:
        threading.Timer(0.5, os.kill, (own.pid, signal.SIGKILL)).start()
        with pytest.raises(ConnectionError):
            connections.measure(Running(own.servers, own.pid, 0.0), 3, [b"x" * 100], 0.5, warm_up_s=60)
