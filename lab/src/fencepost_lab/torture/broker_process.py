"""A broker as a child process that can be killed and restarted on the same port and data."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fencepost_lab.torture.child_process import ChildProcess

__all__ = ["BrokerProcess", "CommandBroker"]

START_S: Final = 120.0
STOP_S: Final = 120.0
_LISTENING: Final = "listening on "

Setting = str | int | bool


class BrokerProcess:
    """`fencepost broker` as a process. A restart continues on its port where the kill left its data.

    Args:
        settings: The broker's settings by name.
        folder: Folder for data, settings and log; None: a temporary one, which `stop` removes.
        address: HOST:PORT to listen on; port 0: a free one at the first start.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        folder: Path | None = None,
        address: str = "127.0.0.1:0",
    ) -> None:
        self.bootstrap_servers = address
        self._settings = dict(settings or {})
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fencepost-process-")
            folder = Path(self._temporary.name)
        self.folder = folder
        """Folder with data, settings and log."""
        self._child: ChildProcess | None = None

    @property
    def data_directory(self) -> Path:
        """Folder with the broker's data."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """File with the broker's output."""
        return self.folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id; None when it does not run."""
        return None if self._child is None else self._child.pid

    @property
    def is_running(self) -> bool:
        """True between start and end."""
        return self.pid is not None

    def configure(self, settings: Mapping[str, Setting]) -> None:
        """Add settings for the next start."""
        self._settings.update(settings)

    def start(self) -> None:
        """Start the broker and wait until it listens. Raises StartupError."""
        self.launch()
        self.wait_until_it_listens()

    def launch(self) -> None:
        """Start the broker and do not wait."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / "broker.properties"
        file.touch(mode=0o600)  # settings may contain passwords, which the process list must not show
        file.write_text("".join(f"{name}={_text(value)}\n" for name, value in self._settings.items()))
        own = ("--listen", self.bootstrap_servers, "--data-dir", str(self.data_directory), "--config-file", str(file))
        command = [sys.executable, "-m", "fencepost", "broker", *own]
        self._child = ChildProcess(command, self.log, environment={"PYTHONUNBUFFERED": "1"})
        self._child.launch()

    def wait_until_it_listens(self) -> None:
        """Wait for a broker that was launched. Raises StartupError."""
        child = self._child
        if child is None:
            raise RuntimeError("the broker was not launched")
        child.wait_until(lambda: child.line(_LISTENING) is not None, START_S, "the broker did not start")
        self.bootstrap_servers = child.line(_LISTENING) or self.bootstrap_servers

    def output(self) -> str:
        """Return the broker's log."""
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT."""
        if self._child is not None:
            self._child.send(number)

    def kill(self) -> None:
        """Send SIGKILL; the data stay."""
        if self._child is not None:
            self._child.kill()

    def restart(self) -> None:
        """Stop the broker and start it on the same data."""
        self.stop(keep_data=True)
        self.start()

    def stop(self, *, keep_data: bool = False) -> None:
        """Stop the broker. Without `keep_data` its temporary folder is removed."""
        if self._child is not None:
            self._child.end(within_s=STOP_S)
        if self._temporary is not None and not keep_data:
            self._temporary.cleanup()


class CommandBroker:
    """A Kafka started by a shell command in the foreground. Its data survives the process."""

    def __init__(self, command: str, bootstrap_servers: str, log: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._command = command
        self._child = ChildProcess(["/bin/sh", "-c", f"exec {command}"], log)

    @property
    def pid(self) -> int | None:
        """Process id of the running command."""
        return self._child.pid

    def start(self) -> None:
        """Run the command and wait until its port accepts connections. Raises StartupError."""
        self._child.launch()
        what = f"{self._command!r} does not listen on {self.bootstrap_servers}"
        self._child.wait_until(self._listens, START_S, what)

    def _listens(self) -> bool:
        host, _, port = self.bootstrap_servers.split(",")[0].rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
        return False

    def kill(self) -> None:
        """Send SIGKILL to the command and all processes that it started."""
        self._child.kill()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after half a minute."""
        self._child.end()


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
