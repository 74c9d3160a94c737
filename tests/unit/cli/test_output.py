"""Output for people: aligned columns, and names that cannot control the terminal."""

from __future__ import annotations

import json

import pytest
import typer

from fencepost.cli.output import confirmed, print_line, print_table, refuse, tell_done

EVIL, SHOWN = "a\n\x1b[31mb\x9b2J\u202e", "a\\n\\x1b[31mb\\x9b2J\\u202e"


def test_columns_are_as_wide_as_a_terminal_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Unicode's wide characters take two places, combining ones none (UAX #11)."""
    print_table([("GROUP", "STATE"), ("\u5c71\u5ddd", "Empty"), ("cafe\u0301", "Dead"), ("orders", "Stable")])
    lines = ["GROUP   STATE", "\u5c71\u5ddd    Empty", "cafe\u0301    Dead", "orders  Stable"]
    assert capsys.readouterr().out.splitlines() == lines


def test_names_of_others_are_shown_not_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("GROUP", "STATE"), (EVIL, "Empty")])
    print_line(f"aborted {EVIL}")
    tell_done(f"deleted {EVIL}", "deleted", as_json=False, group=EVIL)
    tell_done("", "deleted", as_json=True, group=EVIL)
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["GROUP".ljust(len(SHOWN)) + "  STATE", f"{SHOWN}  Empty", f"aborted {SHOWN}", f"deleted {SHOWN}"]
    assert json.loads(last)["group"] == EVIL
    with pytest.raises(typer.Exit):
        refuse(f"there is no {EVIL[2:]}\nnothing was done")
    assert capsys.readouterr().err == f"fencepost: there is no {SHOWN[3:]}\nnothing was done\n"


def test_a_question_shows_them_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(typer.Abort):
        confirmed(f"Delete {EVIL}?", yes=False)
    assert capsys.readouterr().err == f"Delete {SHOWN}? [y/N]: "
