"""Apache Kafka of another release, from 2.4 on, for tests: one node, with ZooKeeper where it needs it (before 3.3).

with OlderKafka("2.8.2") as kafka:
    connect_to(kafka.bootstrap_servers)
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost_lab.torture.child_process import ChildProcess
from tests.support.apache_kafka import START_TIMEOUT_S, ApacheKafka, Setting, StartFailed, jars_folder

POM = Path(__file__).with_name("older-kafka.pom.xml")


class OlderKafka(ApacheKafka):
    """As ApacheKafka, of another release. Its data are not kept over `stop` where there is a ZooKeeper."""

    def __init__(
        self,
        release: str,
        properties: Mapping[str, Setting] | None = None,
        *,
        authorizer: bool = False,
        format_arguments: Sequence[str] = (),
    ) -> None:
        """`release`: of Maven Central, like "3.9.1"; the others as in ApacheKafka."""
        self._release = release
        self._has_zookeeper = version(release) < (3, 3)
        self._zookeeper: ChildProcess | None = None
        settings: dict[str, Setting] = {}
        if self._has_zookeeper and authorizer:
            settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
        if version(release) < (4, 1):
            settings["unstable.api.versions.enable"] = False  # these have other previews, which are not wanted
        super().__init__(
            {**settings, **(properties or {})},
            authorizer=authorizer,
            format_arguments=format_arguments,
        )

    def _jars(self) -> Path:
        return jars_folder(POM, release=self._release)

    def _launch(self, fresh: bool) -> None:
        if self._has_zookeeper and self._zookeeper is None:
            folder = self._home() / "zookeeper"
            self._zookeeper = self._run_java(
                "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._controller_port), str(folder)
            )
            self._wait_for_zookeeper()
        super()._launch(fresh)

    def _wait_for_zookeeper(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection((self.host, self._controller_port), timeout=1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise StartFailed(f"ZooKeeper did not answer within {START_TIMEOUT_S} s:\n{self.output()[-4000:]}")

    def _configuration(self) -> str:
        if not self._has_zookeeper:
            return super()._configuration()
        lines = super()._configuration().splitlines()
        of_kraft = ("process.roles", "node.id", "controller.", "listeners=", "listener.security.protocol.map")
        retained_lines = [line for line in lines if not line.startswith(of_kraft)]
        more = {
            "broker.id": 1,
            "zookeeper.connect": f"{self.host}:{self._controller_port}",
            "listeners": self._addresses(),
        }
        return "\n".join([*retained_lines, *(f"{key}={value}" for key, value in more.items()), ""])

    def _format(self, configuration: Path) -> None:
        if not self._has_zookeeper:
            super()._format(configuration)

    def _end_process(self, kind: signal.Signals) -> None:
        super()._end_process(kind)
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None


def version(release: str) -> tuple[int, int]:
    """(3, 9) of "3.9.1"."""
    major, minor = release.split(".")[:2]
    return int(major), int(minor)
