"""A stream from topic to topic, run by programs that can be killed, and checked record by record.

The output is read by another client (librdkafka, read_committed) and compared with the input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs forget it

from fencepost import Admin

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "src"
RECORDS = 2500
PARTITIONS = 2  # as many as task slots
ARMS = {  # the fixture of conftest.py with the brokers, and the sink's guarantee there
    "fencepost": ("own_broker", "durable"),
    "fencepost in Arrow": ("own_broker", "durable"),
    "fencepost of transaction.version 0": ("own_broker_of_version_0", "timed"),
    "kafka": ("apache_kafka", "durable"),
    "kafka without two-phase commit": ("kafka_without_two_phase", "timed"),
    "three kafkas": ("three_kafkas", "timed"),
    # Queries of stateful.py, some also at an Apache Kafka:
    "windows": ("own_broker", "durable"),
    "pairs": ("own_broker", "durable"),
    "outer": ("own_broker", "durable"),
    "within": ("own_broker", "durable"),
    "function with state": ("own_broker", "durable"),
    "processor": ("own_broker", "durable"),
    "windows at kafka": ("kafka_without_two_phase", "timed"),
    "function with state at kafka": ("kafka_without_two_phase", "timed"),
    "processor at kafka": ("apache_kafka", "durable"),
}


class Driver(Protocol):
    """One for many runs that nobody kills: to start one takes far longer than to copy."""

    def copy(self, arguments: dict[str, str]) -> str:
        """Copy, and return the report of the run."""


def environment(*first: str | Path) -> dict[str, str]:
    """Of a driver. `first` go before our sources on its path."""
    path = os.pathsep.join(map(str, [*first, SOURCES, ROOT]))
    return dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=path)


def with_killer(orders: object) -> dict[str, str]:
    """Of a driver whose processes are to be killed."""
    killer = {"FENCEPOST_TEST_KILL": json.dumps(orders), "FENCEPOST_TEST_STARTER": str(os.getpid())}
    return environment(HERE / "killer") | killer


@dataclass
class Copy:
    """One sink with its topics and checkpoint, and how to run its query."""

    servers: str
    folder: Path
    name: str = field(default_factory=lambda: f"copy-{uuid.uuid4().hex[:8]}")
    guarantee: str = "durable"
    driver: Driver | None = None
    in_arrow: bool = False

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        # With as many replicas as is usual there. Records may be of long ago.
        topics = [NewTopic(name, PARTITIONS, config={"retention.ms": "-1"}) for name in (self.source, self.target)]
        for future in admin.create_topics(topics).values():
            future.result()

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(first, first + count):
            producer.produce(self.source, key=str(number % 101), value=f"{self.name} {number}")
        assert producer.flush(120) == 0

    def fill(self) -> None:
        """Write the records that the killed driver reads."""
        self.produce(0, RECORDS)

    def run_to_the_end(self, **more: str) -> str:
        """Copy in the driver that is not killed, and return the report of the run."""
        assert self.driver is not None
        return self.driver.copy(self.arguments(**more))

    def run_alone_to_the_end(self, python: str, **more: str) -> None:
        """Copy in a driver of its own, which must succeed. `python` is the value of PYSPARK_PYTHON."""
        command = [sys.executable, str(HERE / "copy_topic.py"), json.dumps(self.arguments(**more))]
        surroundings = environment() | {"PYSPARK_PYTHON": python}
        output = self.folder / "output"
        with output.open("w") as reported:  # and no pipe, which a process that is left could keep open
            done = subprocess.run(command, env=surroundings, stdout=reported, stderr=reported, timeout=600, check=False)
        assert done.returncode == 0, output.read_text()[-6000:]

    def arguments(self, **more: str) -> dict[str, str]:
        """Return the arguments of copy_topic.py."""
        return {
            "servers": self.servers,
            "source": self.source,
            "target": self.target,
            "sink": self.name,
            "checkpoint": str(self.folder / "checkpoint"),
            "guarantee": self.guarantee,
            **({"arrow": "yes"} if self.in_arrow else {}),
            **more,
        }

    def batches(self) -> list[Path]:
        """Return the files of the complete batches in Spark's checkpoint."""
        return [path for path in (self.folder / "checkpoint" / "commits").glob("*") if path.name.isdecimal()]

    def values(self) -> list[str]:
        """Everything committed in the target, as librdkafka reads it."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.target, number, 0) for number in range(PARTITIONS)])
        values: list[str] = []
        ended = 0
        until = time.monotonic() + 300
        while ended < PARTITIONS:
            assert time.monotonic() < until, "the target could not be read to its end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                ended += 1
            else:
                values.append(f"{(message.key() or b'').decode()} {(message.value() or b'').decode()}")
        consumer.close()
        return values

    def check(self, records: int) -> None:
        """Every record once, with its key, and nothing in doubt."""
        self.check_values(Counter(f"{number % 101} {self.name} {number}" for number in range(records)))

    def check_values(self, wanted: Counter[str]) -> None:
        """Exactly these, and nothing in doubt."""
        found = Counter(self.values())
        assert found == wanted, {"doubled": list((found - wanted).items())[:9], "lost": list(wanted - found)[:9]}
        with Admin(self.servers) as admin:
            mine = [listing for listing in admin.list_transactions() if f"/{self.name}" in listing.transactional_id]
        assert mine
        assert [listing for listing in mine if listing.state not in ("Empty", "CompleteCommit", "CompleteAbort")] == []


def make_copy(
    request: pytest.FixtureRequest, arm: str, folder: Path, driver: Driver, kind: Callable[..., Copy] = Copy
) -> Copy:
    """Return a copy job on the brokers of an arm, with its topics."""
    broker, guarantee = ARMS[arm]
    servers = request.getfixturevalue(broker).bootstrap_servers
    new_copy = kind(servers, folder, guarantee=guarantee, driver=driver, in_arrow="Arrow" in arm)
    new_copy.create()
    return new_copy
