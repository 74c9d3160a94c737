"""A stream from topic to topic, run by programs that can be killed, and checked record by record.

The output is read by another client (librdkafka, read_committed) and compared with the input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs forget it

from fencepost import Admin, Isolation, OffsetSpec
from tests.support.forked_python import forked_python

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "src"
RECORDS = 2500
PARTITIONS = 2  # as many as task slots
ARMS = {  # which fixture of conftest.py gives the broker, and the level that the sink has there
    "fencepost": ("own_broker", "keep-prepared"),
    "fencepost in Arrow": ("own_broker", "keep-prepared"),
    "fencepost of transaction.version 0": ("own_broker_of_version_0", "resume-v1"),
    "kafka": ("apache_kafka", "two-phase"),
    "kafka without two-phase commit": ("kafka_without_two_phase", "resume"),
    "kafka 3.3": ("kafka_3_3", "resume-unverified"),
    "kafka 2.8": ("kafka_2_8", "resume-unlisted"),
}


class SharedDriver:
    """One Spark driver for the runs that nobody kills: to start one takes far longer than to copy.

    It starts when it is first needed, and anew after a run that failed.
    """

    def __init__(self, python: str, log: Path) -> None:
        self._python, self._log = python, log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # which ends its input, and with that itself
            self._process = None

    def copy(self, arguments: dict[str, str]) -> str:
        """What the run told. Raises `AssertionError` when it failed."""
        process = self._process or self._start()
        self._process = None
        try:
            answer = self._ask(process, arguments)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        self._process = process
        return answer

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, str(HERE / "copy_topic.py"), "--serve"],
                env=environment() | {"PYSPARK_PYTHON": self._python},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _ask(self, process: subprocess.Popen[str], arguments: dict[str, str]) -> str:
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps(arguments), file=process.stdin, flush=True)
        for line in process.stdout:
            if line.startswith('{"answer"'):
                answer = json.loads(line)["answer"]
                assert "failed" not in answer, answer["failed"] + self._log.read_text()[-3000:]
                return str(answer["told"])
        raise AssertionError(f"the driver ended: {self._log.read_text()[-6000:]}")


def environment(*first: str | Path) -> dict[str, str]:
    """Of a driver. `first` go before our sources on its path."""
    path = os.pathsep.join(map(str, [*first, SOURCES, ROOT]))
    return dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=path)


def with_killer(orders: object) -> dict[str, str]:
    """Of a driver whose processes are to be killed."""
    return environment(HERE / "killer") | {"FENCEPOST_TEST_KILL": json.dumps(orders)}


@dataclass
class Copy:
    """One sink with its topics and checkpoint, and how to run its query."""

    servers: str
    folder: Path
    name: str = field(default_factory=lambda: f"copy-{uuid.uuid4().hex[:8]}")
    level: str = "two-phase"
    driver: SharedDriver | None = None
    in_arrow: bool = False
    python: str = sys.executable
    """For PYSPARK_PYTHON of a driver of its own, whose processes nobody kills."""

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(one, PARTITIONS) for one in (self.source, self.target)]).values():
            made.result()  # with as many replicas as is usual there

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(first, first + count):
            producer.produce(self.source, key=str(number % 101), value=f"{self.name} {number}")
        assert producer.flush(120) == 0

    def run(self, script: str = "copy_topic.py", more: dict[str, str] | None = None) -> subprocess.Popen[str]:
        return self._start(script, more or {}, environment() | {"PYSPARK_PYTHON": self.python})

    def run_until_killed(self, kill: dict[str, object], script: str) -> None:
        """With all its processes; the order is as killer/sitecustomize.py takes it, without its folder."""
        orders = {**kill, "folder": str(self.folder)}
        with forked_python(with_killer(orders)) as python:
            (self.folder / "server.pid").write_text(str(python.server or ""))
            surroundings = with_killer(orders) | {"PYSPARK_PYTHON": python.path}
            process = self._start(script, {"folder": str(self.folder)}, surroundings)
            assert process.wait(600) == -signal.SIGKILL, self.output.read_text()[-6000:]

    def _start(self, script: str, more: dict[str, str], surroundings: dict[str, str]) -> subprocess.Popen[str]:
        # Output goes to a file: a surviving zombie would keep a pipe open.
        self.output = self.folder / f"output-{time.monotonic_ns()}"
        with self.output.open("w") as output:
            command = [sys.executable, str(HERE / script), json.dumps(self.arguments(**more))]
            return subprocess.Popen(command, env=surroundings, stdout=output, stderr=output, text=True)

    def run_to_the_end(self, **more: str) -> str:
        """In the shared driver. What the run told."""
        assert self.driver is not None
        return self.driver.copy(self.arguments(**more))

    def run_alone_to_the_end(self, script: str = "copy_topic.py", **more: str) -> None:
        """In processes of its own, which have to end well."""
        assert self.run(script, more).wait(600) == 0, self.output.read_text()[-6000:]

    def arguments(self, **more: str) -> dict[str, str]:
        """What copy_topic.py is told."""
        return {
            "servers": self.servers,
            "source": self.source,
            "target": self.target,
            "sink": self.name,
            "checkpoint": str(self.folder / "checkpoint"),
            "level": self.level,
            **({"arrow": "yes"} if self.in_arrow else {}),
            **more,
        }

    def batches(self) -> list[Path]:
        """Those that are complete, as Spark's checkpoint has them."""
        return [one for one in (self.folder / "checkpoint" / "commits").glob("*") if one.name.isdecimal()]

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
            if self.level == "resume-unlisted":
                places = {(self.target, number): OffsetSpec.LATEST for number in range(PARTITIONS)}
                committed = admin.list_offsets(places, isolation=Isolation.READ_COMMITTED)
                assert committed == admin.list_offsets(places)
                return
            mine = [one for one in admin.list_transactions() if f"/{self.name}" in one.transactional_id]
        assert mine
        assert [one for one in mine if one.state not in ("Empty", "CompleteCommit", "CompleteAbort")] == []


def make_copy(request: pytest.FixtureRequest, arm: str, folder: Path, driver: SharedDriver) -> Copy:
    """Our broker gives the strongest level, and with old transactions the weakest; Apache Kafka 4.3.1 the second, or as
    it comes the third."""
    broker, level = ARMS[arm]
    servers = request.getfixturevalue(broker).bootstrap_servers
    python = request.getfixturevalue("pyspark_python")
    made = Copy(servers, folder, level=level, driver=driver, in_arrow="Arrow" in arm, python=python)
    made.create()
    return made
