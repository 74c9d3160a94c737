"""The demo's child processes: a broker that can be killed and started again on its port, and a driver whose events are
read.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fencepost.demo.query import Job

__all__ = ["BrokerProcess", "DriverProcess", "StartupError", "free_port"]

BROKER_START_SECONDS = 30.0


class StartupError(RuntimeError):
    """A child process did not come up; the message says where its log is."""


def free_port() -> int:
    """A TCP port on the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerProcess:
    """`fencepost broker` on a fixed port and data directory, so that a restart continues where the kill left it."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        self.bootstrap_servers = f"127.0.0.1:{free_port()}"
        self._data_dir = data_dir
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it answers. Raises StartupError."""
        arguments = ["broker", "--listen", self.bootstrap_servers, "--data-dir", str(self._data_dir)]
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
        """The running broker's process id."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that takes longer than ten seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


def _first_line(process: subprocess.Popen[str], timeout_seconds: float) -> str:
    """The first line of stdout, or "" when none comes in time."""
    if process.stdout is None:
        return ""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda stream: lines.put(stream.readline()), args=(process.stdout,), daemon=True).start()
    try:
        return lines.get(timeout=timeout_seconds)
    except queue.Empty:
        return ""


class DriverProcess:
    """The PySpark driver; its events arrive in `events` in order, each with the run that sent it."""

    def __init__(self, job: Job, log: Path, environment: dict[str, str]) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fencepost.demo.query", job.to_json()],
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={
                    **os.environ,
                    **environment,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                },
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Collect events; anything else on stdout (Spark's launcher prints there) is not ours."""
        if self.process.stdout is None:
            return
        for line in self.process.stdout:
            if line.startswith('{"event"'):
                self.events.put(json.loads(line))

    def drain(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        found = []
        while not self.events.empty():
            found.append(self.events.get_nowait())
        return found
