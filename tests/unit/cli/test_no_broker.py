"""Commands without a broker: one line with the reason, soon."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fencepost.cli.main import main

NOWHERE = "127.0.0.1:1"
WHY = (
    f"fencepost: no broker answers at {NOWHERE}: cannot connect to {NOWHERE}: [Errno 111] Connection refused (FP101)\n"
)


@pytest.mark.parametrize("command", ["topics list", "transactions list", "spark sinks"])
def test_the_reason_is_told_without_what_wraps_it(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.cluster_settings.REACH_MS", 200)
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "-b", NOWHERE])
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", WHY)


def test_warnings_do_not_tell_it_again() -> None:
    """Of a process: pytest's own handlers of log records would hide them."""
    given = (
        "import fencepost.cli.cluster_settings as settings; settings.REACH_MS = 200; "
        f"from fencepost.cli.main import main; main(['topics', 'list', '-b', '{NOWHERE}'])"
    )
    done = subprocess.run([sys.executable, "-c", given], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", WHY)


def test_of_several_addresses_each_has_its_reason(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.cluster_settings.REACH_MS", 200)
    with pytest.raises(SystemExit):
        main(["topics", "list", "-b", f"{NOWHERE},127.0.0.1:2"])
    assert "no broker answers at 127.0.0.1:1,127.0.0.1:2: " in capsys.readouterr().err
    assert {"127.0.0.1:1", "127.0.0.1:2"} <= {word.rstrip(":") for word in caplog.text.split()}


def test_a_choice_that_there_is_not_is_told_in_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["users", "set-password", "bob", "--mechanism", "MD5"])
    assert ended.value.code == 2
    assert "--mechanism: must be SCRAM-SHA-256 or SCRAM-SHA-512" in capsys.readouterr().err
