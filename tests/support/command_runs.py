"""`fencepost` as a process of its own: forked from one that has imported the commands, so that many can be tried."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from fencepost.cli.commands import COMMANDS, loaded
from fencepost.cli.main import main
from tests.support.forked import forked

__all__ = ["CommandRun", "RunResult", "commands_of"]

LIMIT_S: Final = 120
UNREAD: Final = "unread"
"""A pipe whose reader has closed it, in place of the name of a file."""


@dataclass(frozen=True)
class RunResult:
    """The status as a shell shows it, and the outputs."""

    status: int
    out: str
    error: str


class CommandRun:
    """A running command. Its standard input is empty, its standard output a file, by default its own."""

    def __init__(self, words: Sequence[str], folder: Path, stdout: str = "", stderr: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.words, self._out, self._error = tuple(words), folder / "stdout", folder / "stderr"
        self._process: ForkServerProcess = forked(
            _run, self.words, str(folder), stdout or str(self._out), stderr or str(self._error)
        )

    def send(self, number: int) -> None:
        pid = self._process.pid
        if pid is not None:
            os.kill(pid, number)

    def is_running(self) -> bool:
        return self._process.is_alive()

    def wait(self, limit_s: float = LIMIT_S) -> RunResult:
        """Return the result. Raises AssertionError if the command does not end by itself within the limit."""
        self._process.join(limit_s)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise AssertionError(f"{' '.join(self.words)} does not end within {limit_s:g} s: {self._error.read_text()}")
        out, error = (path.read_text(errors="replace") if path.exists() else "" for path in (self._out, self._error))
        return RunResult(128 - code if code < 0 else code, out, error)


for _command in COMMANDS.values():
    import_module(_command.target.partition(":")[0])


def _run(words: Sequence[str], folder: str, stdout: str, stderr: str) -> None:
    os.chdir(folder)
    if stdout == UNREAD:
        reader, writer = os.pipe()
        os.close(reader)
        stdout = f"/dev/fd/{writer}"
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, stdout, os.O_WRONLY | os.O_CREAT),
        (2, stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    main(list(words))


def commands_of() -> Iterator[tuple[str, Any]]:
    """Yield every command without subcommands with typer's object, found in the parser."""
    for name in COMMANDS:
        yield from _within(name, loaded(name))


def _within(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for word, each in inner.items():
        yield from _within(f"{name} {word}", each)
