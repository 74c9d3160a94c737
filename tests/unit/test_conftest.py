"""A test that needs Java is skipped where there is none, and fails the run when CI says that all must run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from tests.conftest import LONGEST
from tests.support.collecting import one_ahead
from tests.support.schedule import SHARE_SPARK, next_file
from tests.support.tidy import ROOT

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
    places = [*(ROOT / "tests" / "spark").glob("test_*.py"), *(ROOT / "tests").glob("test_*.py")]
    found = [path for path in places if uses.search(path.read_text())]
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
    place, is_through, together = tmp_path / "place", Event(), Barrier(2)
    place.touch()

    def follow() -> bool:
        with one_ahead(place):
            waited = is_through.is_set()
            together.wait(60)  # which is broken by who has to go alone
            return waited

    with ThreadPoolExecutor() as pool:
        with one_ahead(place):
            followers = [pool.submit(follow) for _ in range(2)]
            time.sleep(0.2)
            is_through.set()
        assert [one.result() for one in followers] == [True, True]


TRIES_AGAIN = """
import pathlib
import pytest

@pytest.mark.java
@pytest.mark.parametrize("number", range({count}))
def test_fails_once(number, request):
    seen = pathlib.Path({folder!r}) / str(number)
    if not seen.exists():
        seen.touch()
        pytest.fail("planted")

def test_of_our_own():
    assert {ours}
"""


@pytest.mark.java
@pytest.mark.parametrize(
    ("count", "ours", "code", "says"),
    [
        (2, True, 0, "3 passed, 2 rerun"),
        (6, True, 1, "too many tests needed a second try"),
        (1, False, 1, "1 failed, 1 passed, 1 rerun"),  # what starts nothing of others gets no second try
    ],
)
def test_second_tries_in_ci(tmp_path: Path, count: int, ours: bool, code: int, says: str) -> None:
    (tmp_path / "test_planted.py").write_text(TRIES_AGAIN.format(count=count, ours=ours, folder=str(tmp_path)))
    options = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1"]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, *options, str(tmp_path / "test_planted.py")],
        cwd=ROOT,
        env={**os.environ, "CI": "true"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert says in run.stdout
    _, _, why = run.stdout.partition("why, in short")
    assert "rerun test_planted.py::test_fails_once[0] (call)\n    Failed: planted\n" in why
