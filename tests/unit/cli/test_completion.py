"""Completion of command lines, as a shell asks for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.cli.main import main

ASKING = """
source "$1"
shift
for line in "$@"; do
    read -r -a COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _fencepost_completion fencepost
    echo "${COMPREPLY[*]}"
done
"""
LINES = {
    "fencepost to": {"topics", "torture"},
    "fencepost topics d": {"describe", "delete"},
    "fencepost broker --l": {"--listen"},
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path) -> None:
    """By the script that `--show-completion` prints: it looks which shell it was started from."""
    surroundings = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = tmp_path / "fencepost.sh"
    with open(script, "wb") as file:
        subprocess.run(
            ["bash", "-c", "fencepost --show-completion; exit $?"],  # so that bash stays, and is seen
            stdout=file,
            env=surroundings,
            check=True,
        )
    run = subprocess.run(
        ["bash", "-c", ASKING, "bash", str(script), *LINES],
        capture_output=True,
        text=True,
        env=surroundings,
        check=True,
    )
    assert run.stderr == ""
    assert {line: set(reported.split()) for line, reported in zip(LINES, run.stdout.splitlines(), strict=True)} == LINES


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the answer to the completion script of another shell."""
    monkeypatch.setenv("_FENCEPOST_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fencepost topics d")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "describe" in out and "delete" in out and "create" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_home_that_takes_no_file_is_reported(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.write_text("a file, so nothing can be written in it, not even by root")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, f"/bin/{shell}"))
    with pytest.raises(SystemExit) as ended:
        main(["--install-completion"])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (1, "")
    assert shown.err.startswith(f"fencepost: {home}") and shown.err.count("\n") == 1


def test_looking_at_the_commands_imports_none() -> None:
    """`fencepost --help` and the first word of a line are asked often."""
    program = (
        "import sys\nfrom fencepost.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith(('fencepost.spark', 'fencepost.client'))])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    assert "  topics " in run.stdout


NAMES = {
    "fencepost topics describe or": ["orders"],
    "fencepost groups describe b": ["billing"],
    "fencepost transactions abort c": ["copier"],
    "fencepost consume ": ["orders", "other"],
}


@pytest.mark.parametrize("line", NAMES)
def test_names_at_the_cluster_are_completed(
    line: str, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the options that say where the cluster is."""
    *words, incomplete = line.split(" ")
    asked = [*words, "-b", cluster, incomplete]
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(asked))
    monkeypatch.setenv("COMP_CWORD", str(len(asked) - 1))
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr()
    assert (shown.out.split(), shown.err) == (NAMES[line], "")


def test_a_cluster_that_is_away_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fencepost topics describe -b 127.0.0.1:1 o")
    monkeypatch.setenv("COMP_CWORD", "5")
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err) == ("", "")


BROKEN = {
    "not-a-setting": b"a line without a value\n",
    "unknown": b"no.such.setting=1\n",
    "bad-value": b"security.protocol=TELEPATHY\n",
    "no-file": b"security.protocol=SSL\nssl.truststore.location=/no/such/file\n",
    "not-text": b"\xff\xfe\n",
}


@pytest.mark.parametrize("name", [*BROKEN, "absent", ""])
@pytest.mark.parametrize("command", ["topics describe", "groups describe", "transactions abort", "consume"])
def test_what_is_broken_completes_nothing_and_says_nothing(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line at the prompt would stand between the person's words."""
    if name in BROKEN:
        (tmp_path / name).write_bytes(BROKEN[name])
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORT", "secret")
    monkeypatch.setenv("_FENCEPOST_COMPLETE", "complete_bash")
    words = ["fencepost", *command.split(), "-b", "127.0.0.1:1", "--command-config", str(tmp_path / name), "x"]
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err) == ("", "")


def test_a_silent_broker_does_not_keep_the_shell(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = f"fencepost topics describe -b 127.0.0.1:{silent.getsockname()[1]} x"
        asked = {"_FENCEPOST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        run = subprocess.run(
            [sys.executable, "-m", "fencepost"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (run.stdout.strip(), run.stderr) == ("", "")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with fencepost.Broker() as broker:
        with (
            fencepost.Admin(broker.bootstrap_servers) as admin,
            fencepost.Producer(broker.bootstrap_servers, transactional_id="copier") as producer,
        ):
            for name in ("orders", "other"):
                admin.create_topic(name, 1)
            admin.alter_group_offsets("billing", {("orders", 0): 0})
            producer.init_transactions()
        yield broker.bootstrap_servers
