"""`pip install fencepost`, without an extra: broker, client and commands work, and nothing large is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli.commands import COMMANDS
from tests.support.engines import ROUND_TRIP
from tests.support.small_install import installed_size, small_install

MOST_BYTES = 60_000_000


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_install(tmp_path_factory.mktemp("small") / "venv")


@pytest.fixture(scope="module")
def broker(programs: Path) -> Iterator[str]:
    command = [str(programs / "fencepost"), "broker", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, env=clean(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        told = re.match(r"listening on (\S+)", process.stdout.readline())
        assert told
        created = fencepost(programs, "topics", "create", "numbers", "-b", told[1])
        assert (created.returncode, created.stdout) == (0, "created numbers\n")
        yield told[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def clean() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FENCEPOST"))}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "120"}


def python(programs: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "python"), "-c", program]
    return subprocess.run(command, env=clean(), capture_output=True, text=True, check=False, timeout=120)


def fencepost(programs: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(programs / "fencepost"), *arguments]
    return subprocess.run(command, env=clean(), input=given, capture_output=True, text=True, check=False, timeout=120)


def test_it_is_small(programs: Path) -> None:
    assert 20_000_000 < installed_size(programs) < MOST_BYTES


def test_records_in_a_transaction_go_through_broker_and_client(programs: Path) -> None:
    done = python(programs, ROUND_TRIP)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert done.stderr.count("pip install 'fencepost[fast]'") == 1


def test_every_command_has_its_help(programs: Path) -> None:
    assert len(COMMANDS) > 10
    program = f"""
from fencepost.cli.main import main
for name in {list(COMMANDS)}:
    try:
        main([name, "--help"])
    except SystemExit as end:
        assert not end.code, name
"""
    done = python(programs, program)
    assert done.returncode == 0, done.stderr


def test_commands_work_at_a_broker(programs: Path, broker: str) -> None:
    def said(*arguments: str, given: str = "") -> str:
        done = fencepost(programs, *arguments, "-b", broker, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    numbers = "".join(f"{number}\n" for number in range(100))
    said("produce", "numbers", given=numbers)
    assert said("consume", "numbers") == numbers
    assert "numbers" in said("topics", "list")
    assert "transaction.version 2" in said("doctor")
    assert "TRANSACTIONAL ID" in said("transactions", "list")


@pytest.mark.parametrize(
    "arguments", [("consume", "numbers", "--output", "numbers.parquet"), ("simulate", "--runs", "1")]
)
def test_what_needs_an_extra_names_it(
    programs: Path, broker: str, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = ("-b", broker) if arguments[0] == "consume" else ()
    refused = fencepost(programs, *arguments, *at)
    assert refused.returncode == 1
    assert refused.stderr.endswith("needs numpy, numba, pyarrow, not installed here: pip install 'fencepost[arrow]'\n")
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())
