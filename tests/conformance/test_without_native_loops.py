"""The tests of records again, with the native loops switched off.

They run in a process of their own, because the choice is made once. Only the broker's arm: Apache Kafka has no such
choice.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from fencepost.protocol.records.engine import VARIABLE
from tests.support.readme import ROOT

MODULES = (
    "test_records test_records_checked test_records_wire test_storage test_client_partitioners test_client_producer"
)


def test_records_without_the_native_loops() -> None:
    files = [f"tests/conformance/{name}.py" for name in MODULES.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    command += ["-m", "not kafka and not java"]
    outer = ("PYTEST_", "CI")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(
        command, cwd=ROOT, env={**environ, VARIABLE: "0"}, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 100
