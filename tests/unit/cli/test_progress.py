"""The line about long work: on a terminal, for every command; rewritten, and gone before other output."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.cli.commands import COMMANDS
from fencepost.cli.main import main
from fencepost.cli.progress import AFTER_S, ERASE, ProgressLine
from tests.support.command_runs import CommandRun
from tests.unit.cli.test_statuses import LINES, NAMES_FINDINGS, OF_A_CLUSTER, prepared

SERVERS = {"broker", "ui"}
MARK = "\x00"  # no command writes it
LONG_BY_THEMSELVES = {"demo", "simulate"}
"""These print lines of their own or have a table, or compute; and they end by Ctrl-C in test_statuses.py."""


class Terminal:
    """A pseudo-terminal, and all that was written to it."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.name = os.ttyname(slave)
        self._slave = slave
        self.text = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while data := self._data():
            with self._changed:
                self.text += data.decode(errors="replace")
                self._changed.notify_all()
        os.close(self._master)

    def _data(self) -> bytes:
        try:
            return os.read(self._master, 65_536)
        except OSError:  # the last writer has closed it
            return b""

    def until(self, words: str, name: str = "") -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: words in self.text, 60), f"{name}: {self.text}"

    def lines(self) -> list[str]:
        """The lines that a person sees in the end: of each, the text after its last erasure."""
        os.write(self._slave, MARK.encode())  # all that was written before it has been read when it arrives
        with self._changed:
            assert self._changed.wait_for(lambda: MARK in self.text, 60), self.text
            self.text = self.text.replace(MARK, "")
            return [line.rpartition(ERASE)[2].rstrip("\r") for line in self.text.split("\n")]

    def close(self) -> None:
        os.close(self._slave)


@contextmanager
def silent_server() -> Iterator[str]:
    """An address at which connections are accepted, and no request is answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    new_terminal = Terminal()
    yield new_terminal
    new_terminal.close()


def test_every_command_that_asks_a_cluster(tmp_path: Path) -> None:
    """A broker that does not answer: the line is there before the error, and the error takes its place."""
    with silent_server() as address:
        runs = {}
        for name in OF_A_CLUSTER:
            folder = tmp_path / name.replace(" ", "-")
            folder.mkdir()
            terminal = Terminal()
            words = [*name.split(), *LINES[name].split(), "-b", address]
            runs[name] = CommandRun(words, prepared(folder), stderr=terminal.name), terminal
        for name, (run, terminal) in runs.items():
            assert run.wait().status in (1, 2), name
            terminal.until("fencepost: working (", name)
            terminal.until("errors: 1" if name in NAMES_FINDINGS else f"no broker answers at {address}", name)
            assert not [line for line in terminal.lines() if line.startswith("fencepost: working")], name
            terminal.close()
    assert len(runs) > 30


def test_every_command_of_the_table_is_known_to_this_test() -> None:
    asking = {name.partition(" ")[0] for name in OF_A_CLUSTER}
    assert set(COMMANDS) == asking | SERVERS | LONG_BY_THEMSELVES | {"check", "dump", "repair"}


def test_a_command_that_reads_a_file_ends_by_ctrl_c(tmp_path: Path, terminal: Terminal) -> None:
    os.mkfifo(tmp_path / "input")
    writer = os.open(tmp_path / "input", os.O_RDWR)  # it never writes
    run = CommandRun(["check", "input"], tmp_path, stderr=terminal.name)
    terminal.until("fencepost: working (")
    run.send(signal.SIGINT)
    assert run.wait().status == 130
    assert not [line for line in terminal.lines() if line], terminal.text
    os.close(writer)


@pytest.mark.parametrize("name", ["dump", "repair"])
def test_commands_that_read_a_data_directory_say_where_they_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=str(tmp_path)) as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 2)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for partition in (0, 1):
                producer.send("t", b"value", partition=partition)
    said: list[str] = []
    if name == "dump":
        monkeypatch.setattr("fencepost.cli.cluster.dump.step", said.append)
        arguments, expected = [str(tmp_path / "t-0")], [f"{tmp_path}/t-0/00000000000000000000.log at 0 bytes"]
    else:
        monkeypatch.setattr("fencepost.cli.repair.step", said.append)
        arguments, expected = ["--data-dir", str(tmp_path)], ["reading t-0", "reading t-1"]
    with pytest.raises(SystemExit) as ended:
        main([name, *arguments])
    assert not ended.value.code
    assert said == expected


class Written:
    """A terminal of some width with a clock that tests move."""

    def __init__(self, columns: int = 80) -> None:
        self.text = ""
        self.now_s = 100.0
        self.progress = ProgressLine(self._write, lambda: self.now_s, lambda: columns)

    def _write(self, text: str) -> None:
        self.text += text

    def after(self, seconds: float) -> str:
        """Return the text that a tick writes at that time."""
        self.now_s += seconds
        before = len(self.text)
        self.progress.tick()
        return self.text[before:]


def test_nothing_is_shown_before_a_time_of_silence() -> None:
    shown = Written()
    assert shown.after(AFTER_S - 0.1) == ""
    assert shown.after(0.1) == f"{ERASE}fencepost: working (2 s)"
    assert shown.after(5) == f"{ERASE}fencepost: working (7 s)"


def test_other_output_erases_the_line_and_begins_a_time_of_silence() -> None:
    shown = Written()
    shown.after(AFTER_S)
    shown.progress.make_way()
    assert shown.text.endswith(f"(2 s){ERASE}")
    shown.progress.make_way()
    assert shown.text.endswith(f"(2 s){ERASE}")  # once
    assert shown.after(1) == ""
    assert shown.after(1) != ""


def test_the_step_is_shown_in_one_line_without_control_characters() -> None:
    shown = Written(columns=40)
    shown.progress.step("reading a topic with a name that is long\x1b[2J-0")
    line = shown.after(AFTER_S).removeprefix(ERASE)
    assert line == "fencepost: reading a topic with … (2 s)"
    assert len(line) == 39
    shown.progress.step("a\x1bb")
    assert "\x1b" not in shown.after(1).removeprefix(ERASE)


def test_nothing_is_shown_while_a_person_types() -> None:
    shown = Written()
    shown.after(AFTER_S)
    with shown.progress.paused():
        assert shown.after(10) == ""
    assert shown.after(AFTER_S - 0.1) == ""
    assert shown.after(0.1) == f"{ERASE}fencepost: working (14 s)"
