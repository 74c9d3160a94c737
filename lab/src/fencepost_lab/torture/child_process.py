"""A child process of a run: start, watch its output, signal, kill, restart, wait with a bound."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["ChildProcess", "StartupError", "dies_with_starter", "free_port"]

LOOK_EVERY_S = 0.01
STOP_S = 30.0
TAIL_CHARACTERS = 3000


class StartupError(RuntimeError):
    """A child process did not start. The message names its log file and has the end of it."""


def free_port() -> int:
    """Return a free TCP port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def dies_with_starter(starter_stays: bool = False) -> list[str]:
    """Return a command prefix by which Linux kills the process when its starter ends without stopping it.

    The kernel ties the process to the thread that starts it, so the prefix is empty in a thread that may end earlier.

    Args:
        starter_stays: The calling thread lives for as long as the process. The main thread always does.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or not (starter_stays or threading.current_thread() is threading.main_thread()):
        return []
    return [setpriv, "--pdeathsig", "KILL"]


class ChildProcess:
    """A program in a process group of its own. It can be started again after its end; `log` has all of its output.

    Args:
        command: Program and arguments.
        log: File to which each start appends stdout and stderr.
        environment: Variables in addition to this process's, or to those in `inherited`.
        inherited: Variables instead of this process's.
        folder: Working directory.
        starter_stays: The thread that starts it lives for as long as the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        inherited: Mapping[str, str] | None = None,
        folder: Path | None = None,
        starter_stays: bool = False,
    ) -> None:
        self.command = list(command)
        self.log = log
        self._environment = {**(os.environ if inherited is None else inherited), **(environment or {})}
        self._folder = folder
        self._starter_stays = starter_stays
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._began = self._read = 0

    @property
    def pid(self) -> int | None:
        """Process id; None when it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def is_running(self) -> bool:
        """True between start and end."""
        return self.pid is not None

    @property
    def status(self) -> int | None:
        """Exit status of the latest start, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    def launch(self, given: bytes | None = None) -> None:
        """Start the program and do not wait for anything. `given` is its standard input."""
        self._is_over = False
        self._began = self._read = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [*dies_with_starter(self._starter_stays), *self.command],
                stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C in the terminal reaches only the supervisor, which ends its children
            )
        if given is not None and process.stdin is not None:
            # a broken pipe means that the program ended early; its log has the reason
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(given)

    def wait_until(self, ready: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until it is ready.

        Args:
            ready: Condition.
            within_s: Bound in seconds.
            what: Subject and verb for the error, such as "the broker did not start".

        Raises:
            StartupError: It ended, or is not ready in time. It is killed.
        """
        deadline = time.monotonic() + within_s
        while not ready():
            if self.status is not None or time.monotonic() > deadline:
                self.kill()
                raise StartupError(f"{what}; its log is {self.log}\n{self.tail()}")
            time.sleep(LOOK_EVERY_S)

    def output(self) -> str:
        """Return all output, of earlier starts too."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self) -> str:
        """Return the end of the output."""
        return self.output()[-TAIL_CHARACTERS:]

    def line(self, prefix: str) -> str | None:
        """Return the rest of this start's first whole line with the prefix."""
        with self.log.open("rb") as log:
            log.seek(self._began)
            found = (line for line in log if line.startswith(prefix.encode()) and line.endswith(b"\n"))
            return next((line.decode()[len(prefix) :].strip() for line in found), None)

    def new_lines(self) -> list[str]:
        """Return the whole lines since the last call, or since the start."""
        with self.log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program itself."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, within_s: float) -> int:
        """Return the exit status. Raises subprocess.TimeoutExpired after the bound, in seconds."""
        if self._process is None:
            raise RuntimeError(f"{self.command} is not running")
        return self._process.wait(within_s)

    def kill(self) -> None:
        """Send SIGKILL to the program and all processes of its group."""
        if self._process is not None and not self._is_over:
            self._is_over = True  # later, the number of its group may be that of another
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = STOP_S) -> None:
        """Send a signal to the program, wait, and kill what is left of its group."""
        if self.is_running:
            self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(within_s)
        self.kill()
