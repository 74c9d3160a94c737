"""Exit statuses of every command, as the table in docs/command-line.md has them, and the one line with the reason."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.broker.security.listeners import with_users
from fencepost.cli.main import main
from tests.support.command_runs import CommandRun, RunResult, commands_of
from tests.support.secured import AUTHORIZER

QUERY = "3f6f2b0e-5bd7-4b4e-9d3c-0a5b8f6f7a11"
LINES: Mapping[str, str] = {
    "broker": "--data-dir data --listen 127.0.0.1:0",
    "repair": "--data-dir data",
    "check": "history.jsonl",
    "demo": "--flights 10",
    "torture": "--minutes 0.05",
    "bench": "produce --records 100 --rounds 1",
    "simulate": "--world clients",
    "topics list": "",
    "topics describe": "t",
    "topics create": "new",
    "topics alter": "t --partitions 3",
    "topics delete": "gone --yes",
    "produce": "t",
    "consume": "t",
    "groups list": "",
    "groups describe": "g",
    "groups reset-offsets": "g --to end --topic t --yes",
    "groups delete": "g --yes",
    "configs describe": "topic t --all",
    "configs alter": "topic t --set retention.ms=-1",
    "acls list": "",
    "acls add": "User:a --operation read --resource topic:t",
    "acls delete": "--principal User:a --yes",
    "users list": "",
    "users set-password": "u --password-file password",
    "users delete": "u --yes",
    "dump": "00000000000000000000.log",
    "doctor": "--watch 0",
    "ui": "",
    "transactions sinks": "",
    "transactions forget": f"s --query {QUERY} --lost accept --yes",
    "transactions find-hanging": "",
    "transactions list": "",
    "transactions describe": "x",
    "transactions resolve": "s",
    "transactions abort": "x --yes",
    "transactions commit": "x --yes",
    "transactions complete": "x 1:0",
    "transactions finish-flink": "p --checkpoint 1 --yes",
    "spark adopt": "checkpoint --topic t --yes",
    "spark release": "checkpoint --yes",
    "spark sinks": "",
    "spark decisions": "s",
    "spark repair": "s --checkpoint checkpoint --yes",
    "spark forget": f"s --query {QUERY} --lost accept --yes",
}
"""Arguments with which each command is complete."""
SERVING = {"broker", "ui"}
INTERRUPTED = {"", "stopped\n", "fencepost: interrupted: nothing was changed\n"}
COMMANDS: Mapping[str, Any] = dict(commands_of())
OF_A_CLUSTER = [
    name
    for name, command in COMMANDS.items()
    if name not in {*SERVING, "demo"} and any("-b" in parameter.opts for parameter in command.params)
]
COULD_NOT_RUN = {"torture": 2}  # 1 is for its anomalies
NAMES_FINDINGS = {"doctor"}  # on standard output, with a line on standard error that counts them
NOT_OURS = re.compile(r"Traceback|^\s+File |Error:", re.MULTILINE)


def prepared(folder: Path) -> Path:
    """Return a folder with the files that the arguments name."""
    checkpoint = folder / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    at = '{"batchWatermarkMs":0,"batchTimestampMs":1757000000000,"conf":{}}'
    (checkpoint / "offsets" / "0").write_text(f'v1\n{at}\n{{"t":{{"0":0}}}}\n')
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "password").write_text("secret")
    (folder / "history.jsonl").write_text('{"fencepost_history": 1}\n')
    return folder


def started(name: str, folder: Path, *more: str, stdout: str = "") -> CommandRun:
    directory = folder / name.replace(" ", "-")
    directory.mkdir()
    return CommandRun([*name.split(), *LINES[name].split(), *more], prepared(directory), stdout)


def reason_of(name: str, run: RunResult) -> str:
    """Return the reason of a failure. Fails if it is not one line without names of the code."""
    assert NOT_OURS.search(run.error) is None, f"{name}: {run.error}"
    (line,) = [line for line in run.error.splitlines() if line.startswith("fencepost: ")] or [""]
    assert line, f"{name}: {run}"
    if name in NAMES_FINDINGS:
        return run.out
    assert run.out == "", f"{name}: {run}"
    return line


def test_every_command_is_tried() -> None:
    assert set(LINES) == set(COMMANDS)
    assert len(OF_A_CLUSTER) > 30


@contextmanager
def _nobody() -> Iterator[str]:
    """Yield an address at which connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def _silence(backlog: int = 512) -> Iterator[str]:
    """Yield an address at which connections are accepted, and no request is answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as bound:
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("away", [_nobody, _silence])
def test_no_broker_is_said_soon(away: Callable[[], Any], tmp_path: Path) -> None:
    with away() as address:
        runs = {name: started(name, tmp_path, "-b", address) for name in OF_A_CLUSTER}
        for name, run in runs.items():
            ended = run.wait()
            assert ended.status == COULD_NOT_RUN.get(name, 1), f"{name}: {ended}"
            assert f"no broker answers at {address}: " in reason_of(name, ended), f"{name}: {ended}"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_while_it_waits_for_an_answer(number: int, status: int, tmp_path: Path) -> None:
    runs = {}
    with ExitStack() as silent_connections:
        for name in [*OF_A_CLUSTER, "ui"]:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                runs[name] = started(name, tmp_path, "-b", f"127.0.0.1:{silent.getsockname()[1]}")
                silent.settimeout(60)
                silent_connections.enter_context(silent.accept()[0])
                runs[name].send(number)
        for name, run in runs.items():
            ended = run.wait()
            assert ended.status == (0 if name in SERVING else status), f"{name}: {ended}"
            assert (ended.out, ended.error in INTERRUPTED) == ("", True) or name == "ui", f"{name}: {ended}"
            assert NOT_OURS.search(ended.error) is None, f"{name}: {ended}"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_search_with_its_results(number: int, status: int, tmp_path: Path) -> None:
    run = started("simulate", tmp_path, "--minutes", "60", "--resume", "seed", "--history", "found")
    folder = tmp_path / "simulate"
    while not (folder / "seed").exists():
        assert run.is_running()
    run.send(number)
    ended = run.wait()
    assert (ended.status, "stopped after" in ended.out) == (status, True)
    assert (folder / "found").read_text().startswith('{"fencepost_history": 1}\n')


@dataclass(frozen=True)
class World:
    """A broker that asks for a login, and folders for commands. Each command has an object of its own."""

    address: str
    folder: Path

    def start(self, name: str, user: str, *, stdout: str = "") -> CommandRun:
        folder = self.folder / user
        folder.mkdir(exist_ok=True)
        login = folder / f"{name}.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username={user.partition('-')[0]}\nsasl.password=secret of {user.partition('-')[0]}\n"
        )
        more = ["-b", self.address, "--command-config", str(login)] if name in OF_A_CLUSTER else []
        return started(name, folder, *more, stdout=stdout)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    users = {"admin": "secret of admin", "nobody": "secret of nobody"}
    rules = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "admin",
        "sasl_password": users["admin"],
    }
    with fencepost.Broker(with_users(rules, users, "127.0.0.1", port)):
        with fencepost.Admin(**settings) as admin:
            admin.create_topic("t", 1)
            admin.alter_group_offsets("g", {("t", 0): 0})
        with fencepost.Producer(**settings) as producer:
            producer.send("t", b"value")
            producer.flush()
        with fencepost.Producer(**settings, transactional_id="x") as transactional:
            transactional.init_transactions()
        yield World(settings["bootstrap_servers"], tmp_path_factory.mktemp("world"))


WITHOUT_RIGHTS = {
    "bench": "create topic 'bench-",
    "topics list": "no topic is visible to this principal",
    "groups list": "no group is visible to this principal",
    "transactions list": "no transactional id is visible to this principal",
    "transactions find-hanging": "no topic is visible to this principal, so no partition was looked at",
    "transactions finish-flink": "",
}
"""Reasons besides the broker's error: the first one counts, and a listing that is empty is no result."""


def test_without_rights_the_object_is_named(world: World) -> None:
    runs = {name: world.start(name, "nobody") for name in OF_A_CLUSTER}
    for name, run in runs.items():
        ended = run.wait()
        assert ended.status == (4 if name == "doctor" else COULD_NOT_RUN.get(name, 1)), f"{name}: {ended}"
        said = WITHOUT_RIGHTS.get(name, "AUTHORIZATION_FAILED")
        assert said in reason_of(name, ended), f"{name}: {ended}"


def test_a_wrong_password_is_named_with_the_address(world: World) -> None:
    runs = {name: world.start(name, "stranger") for name in OF_A_CLUSTER}
    for name, run in runs.items():
        ended = run.wait()
        assert ended.status == (4 if name == "doctor" else COULD_NOT_RUN.get(name, 1)), f"{name}: {ended}"
        assert f"{world.address}: SASL PLAIN: Authentication failed" in reason_of(name, ended), f"{name}: {ended}"


PRINTING = [
    "topics list",
    "topics describe",
    "consume",
    "groups list",
    "groups describe",
    "groups reset-offsets",
    "configs describe",
    "configs alter",
    "acls list",
    "acls add",
    "users list",
    "users set-password",
    "doctor",
    "transactions sinks",
    "transactions list",
    "transactions describe",
    "spark sinks",
    "check",
]
"""Commands that print something in this world."""


@pytest.mark.parametrize(("stdout", "status"), [("/dev/full", 74), ("unread", 141)])
def test_output_that_cannot_be_written_is_a_status(stdout: str, status: int, world: World) -> None:
    for name in PRINTING:
        ended = world.start(name, f"admin-{status}", stdout=stdout).wait()
        lost = "fencepost: the output was not printed completely: No space left on device\n" if status == 74 else ""
        assert (ended.status, ended.error) == (status, lost), f"{name}: {ended}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which is the same for the arguments and faster. test_wrong_values.py has the wrong values."""
    monkeypatch.chdir(prepared(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), *LINES[name].split(), "--no-such-option"])
    out, error = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert error.splitlines()[-1].startswith("Error: No such option: --no-such-option")


@pytest.mark.parametrize("file", ["/no/such/file", "checkpoint", "password"])
def test_settings_that_cannot_be_read_are_named(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared(tmp_path))
    for name in [*OF_A_CLUSTER, "ui"]:
        with pytest.raises(SystemExit) as ended:
            main([*name.split(), *LINES[name].split(), "-b", "127.0.0.1:1", "--command-config", file])
        out, error = capsys.readouterr()
        assert (ended.value.code, out) == (2, ""), name
        assert error.splitlines()[-1].startswith(f"Error: Invalid value for --command-config: {file}: "), error
