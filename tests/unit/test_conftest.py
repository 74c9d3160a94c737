"""A test that needs Java is skipped where there is none, and fails the run when CI says that all must run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Event
from typing import cast

import pytest
from pluggy import PluginManager

from tests.conftest import LONGEST, pytest_collection_modifyitems
from tests.support.collecting import first_ahead
from tests.support.run_report import closing_line
from tests.support.schedule import SHARE_SPARK, next_file
from tests.support.tidy import ROOT
from tests.support.waiting import until

NEEDS_KAFKA = (
    "import pytest\n\n@pytest.mark.kafka\ndef test_needs_it():\n    pass\n\ndef test_needs_nothing():\n    pass\n"
)


@pytest.mark.parametrize("parallel", ["0", "1"])
@pytest.mark.parametrize(
    ("ci", "code", "says"), [("", 0, "1 passed, 1 skipped"), ("true", 1, "FAILED because CI=true")]
)
def test_a_machine_without_java(tmp_path: Path, ci: str, code: int, says: str, parallel: str) -> None:
    (tmp_path / "test_planted.py").write_text(NEEDS_KAFKA)
    environ = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "CI"}}
    environ |= {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "CI": ci}
    options = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", parallel]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, *options, str(tmp_path / "test_planted.py")],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert says in run.stdout
    assert "there is no `java`" in run.stdout


def test_the_files_that_share_a_spark_are_those_with_its_fixtures() -> None:
    uses = re.compile(r"\b(spark: Any|spark_here: SparkHere)\b|from tests\.spark\.copying import .*Copy")
    paths = [*(ROOT / "tests" / "spark").glob("test_*.py"), *(ROOT / "tests").glob("test_*.py")]
    found = [path for path in paths if uses.search(path.read_text())]
    assert sorted(str(path.relative_to(ROOT)) for path in found) == list(SHARE_SPARK)


def test_the_files_that_come_first_are_there() -> None:
    assert LONGEST
    assert [file for file in LONGEST if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(
    ("worker", "order"),
    [
        (0, [*SHARE_SPARK[:2], "tests/sim/a.py", "tests/spark/c.py"]),
        (2, ["tests/sim/a.py", "tests/spark/c.py", *SHARE_SPARK[:2]]),
    ],
)
def test_a_worker_is_given_first_what_it_has_started_spark_for_or_not(worker: int, order: list[str]) -> None:
    waiting = ["tests/sim/a.py", SHARE_SPARK[0], "tests/spark/c.py", SHARE_SPARK[1]]
    given = []
    while waiting:
        given.append(next_file(waiting, worker))
        waiting.remove(given[-1])
    assert given == order


NOTES_ITS_WORKER = """
import os, pathlib

def test_it():
    with open({ran!r}, "a") as ran:
        ran.write(os.environ["PYTEST_XDIST_WORKER"] + " {folder}\\n")
"""


def test_a_parallel_run_asks_for_the_next_file_so(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    files = [f"tests/sim/test_{number}.py" for number in range(4)]
    for file in (*files, *SHARE_SPARK[:4]):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(NOTES_ITS_WORKER.format(ran=str(ran), folder=Path(file).parent.name))
    options = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "3", "--dist", "loadfile"]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "--no-loadscope-reorder"]
    command = [sys.executable, *options, str(tmp_path / "tests")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = ran.read_text().splitlines()
    assert len(lines) == 8
    assert next(line for line in lines if line.startswith("gw0")) == "gw0 spark"  # which is collected last


def test_of_those_who_collect_together_one_goes_ahead(tmp_path: Path) -> None:
    path, is_through, together = tmp_path / "place", Event(), Barrier(2)
    path.touch()

    def follow() -> bool:
        with first_ahead(path):
            waited = is_through.is_set()
            together.wait(60)  # which is broken by who has to go alone
            return waited

    with ThreadPoolExecutor() as pool:
        with first_ahead(path):
            followers = [pool.submit(follow) for _ in range(2)]
            time.sleep(0.2)
            is_through.set()
        assert [follower.result() for follower in followers] == [True, True]


PLANTED = """
import pathlib
import pytest

@pytest.mark.java
def test_fails_once():
    seen = pathlib.Path({folder!r}) / "seen"
    if not seen.exists():
        seen.touch()
        pytest.fail("planted")

def test_passes():
    pass

@pytest.mark.skip(reason="nothing is here")
def test_is_skipped():
    pass
"""


@pytest.mark.java
@pytest.mark.parametrize("ci", ["", "true"])
def test_a_failure_gets_no_second_try_and_the_closing_line_says_how_to_repeat_it(tmp_path: Path, ci: str) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED.format(folder=str(tmp_path)))
    options = ["-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]

    def run(*more: str) -> tuple[int, str]:
        """Return the exit status and the last line."""
        done = subprocess.run(
            [sys.executable, *options, *more, str(tmp_path / "test_planted.py")],
            cwd=ROOT,
            env={**os.environ, "CI": ci},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()[-1]

    code, line = run("-n", "1", "-p", "randomly")
    assert code == 1
    assert line.startswith("tests: 1 passed, 1 failed, 1 skipped in ")
    assert "skipped: 1 because nothing is here" in line
    assert line.endswith('repeat the failures with: make test ARGS="--last-failed"')
    code, line = run("-n", "1", "--last-failed")
    assert (code, line[:39]) == (0, "tests: 1 passed, 0 failed, 0 skipped in")


BROKEN = "import pytest\n\nraise ValueError('planted')\n"


def test_a_file_that_cannot_be_collected_is_in_the_closing_line(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(BROKEN)
    options = ["-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, *options, "-n", "1", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1].startswith("tests: 0 passed, 1 failed, 0 skipped in ")


STARTS_PROCESSES = """
import pathlib
import time
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.forked_python import forked_python

def test_is_interrupted():
    BrokerProcess().start()
    with forked_python():
        (pathlib.Path({folder!r}) / "started").touch()
        time.sleep(240)
"""


def processes_with(variable: str) -> set[int]:
    """Return the processes of this machine that have a variable (NAME=VALUE) in their environment."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if variable.encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with the one that started it")
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_no_process(tmp_path: Path, kind: signal.Signals) -> None:
    """SIGKILL goes to the worker, as pytest-xdist ends its workers when it is interrupted itself."""
    mark = f"FENCEPOST_TEST_MARK={uuid.uuid4()}"
    (tmp_path / "test_planted.py").write_text(STARTS_PROCESSES.format(folder=str(tmp_path)))
    options = ["-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    name, _, value = mark.partition("=")
    with subprocess.Popen(
        [sys.executable, *options, "-n", "1", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, name: value, "CI": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            until(lambda: (tmp_path / "started").exists() or run.poll() is not None)
            until(lambda: len(processes_with(mark)) >= 4)  # pytest, its worker, the broker and the server of forks
            worker = int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0])
            os.kill(worker if kind == signal.SIGKILL else run.pid, kind)
            output, _ = run.communicate(timeout=240)
        finally:
            run.kill()
    if kind != signal.SIGKILL:
        assert "interrupted, so the remaining tests did not run" in output.splitlines()[-1]
    until(lambda: not processes_with(mark))


def test_the_closing_line_has_minutes_and_each_reason() -> None:
    assert closing_line(8331, 0, {}, 905.4) == "tests: 8,331 passed, 0 failed, 0 skipped in 15 min 5 s"
    assert closing_line(1, 0, {}, 59.7, interrupted=True) == (
        "tests: 1 passed, 0 failed, 0 skipped in 1 min 0 s; interrupted, so the remaining tests did not run"
    )
    skipped = {"there is no `go`": 3, "there is no KDC": 1}
    assert closing_line(5, 0, skipped, 59.0) == (
        "tests: 5 passed, 0 failed, 4 skipped in 0 min 59 s; "
        "skipped: 1 because there is no KDC; 3 because there is no `go`"
    )


def test_a_run_in_random_order_does_not_put_the_longest_files_first() -> None:
    items = [Item(f"tests/{name}.py::test") for name in ("b", "a")] + [Item(f"{LONGEST[0]}::test")]
    plugins = PluginManager("pytest")
    config = Namespace(pluginmanager=plugins)
    ordered = list(items)
    pytest_collection_modifyitems(cast("pytest.Config", config), cast("list[pytest.Item]", ordered))
    assert ordered == [items[2], items[0], items[1]]
    plugins.register(object(), "randomly")
    shuffled = list(items)
    pytest_collection_modifyitems(cast("pytest.Config", config), cast("list[pytest.Item]", shuffled))
    assert shuffled == items


class Item:
    """Stand in for a collected test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid

    def get_closest_marker(self, name: str) -> None:
        """Say that it has no marker."""
