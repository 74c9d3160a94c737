"""`pip install fencepost`, without an extra: broker, client and commands work, and nothing large is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli.commands import COMMANDS, LABORATORY
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
        reported = re.match(r"listening on (\S+)", process.stdout.readline())
        assert reported
        created = fencepost(programs, "topics", "create", "numbers", "-b", reported[1])
        assert (created.returncode, created.stdout) == (0, "created numbers\n")
        yield reported[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def clean() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FENCEPOST"))}
    return {**environment, "NO_COLOR": "1", "COLUMNS": "120"}


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
    assert done.stderr.count("pip install 'fencepost[native]'") == 1


def said(programs: Path, *commands: str) -> list[str]:
    """Return the output of each command. All run in one process, because its start is most of the work."""
    program = f"""
from fencepost.cli.main import main
for command in {commands}:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, command
    print("---")
"""
    done = python(programs, program)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("---\n")[:-1]
    assert len(printed) == len(commands)
    return printed


def test_every_command_has_its_help(programs: Path) -> None:
    product = [name for name, command in COMMANDS.items() if not command.target.startswith(LABORATORY)]
    assert len(product) > 10
    said(programs, *(f"{name} --help" for name in product))


def test_a_command_of_the_laboratory_names_its_package(programs: Path) -> None:
    missing = [name for name, command in COMMANDS.items() if command.target.startswith(LABORATORY)]
    assert sorted(missing) == ["bench", "check", "demo", "simulate", "torture"]
    for name in missing:
        refused = fencepost(programs, name, "--help")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            f"fencepost: {name} is a command of fencepost-lab, not installed here: pip install fencepost-lab\n"
        )
    (listed,) = said(programs, "--help")
    assert listed.count("Needs fencepost-lab.") == len(missing)


def test_commands_work_at_a_broker(programs: Path, broker: str) -> None:
    numbers = "".join(f"{number}\n" for number in range(100))
    produced = fencepost(programs, "produce", "numbers", "-b", broker, given=numbers)
    assert produced.returncode == 0, produced.stderr
    asked = ("consume numbers", "topics list", "doctor", "transactions list")
    consumed, topics, doctor, transactions = said(programs, *(f"{command} -b {broker}" for command in asked))
    assert consumed == numbers
    assert "numbers" in topics
    assert "transaction.version 2" in doctor
    assert "TRANSACTIONAL ID" in transactions


def test_what_needs_an_extra_names_it(
    programs: Path, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = fencepost(programs, "consume", "numbers", "--output", "numbers.parquet", "-b", broker)
    assert refused.returncode == 1
    assert refused.stderr.endswith("needs numpy, pyarrow, not installed here: pip install 'fencepost[arrow]'\n")
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())
