"""Wrong values of every option of every command, found in the parsers: status 2, and one line that names the option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost.cli.command_help import _annotation, _choices, _limits, _type_name
from fencepost.cli.main import main
from tests.unit.cli.test_statuses import COMMANDS, LINES, prepared

OF_THE_CODE = re.compile(r"Traceback|Input should|invalid \w+ value|unable to parse|<\w+ '|<class|\bNone\b|Errno")
HUGE: Final = "9" * 30
KINDS: Final = {
    "choice": ["", "nosuch"],
    "int": ["", "x", "1.5", "5 s", "nan", "1e999", HUGE],
    "float": ["", "x", "5 s", "nan", "inf", "1e999"],
    "path": ["", "/no/such/file", "checkpoint", "\ud800"],
    "text": ["", "\ud800"],
}
ANY_TEXT: Final = {"transactions list --prefix"}
"""Text that may be empty: it is the default."""
READ_LATER: Final = {"users set-password --password-file"}
"""Files that are read in the work of the command. One that cannot be used is status 1, and named."""


def kind_of(option: Any) -> str:
    annotation = _annotation(option)
    if _choices(option, annotation):
        return "choice"
    name = _type_name(annotation).lower()
    found = next((kind for kind in ("int", "float", "path") if name.startswith(kind)), "text")
    return "path" if name == "file" else found


def options() -> Iterator[tuple[str, Any]]:
    for name, command in COMMANDS.items():
        for each in command.params:
            if each.param_type_name == "option" and not each.is_flag and "--help" not in each.opts and name != "broker":
                yield name, each


def longest(option: Any) -> str:
    return str(max(option.opts, key=len))


LONG: Final = {"broker", "ui", "demo", "torture", "bench", "simulate", "check", "dump", "repair"}
"""They work without a cluster, or long."""
OPTIONS = {f"{name} {longest(each)}": (name, each) for name, each in options()}


def words_without(name: str, option: Any) -> list[str]:
    """The command's words, without the option if it is there."""
    words = [*name.split(), *LINES[name].split()]
    for word in option.opts:
        if word in words:
            at = words.index(word)
            del words[at : at + 2]
    return words if name != "torture" or "-b" in option.opts else [*words, "-b", "127.0.0.1:1"]


def refused(words: list[str], option: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the faults of the answer to these words."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, error = capsys.readouterr()
    line = (error.strip().splitlines() or [""])[-1]
    shown = words[-1][:20].encode("unicode_escape").decode()
    if ended.value.code != 2 or out or not line.startswith("Error: "):
        return [f"{option} {shown!r}: status {ended.value.code}: {line[:150]}"]
    if f" {option}" not in line or OF_THE_CODE.search(line) or len(line) > 700:
        return [f"{option} {shown!r}: {line[:150]}"]
    return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared(tmp_path))
    monkeypatch.setattr("fencepost.cli.cluster_settings.REACH_MS", 1)


def test_there_are_many_options() -> None:
    assert len(OPTIONS) > 150
    assert {kind_of(each) for _, each in OPTIONS.values()} == set(KINDS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "broker"])
@pytest.mark.usefixtures("folder")
def test_wrong_values(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for owner, option in OPTIONS.values():
        if owner != name:
            continue
        values = list(KINDS[kind_of(option)])
        lowest, highest = _limits(option)
        values += [] if lowest is None else [str(lowest - 1)]
        values += [] if highest is None else [str(highest + 1)]
        if f"{name} {longest(option)}" in READ_LATER:
            values = []
        if f"{name} {longest(option)}" in ANY_TEXT:
            values.remove("")
        for value in values:
            found += refused([*words_without(name, option), longest(option), value], longest(option), capsys)
    assert found == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "broker"])
@pytest.mark.usefixtures("folder")
def test_an_option_that_is_given_twice(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`-b a -b b` would use b only. Options that may be repeated say so in the help."""
    found = []
    for owner, option in OPTIONS.values():
        if owner == name and not option.multiple:
            for first in option.opts:
                words = [*words_without(name, option), first, "1", f"{longest(option)}=2"]
                found += refused(words, longest(option), capsys)
    assert found == []


PAIRS = [
    *[f"{command} -X" for command in ("produce", "consume")],
    "topics create --config",
    "configs alter --set",
    "ui --cluster",
]


@pytest.mark.parametrize("words", PAIRS)
@pytest.mark.usefixtures("folder")
def test_a_name_that_is_given_two_values(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, option = words.rpartition(" ")
    given = [*name.split(), *LINES[name].split(), option, "a=1", option, "a=2"]
    assert refused(given, option, capsys) == []


OF_THE_BROKER = {
    "--data-dir": ["", "\ud800"],
    "--listen": ["", "x", "\ud800", f"h:{HUGE}", "h:-1", "h:nan"],
    "--fsync": ["", "nosuch", "\ud800"],
    "--config": ["", "x"],  # errors about a setting name the setting
    "--config-file": ["", "/no/such/file", "checkpoint", "\ud800"],
    "--metrics-port": ["", "x", HUGE, "-1", "nan"],
    "--metrics-listen": ["", "x", f"h:{HUGE}"],
    "--ui": ["", "x", HUGE, "-1", "nan"],
}


def test_every_option_of_the_broker_is_tried() -> None:
    found = {longest(each) for each in COMMANDS["broker"].params if not getattr(each, "is_flag", False)}
    assert found - {"--verbose", "--help"} == set(OF_THE_BROKER)


@pytest.mark.parametrize("option", OF_THE_BROKER)
@pytest.mark.usefixtures("folder")
def test_wrong_values_of_the_broker(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["broker", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    if option in base:
        at = base.index(option)
        del base[at : at + 2]
    found = []
    for value in OF_THE_BROKER[option]:
        found += refused([*base, option, value], option, capsys)
    if option != "--config":
        found += refused([*base, f"{option}=1", f"{option}=2"], option, capsys)
    assert found == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_the_example_of_the_help_is_no_wrong_use(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends because no broker answers, or a file is missing, but not with the status of wrong arguments."""
    monkeypatch.chdir(prepared(tmp_path))
    monkeypatch.setattr("fencepost.cli.cluster_settings.REACH_MS", 1)
    (tmp_path / "admin.properties").write_text("client.id=example\n")
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    (line,) = re.findall(r"Example: (.*)", str(COMMANDS[name].help))
    for part in line.split(" | "):
        words = shlex.split(part)
        if words[0] == "fencepost":
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert ended.value.code != 2, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("topics list --command-config", "--command-config"),
        ("consume t --output", "--output"),
        ("produce t --input", "--input"),
        ("users set-password u --password-file", "--password-file"),
        ("dump", "PATH..."),
        ("spark adopt cp --rows", "--rows"),
    ],
)
def test_a_path_without_a_name_is_not_this_directory(words: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A shell gives it for a variable without a value."""
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), ""])
    error = capsys.readouterr().err
    assert (ended.value.code, error.splitlines()[-1]) == (2, f"Error: Invalid value for {name}: it must not be empty")


def test_a_password_file_that_cannot_be_used_is_named_before_a_broker_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    reasons = {"none": "No such file or directory", ".": "Is a directory", "empty": "the password is empty"}
    for file, reason in reasons.items():
        with pytest.raises(SystemExit) as ended:
            main(["users", "set-password", "u", "--password-file", str(tmp_path / file), "-b", "127.0.0.1:1"])
        assert (ended.value.code, reason in capsys.readouterr().err) == (1, True), file
