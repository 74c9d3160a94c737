"""The brokers of a differential run, as workloads need them: topics of their own, an administrator, a restart."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import fencepost
from fencepost.errors import KafkaError
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import HasAddress
from tests.support.waiting import until

__all__ = ["SETTINGS", "Arm"]

SETTINGS: dict[str, str | int | bool] = {
    "auto.create.topics.enable": False,
    "log.cleaner.backoff.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
}
"""Of both. Topics are not made by the clients that look for a deleted one."""


class Arm:
    """A running broker. Context manager; the broker is the caller's to stop."""

    def __init__(self, name: str, running: HasAddress) -> None:
        self.name = name
        self._running = running
        self.admin = fencepost.Admin(running.bootstrap_servers)

    def __enter__(self) -> Self:
        self.admin.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.admin.__exit__(kind, error, traceback)

    @property
    def servers(self) -> str:
        return self._running.bootstrap_servers

    def create(self, topic: str = "", **configs: str) -> str:
        """Make a topic of one partition, of that name or of a new one, once a deleted one of the name has gone."""
        name = topic or f"t{uuid.uuid4().hex[:12]}"

        def is_created() -> bool:
            try:
                self.admin.create_topic(name, 1, 1, configs=configs)
            except KafkaError as error:
                if getattr(error, "code", 0) != 36:
                    raise
                return False
            return True

        until(is_created)
        return name

    @property
    def can_restart(self) -> bool:
        return isinstance(self._running, BrokerProcess | ApacheKafka)

    def kill_and_restart(self) -> None:
        """`kill -9`, and a start on what is there."""
        if not isinstance(self._running, BrokerProcess | ApacheKafka):
            raise TypeError(f"{self.name} is not a process of its own")
        self._running.kill()
        self._running.start()

    def cpu_s(self) -> float:
        """Processor time that the broker's process has taken; 0 for one that is no process of its own."""
        pid = getattr(self._running, "pid", None)
        if not pid or pid < 0:
            return 0.0
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
