"""A broker as a child process that can be killed and restarted on the same port and data."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BrokerProcess", "CommandBroker", "StartupError", "free_port"]

BROKER_START_SECONDS = 30.0
COMMAND_START_SECONDS = 120.0


class StartupError(RuntimeError):
    """A child process did not start. The message names its log file."""


def free_port() -> int:
    """Return a free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerProcess:
    """`fencepost broker` on a fixed port and data directory, so that a restart continues where the kill left it."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"
        self._data_dir = data_dir
        self._log = log
        self._settings_file: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the broker settings of the next start to a private file, because they may contain passwords."""
        self._settings_file = self._log.with_suffix(".properties")
        self._settings_file.touch(mode=0o600)
        self._settings_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start(self) -> None:
        """Start the broker and wait until it answers. Raises StartupError."""
        arguments = ["broker", "--listen", self.bootstrap_servers, "--data-dir", str(self._data_dir)]
        if self._settings_file is not None:
            arguments += ["--config-file", str(self._settings_file)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fencepost", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        line = _first_line(self._process, BROKER_START_SECONDS)
        if not line.startswith("listening on"):
            self.kill()
            raise StartupError(f"the broker did not start; its log is {self._log}")

    @property
    def pid(self) -> int | None:
        """Process id of the running broker."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after ten seconds."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _first_line(process: subprocess.Popen[str], timeout_seconds: float) -> str:
    """Return the first line of stdout, or "" after the timeout."""
    if process.stdout is None:
        return ""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda stream: lines.put(stream.readline()), args=(process.stdout,), daemon=True).start()
    try:
        return lines.get(timeout=timeout_seconds)
    except queue.Empty:
        return ""


class CommandBroker:
    """A Kafka started by a shell command in the foreground. Its data survives the process."""

    def __init__(self, command: str, bootstrap_servers: str, log: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running command."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Run the command and wait until its port accepts connections. Raises StartupError."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._command}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        host, _, port = self.bootstrap_servers.split(",")[0].rpartition(":")
        deadline = time.monotonic() + COMMAND_START_SECONDS
        while time.monotonic() < deadline and self.pid is not None:
            with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=1):
                return
            time.sleep(0.1)
        self.kill()
        raise StartupError(f"{self._command!r} does not listen on {self.bootstrap_servers}; its log is {self._log}")

    def kill(self) -> None:
        """Send SIGKILL to the command and all processes that it started."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after half a minute."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        os.killpg(self._process.pid, number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
