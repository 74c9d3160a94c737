"""The help of every command and subcommand: one style, as wide as the terminal, an example with options that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from fencepost.cli.commands import COMMANDS
from fencepost.cli.main import main
from tests.support.tidy import ROOT

# They serve, or show: nothing of theirs is for programs to read.
NO_JSON = {"broker", "demo", "ui"}
# One command with two names, of which the example has the other.
TWICE = {"transactions sinks", "transactions forget"}
SECTIONS = ["Usage", "Arguments", "Options", "Commands", "Example", "Exit status"]
# Their effect depends on the command. A new name here needs a reason: mostly the words can be the same.
SEVERAL_MEANINGS = set(
    "--abort --all --checkpoint --config --data-dir --history --host --json --keep --key-separator --mechanism "
    "--minutes --older-than --partitions --query --records --seed --start --to --topic --topic-prefix -X".split()
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")


def reported(capsys: pytest.CaptureFixture[str], words: list[str], option: str = "--help") -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, option])
    assert ended.value.code == 0
    return capsys.readouterr().out


def commands_in(text: str) -> list[str]:
    return re.findall(r"^  ([a-z-]+)  ", text.partition("\nCommands:")[2], re.MULTILINE)


def walked(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Every command, groups too, with its help."""
    found = {}
    for name in COMMANDS:
        found[name] = reported(capsys, [name])
        for inner in commands_in(found[name]):
            found[f"{name} {inner}"] = reported(capsys, [name, inner])
    return found


def option_rows(text: str) -> dict[str, tuple[str, str]]:
    """Names and value of each option, and its description, by its longest name."""
    rows = re.findall(r"^  (-\S.*?)  +(\S.*)$", text.partition("\nOptions:\n")[2].partition("\n\n")[0], re.MULTILINE)
    return {max(re.findall(r"--?[a-zA-Z-]+", names), key=len): (names, about) for names, about in rows}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_new_user_asks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = reported(capsys, [name])
    leaves = [([name, inner], reported(capsys, [name, inner])) for inner in commands_in(text)] or [([name], text)]
    for words, found in leaves:
        flat = " ".join(found.split())
        command = " ".join(words)
        assert ("--json" in flat) == (command not in NO_JSON), command
        (example,) = re.findall(r"^Example:\n((?:  .*\n)+)", found, re.MULTILINE)
        named = command if command not in TWICE else command.replace("transactions", "spark")
        joined = " ".join(example.replace("\\\n", " ").split())
        (given,) = [each for each in joined.split(" | ") if each.startswith(f"fencepost {named}")]
        options = [word for word in shlex.split(given) if word.startswith("-") and not word[1:].isdecimal()]
        rest = flat.replace(joined, "").replace(",", " ")
        assert [option for option in options if f"{option} " not in rest] == [], given


def test_every_command_is_walked(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands_in(reported(capsys, [])) == list(COMMANDS)
    assert set(commands_in(reported(capsys, ["topics"]))) == {"list", "describe", "create", "alter", "delete"}
    assert len(walked(capsys)) > 40


def test_all_commands_have_one_style(capsys: pytest.CaptureFixture[str]) -> None:
    for command, text in walked(capsys).items():
        titles = re.findall(r"^(\S[^:]*):", text, re.MULTILINE)
        assert titles == [each for each in SECTIONS if each in titles], command
        wanted = {"Usage", "Options", "Commands"} if "Commands" in titles else {"Usage", "Options", "Example"}
        assert wanted <= set(titles), command
        if "Commands" not in titles:
            statuses = text.partition("\nExit status:\n")[2].splitlines()
            assert [re.fullmatch(r" {2,4}\d+  \S.*", line) is not None for line in statuses] == [True] * len(
                statuses
            ), command
            assert len(statuses) >= 2, command
            # Only a paragraph that begins with the word becomes a section.
            assert re.findall(r"\b(?:Status|Example): ", text) == [], command
        assert text.startswith(f"Usage: fencepost {command} "), command
        assert option_rows(text)["--help"] == ("-h, --help", "Show this message and exit."), command
        assert reported(capsys, command.split(), "-h") == text


def test_every_exit_status_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/command-line.md has one table for all commands; it names each command with a status of its own."""
    page = (ROOT / "docs" / "command-line.md").read_text()
    table = page.partition("| exit status | meaning |")[2].partition("\n\n")[0]
    rows = {number: line for line in table.splitlines()[2:] for number in re.findall(r"\d+", line.split("|")[1])}
    assert {"0", "1", "2", "74", "130", "141", "143"} <= rows.keys()
    for command, text in walked(capsys).items():
        own = re.findall(r"^ {2,4}(\d+)  ", text.partition("\nExit status:\n")[2], re.MULTILINE)
        assert set(own) <= rows.keys(), command
        for number in set(own) - {"0", "1", "2", "130"}:
            assert f"`{command}`" in rows[number], (command, number)


def test_help_has_no_types_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    pattern = r"<[^>]*>|\bx?[<>]=|\b(?:INTEGER|FLOAT|BOOLEAN|LIST)\b|RANGE|\{[^}]*\}|\bNone\b|True|False"
    for command, text in {"": reported(capsys, []), **walked(capsys)}.items():
        assert re.findall(pattern, text.partition("\nExample:")[0]) == [], command


def test_an_option_has_the_same_words_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Apart from the notes in brackets, such as the default."""
    rows: dict[str, dict[tuple[str, str], str]] = {}
    for command, text in walked(capsys).items():
        for name, (names, about) in option_rows(text).items():
            rows.setdefault(name, {}).setdefault((names, about.partition(" [")[0]), command)
    several = {name: said for name, said in rows.items() if len(said) > 1}
    assert {name: said for name, said in several.items() if name not in SEVERAL_MEANINGS} == {}
    assert several.keys() == SEVERAL_MEANINGS


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_is_as_wide_as_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    every = ["", *walked(capsys)]
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in every:
        widest = max(reported(capsys, command.split()).splitlines(), key=len)
        assert len(widest) <= columns, f"{command}: {widest}"
    assert max(map(len, reported(capsys, ["transactions", "find-hanging"]).splitlines())) > columns - 20


@pytest.mark.parametrize("columns", ["1", "0", "-5", "many"])
def test_help_is_shown_for_odd_terminals(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    for words in (["topics", "create"], ["broker"]):
        command = [sys.executable, "-m", "fencepost", *words, "--help"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert shown.stderr == "" and "Exit status:" in shown.stdout


@pytest.mark.parametrize("words", [["topics", "create"], ["broker"], ["check"], ["topics"]])
def test_a_wrong_option_is_told_in_one_style(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--no-such-option"])
    assert ended.value.code == 2
    usage, hint, blank, error = capsys.readouterr().err.splitlines()
    assert usage.startswith(f"Usage: fencepost {' '.join(words)} [OPTIONS]")
    assert hint == f"Try 'fencepost {' '.join(words)} -h' for help."
    assert (blank, error) == ("", "Error: No such option: --no-such-option")
