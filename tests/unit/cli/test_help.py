"""What each command's --help has: an example with options that there are, --json, and what its status says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from fencepost.cli.commands import COMMANDS
from fencepost.cli.main import main

# They serve, or show: nothing of theirs is for programs to read.
NO_JSON = {"broker", "demo", "ui"}
# One command with two names, of which the example has the other.
TWICE = {"transactions sinks", "transactions forget"}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")


def told(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def commands_in(text: str) -> list[str]:
    return re.findall(r"^  ([a-z-]+)  ", text.partition("\nCommands:")[2], re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_new_user_asks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, [name])
    leaves = [([name, inner], told(capsys, [name, inner])) for inner in commands_in(text)] or [([name], text)]
    for words, found in leaves:
        flat = " ".join(found.split())
        command = " ".join(words)
        assert "Status" in flat or "status" in flat, command
        assert ("--json" in flat) == (command not in NO_JSON), command
        example = re.search(r"Example: (.*?)(?: Options:| Arguments:| options:|$)", flat)
        assert example, command
        named = command if command not in TWICE else command.replace("transactions", "spark")
        (given,) = [each for each in example[1].split(" | ") if each.startswith(f"fencepost {named}")]
        options = [word for word in shlex.split(given) if word.startswith("-") and not word[1:].isdecimal()]
        rest = flat.replace(example[1], "").replace(",", " ")
        assert [option for option in options if f"{option} " not in rest] == [], given


def test_every_command_is_walked(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands_in(told(capsys, [])) == list(COMMANDS)
    assert set(commands_in(told(capsys, ["topics"]))) == {"list", "describe", "create", "alter", "delete"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_types_of_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, [name])
    texts = [text, *(told(capsys, [name, inner]) for inner in commands_in(text))]
    assert [
        found
        for each in texts
        for found in re.findall(r"<(?:list|tuple|dict|str|int|float|bool|path|annotated)\b[^>]*>", each)
    ] == []


@pytest.mark.parametrize("columns", [50, 150])
def test_help_is_as_wide_as_the_terminal(columns: int) -> None:
    command = [sys.executable, "-m", "fencepost", "transactions", "find-hanging", "--help"]
    environment = {**os.environ, "COLUMNS": str(columns)}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    widest = max(map(len, shown.splitlines()))
    assert columns - 20 < widest <= columns
