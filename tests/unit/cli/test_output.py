"""Output for people: aligned columns, and names that cannot control the terminal."""

from __future__ import annotations

import io
import json

import pytest
import typer

from fencepost.cli.output import confirmed, print_line, print_table, refuse, report_done

EVIL, SHOWN = "a\n\x1b[31mb\x9b2J\u202e", "a\\n\\x1b[31mb\\x9b2J\\u202e"


def test_columns_are_as_wide_as_a_terminal_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Unicode's wide characters take two places, combining ones none (UAX #11)."""
    print_table([("GROUP", "STATE"), ("\u5c71\u5ddd", "Empty"), ("cafe\u0301", "Dead"), ("orders", "Stable")])
    lines = ["GROUP   STATE", "\u5c71\u5ddd    Empty", "cafe\u0301    Dead", "orders  Stable"]
    assert capsys.readouterr().out.splitlines() == lines


def test_names_of_others_are_shown_not_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("GROUP", "STATE"), (EVIL, "Empty")])
    print_line(f"aborted {EVIL}")
    report_done(f"deleted {EVIL}", "deleted", as_json=False, group=EVIL)
    report_done("", "deleted", as_json=True, group=EVIL)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["GROUP".ljust(len(SHOWN)) + "  STATE", f"{SHOWN}  Empty", f"aborted {SHOWN}", f"deleted {SHOWN}"]
    assert json.loads(last)["group"] == EVIL
    with pytest.raises(typer.Exit):
        refuse(f"there is no {EVIL[2:]}\nnothing was done")
    assert capsys.readouterr().err == f"fencepost: there is no {SHOWN[3:]}\nnothing was done\n"


def test_a_question_shows_them_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(typer.Exit):
        confirmed(f"Delete {EVIL}?", yes=False)
    assert capsys.readouterr().err.splitlines()[0] == f"Delete {SHOWN}? [y/N]: "


def test_what_a_question_is_about_is_written_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written, seen = io.BytesIO(), []

    class Answers:
        def readline(self) -> str:
            seen.append(written.getvalue())
            return "y\n"

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, write_through=False))
    monkeypatch.setattr("sys.stdin", Answers())
    print_line("orders-0")
    confirmed("Delete it?", yes=False)
    assert seen == [b"orders-0\n"]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("", "\nfencepost: nothing was done: standard input has no answer; --yes does not ask\n"),
        ("n\n", "fencepost: nothing was done: the answer was not yes\n"),
        ("\n", "fencepost: nothing was done: the answer was not yes\n"),
    ],
)
def test_a_question_without_a_yes_says_that_nothing_was_done(
    typed: str, answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    with pytest.raises(typer.Exit) as ended:
        confirmed("Abort x?", yes=False)
    assert (ended.value.exit_code, capsys.readouterr().err) == (1, f"Abort x? [y/N]: {answer}")
