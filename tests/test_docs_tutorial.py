"""docs/tutorial.md as a newcomer follows it: its programs in one folder, its commands in order, with the output shown.

Only the port is another, so that the test does not meet a broker that already listens.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from fencepost_lab.torture.child_process import free_port
from tests.spark.session import jvm_options
from tests.support.readme import ROOT, console_blocks

PAGE = ROOT / "docs" / "tutorial.md"
PORT = "9092"
BLOCK = re.compile(r'^```python title="(.+?)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
INSTALLS = re.compile(r"(python3 -m venv|\. |pip install) ?.*")
"""Commands that the environment of the tests replaces."""


class Step(NamedTuple):
    """A command of the page, and the lines shown below it."""

    command: str
    shown: tuple[str, ...]


def programs() -> dict[str, str]:
    """Return the text of each program by its file name."""
    return dict(BLOCK.findall(PAGE.read_text()))


def steps() -> list[Step]:
    """Return all commands in the order of the page."""
    return [Step(*each) for block in console_blocks(PAGE.read_text()) for each in block.commands]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the programs of the page into a folder, with the commands of this environment in PATH."""
    port = str(free_port())
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "fencepost"
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom fencepost.cli.main import main\n\nsys.exit(main())\n")
    command.chmod(0o755)
    python = tmp_path / "bin" / "python"  # a link to it would not find the packages beside it
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name, text in programs().items():
        assert PORT in text, name
        (tmp_path / name).write_text(text.replace(PORT, port))
    (tmp_path / "port").write_text(port)
    return tmp_path


def start(step: Step, folder: Path, output: int | IO[str]) -> subprocess.Popen[str]:
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    port = (folder / "port").read_text()
    return subprocess.Popen(
        ["bash", "-c", step.command.replace(PORT, port)],
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "NO_COLOR": "1",
            "SPARK_SUBMIT_OPTS": jvm_options(),
            "FENCEPOST_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        },
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
    process.wait(60)


def is_shown(lines: tuple[str, ...], printed: str) -> bool:
    """Say if these lines were printed in this order. "..." stands for any text within a line, "…" for more lines."""
    pattern = "(?s:.*?)".join(
        "^" + ".*".join(re.escape(piece) for piece in line.split("...")) + "$" for line in lines if line != "…"
    )
    return re.search(pattern, printed, re.MULTILINE) is not None


def run(step: Step, folder: Path) -> str:
    process = start(step, folder, subprocess.PIPE)
    try:
        printed, _ = process.communicate(timeout=900)
    finally:
        end(process, signal.SIGKILL)
    assert process.returncode == 0, f"$ {step.command}\n{printed}"
    assert is_shown(step.shown, printed), f"$ {step.command}\nthe page shows {step.shown}, printed was:\n{printed}"
    return printed


def serve(step: Step, folder: Path) -> subprocess.Popen[str]:
    """Start a broker and wait until it prints the line of the page."""
    (line,) = step.shown
    wanted = line.replace(PORT, (folder / "port").read_text())
    log = folder / "broker.txt"
    with open(log, "w") as output:
        process = start(step, folder, output)
    deadline = time.monotonic() + 120
    while wanted not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return process


def test_shown_lines_are_compared_with_their_numbers() -> None:
    assert is_shown(("killed after ... records", "0 missing"), "x\nkilled after 70 records\ny\n0 missing\n")
    assert not is_shown(("0 missing",), "10 missing\n")
    assert not is_shown(("a", "b"), "b\na\n")


def test_every_program_is_used() -> None:
    commands = " ".join(step.command for step in steps())
    assert len(programs()) == 6
    assert [name for name in programs() if name not in commands] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_the_tutorial(folder: Path) -> None:
    """The plain program doubles records; the others neither lose nor double one."""
    brokers = []
    printed: dict[str, str] = {}
    try:
        for step in steps():
            if INSTALLS.fullmatch(step.command):
                continue
            if step.command.startswith("fencepost broker "):
                brokers.append(serve(step, folder))
            else:
                printed[step.command] = run(step, folder)
        assert len(brokers) == 1
        doubled = re.search(r"(\d+) doubled", printed["python check.py plain"])
        assert doubled is not None
        assert int(doubled[1]) > 0
        for topic in ("invoices", "spark"):
            assert printed[f"python check.py {topic}"].startswith(f"{topic}: 20000 records, 0 missing, 0 doubled\n")
        assert "[Stage" not in printed["python kill.py exact_spark.py spark"]  # a bar would cut through lines
    finally:
        for broker in brokers:
            end(broker, signal.SIGTERM)
