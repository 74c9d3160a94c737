"""A driver that has Spark's own Kafka connector beside ours, and topics in the states that matter."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost import Admin, Producer
from tests.spark.answering import AnsweringProgram
from tests.spark.copying import HERE
from tests.support import built_in_connector

BUILT_IN, OURS = "kafka", "fencepost"
FORMATS = (BUILT_IN, OURS)


class SideBySide(AnsweringProgram):
    """The program side_by_side.py. What one format does is asked of it, and then what the other one does."""

    def __init__(self, python: str, servers: str, folder: Path) -> None:
        """`python`: for PYSPARK_PYTHON; `folder`: for checkpoints and the log."""
        super().__init__([str(HERE / "side_by_side.py"), built_in_connector.jars()], folder / "log", python=python)
        self.servers, self._folder = servers, folder

    def ask(self, do: str, **more: Any) -> Any:
        """Ask, and wait for the answer."""
        self.send({"do": do, **more})
        return self.answer()

    def options(self, more: Mapping[str, str]) -> dict[str, str]:
        """Committed records only, as is our default and not the other's."""
        return {"kafka.bootstrap.servers": self.servers, "kafka.isolation.level": "read_committed", **more}

    def read(self, kind: str, options: Mapping[str, str]) -> Any:
        """A batch read."""
        return self.ask("read", format=kind, options=self.options(options))

    def new_checkpoint(self) -> str:
        """A folder that is not there yet."""
        return str(self._folder / f"checkpoint-{uuid.uuid4().hex[:8]}")

    def stream(self, kind: str, options: Mapping[str, str], checkpoint: str | None = None, **how: Any) -> Any:
        """A streaming read. `how`: further fields of the question."""
        where = checkpoint or self.new_checkpoint()
        return self.ask("stream", format=kind, options=self.options(options), checkpoint=where, **how)


class Topics:
    """Makes topics with records. Each partition's are `NAME PARTITION NUMBER`."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def make(self, *backlogs: int, name: str | None = None, **settings: str) -> str:
        """A topic with as many partitions as backlogs are given."""
        topic = name or f"beside-{uuid.uuid4().hex[:8]}"
        with Admin(self.servers) as admin:
            admin.create_topic(topic, len(backlogs), configs={key.replace("_", "."): v for key, v in settings.items()})
        self.add(topic, *backlogs)
        return topic

    def add(self, topic: str, *counts: int, at_ms: int | None = None, step_ms: int = 1, value: str = "") -> None:
        """More records, by partition."""
        with Producer(self.servers) as producer:
            for partition, count in enumerate(counts):
                for number in range(count):
                    text = (value or f"{topic} {partition} {number}").encode()
                    moment = None if at_ms is None else at_ms + number * step_ms
                    producer.send(topic, text, partition=partition, timestamp_ms=moment)

    def aborted(self, topic: str, count: int) -> None:
        """Records of partition 0 that readers of committed records never see."""
        with Producer(self.servers, transactional_id=f"{topic}-aborts-{uuid.uuid4().hex[:8]}") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(count):
                producer.send(topic, f"aborted {number}".encode(), partition=0)
            producer.flush()
            producer.abort_transaction()
