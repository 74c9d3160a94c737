"""The benchmarks run and give every row; what they measure is nobody's test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.readme import ROOT


@pytest.mark.slow
def test_the_quick_run_has_every_row() -> None:
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
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    for row in ("confluent-kafka produce()", "send_arrow()", "confluent-kafka consume()", "poll()", "poll_arrow()"):
        assert done.stdout.count(row) == 2, f"{row}: once for each size\n{done.stdout}"
