"""The two brokers that conformance tests speak to, with one face."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from tests.support.apache_kafka import VERSION, ApacheKafka
from tests.support.dying import dying_with_us
from tests.support.raw_client import Closed, RawClient

Arm = Literal["fencepost", "kafka"]
LISTENING = "listening on "


def free_port() -> int:
    """Return a port of 127.0.0.1 at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class HasAddress(Protocol):
    """fencepost.Broker, ApacheKafka and FencepostProcess."""

    @property
    def bootstrap_servers(self) -> str: ...


class BrokerUnderTest:
    """A running broker of one arm. Names are made unique, because the Kafka node is shared by all tests."""

    def __init__(self, arm: Arm, running: HasAddress) -> None:
        self.arm = arm
        self.running = running
        self._is_ready = False

    @property
    def bootstrap_servers(self) -> str:
        return self.running.bootstrap_servers

    @property
    def is_ours(self) -> bool:
        """True where a test expects of our broker what Kafka does otherwise; each use says why."""
        return self.arm == "fencepost"

    def is_before(self, *release: int) -> bool:
        """Return true for an Apache Kafka before that release, which KAFKA_RELEASE may choose."""
        return not self.is_ours and tuple(map(int, VERSION.split(".")[: len(release)])) < release

    def connect(self) -> RawClient:
        client = RawClient(self.bootstrap_servers)
        if not self._is_ready:
            client.find_coordinators()
            self._is_ready = True
        return client

    def connect_again(self) -> RawClient:
        """As soon as it answers, after a kill. Raises what keeps it from that for two minutes."""
        deadline = time.monotonic() + 120
        while True:
            try:
                client = self.connect()
                client.api_versions()
            except (OSError, Closed):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return client

    def name(self, what: str) -> str:
        return f"{what}-{uuid.uuid4().hex[:10]}"


class FencepostProcess:
    """`fencepost broker` as a process of its own, which can be killed and started again on its data."""

    def __init__(self, settings: Mapping[str, str | int | bool] | None = None) -> None:
        self._settings = dict(settings or {})
        self._folder = tempfile.TemporaryDirectory(prefix="fencepost-process-")
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = "127.0.0.1:0"

    @property
    def data_directory(self) -> Path:
        return Path(self._folder.name) / "data"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else -1

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.launch()
        self.wait_until_it_listens()

    def launch(self) -> None:
        """Begin to start; it may be killed before it listens."""
        options = [
            f"--config={key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in self._settings.items()
        ]
        log = Path(self._folder.name) / "log.txt"
        with open(log, "a") as errors:
            self._process = subprocess.Popen(
                [
                    *dying_with_us(),
                    *(sys.executable, "-m", "fencepost", "broker", "--listen", self.bootstrap_servers),
                    *("--data-dir", str(self.data_directory), *options),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_until_it_listens(self) -> None:
        line = self._process.stdout.readline() if self._process and self._process.stdout else ""
        if not line.startswith(LISTENING):
            text = self.output()
            self.stop()
            raise RuntimeError(f"fencepost broker did not start: {line}{text[-4000:]}")
        self.bootstrap_servers = line.removeprefix(LISTENING).strip()

    def output(self) -> str:
        """What the broker has logged so far."""
        return (Path(self._folder.name) / "log.txt").read_text()

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self._end(signal.SIGTERM)
        self.start()

    def stop(self, *, keep_data: bool = False) -> None:
        """Stop; then the data are removed, unless it is to be started again."""
        self._end(signal.SIGTERM)
        if not keep_data:
            self._folder.cleanup()

    def _end(self, kind: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(kind)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


Killable = FencepostProcess | ApacheKafka
