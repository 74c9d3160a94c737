"""Durations without end on the command line: refused with the limit, instead of a failure when they are used."""

from __future__ import annotations

import pytest

from fencepost.cli.main import main


@pytest.mark.parametrize("value", ["inf", "1e300", "nan"])
@pytest.mark.parametrize(
    "command",
    [
        "doctor --older-than",
        "doctor --watch",
        "doctor --timeout",
        "transactions find-hanging --older-than",
        "ui --every",
        "torture --start fencepost --minutes",
        "simulate --runs 1 --minutes",
    ],
)
def test_a_duration_without_end(command: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    away = [] if command.startswith(("simulate", "torture")) else ["-b", "127.0.0.1:1"]
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), value, *away])
    assert ended.value.code == 2
    assert command.rsplit(maxsplit=1)[-1] in capsys.readouterr().err
