"""Child processes: ready, signalled, killed with their group, started again, told with the end of their output."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from fencepost_lab.torture.child_process import ChildProcess, StartupError
from tests.support.waiting import until

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child is", child.pid, flush=True)
time.sleep(600)
"""


def python(program: str, log: Path) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", program], log)


def test_a_kill_ends_the_whole_group(tmp_path: Path) -> None:
    parent = python(PARENT, tmp_path / "log")
    parent.launch()
    parent.wait_until(lambda: parent.line("child is ") is not None, 60, "the parent did not start")
    child = psutil.Process(int(parent.line("child is ") or 0))
    parent.kill()
    assert (parent.pid, parent.is_running, parent.status) == (None, False, -signal.SIGKILL)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_program_that_ends_is_told_with_its_output(tmp_path: Path) -> None:
    program = python("import sys; sys.exit('no such topic')", tmp_path / "log")
    program.launch()
    with pytest.raises(StartupError, match=r"it did not start; its log is .*log\nno such topic") as caught:
        program.wait_until(lambda: False, 60, "it did not start")
    assert program.status == 1, caught.value


def test_a_program_that_is_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    program = python("import time; time.sleep(600)", tmp_path / "log")
    program.launch()
    with pytest.raises(StartupError):
        program.wait_until(lambda: False, 0.2, "it did not start")
    assert program.status == -signal.SIGKILL


def test_a_program_that_ignores_sigterm_is_killed_after_the_bound(tmp_path: Path) -> None:
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
    program = python(f"{ignores}; time.sleep(600)", tmp_path / "log")
    program.launch()
    program.wait_until(lambda: program.line("ready") is not None, 60, "it did not start")
    program.end(within_s=0.2)
    assert program.status == -signal.SIGKILL


def test_each_start_has_its_own_lines_in_one_log(tmp_path: Path) -> None:
    program = python("import sys; print('got', sys.stdin.read())", tmp_path / "log")
    for given in ("first", "second"):
        program.launch(given.encode())
        assert program.wait(60) == 0
        assert program.line("got ") == given
        assert program.new_lines() == [f"got {given}"]
        assert program.new_lines() == []
    assert program.output() == "got first\ngot second\n"


def test_a_line_that_is_not_whole_is_not_taken(tmp_path: Path) -> None:
    program = python("import time; print('half', end='', flush=True); time.sleep(600)", tmp_path / "log")
    program.launch()
    until(lambda: program.output() == "half")
    assert (program.line("ha"), program.new_lines()) == (None, [])
    program.kill()


def test_output_of_a_program_that_ended_before_its_input_is_kept(tmp_path: Path) -> None:
    program = python("raise SystemExit('reads nothing')", tmp_path / "log")
    program.launch(b"x" * 1_000_000)
    assert program.wait(60) == 1
    assert program.tail().strip() == "reads nothing"
    program.end()
    assert program.status == 1
