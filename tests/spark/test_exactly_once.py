"""A stream from topic to topic, killed at chosen steps of the protocol and started again: every record once.

The output is read by another client (librdkafka, read_committed) and compared record by record with the input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs forget it

from fencepost import Admin
from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import ApacheKafka

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
RECORDS = 2500
PARTITIONS = 2  # as many as task slots

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@dataclass
class Copy:
    """One sink with its topics and checkpoint, and how to run its query."""

    servers: str
    folder: Path
    name: str = field(default_factory=lambda: f"copy-{uuid.uuid4().hex[:8]}")
    level: str = "two-phase"

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(one, PARTITIONS, 1) for one in (self.source, self.target)]).values():
            made.result()

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for number in range(first, first + count):
            producer.produce(self.source, key=str(number % 101), value=f"{self.name} {number}")
        assert producer.flush(30) == 0

    def run(
        self, kill: dict[str, object] | None = None, script: str = "copy_topic.py", more: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        arguments = {
            "servers": self.servers,
            "source": self.source,
            "target": self.target,
            "sink": self.name,
            "checkpoint": str(self.folder / "checkpoint"),
            "level": self.level,
            **(more or {}),
        }
        path = [str(SOURCES)]
        environment = dict(os.environ, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
        if kill is not None:
            arguments["folder"] = str(self.folder)
            path.insert(0, str(HERE / "killer"))
            environment["FENCEPOST_TEST_KILL"] = json.dumps({**kill, "folder": str(self.folder)})
        environment["PYTHONPATH"] = os.pathsep.join(path)
        # Output goes to a file: a surviving zombie would keep a pipe open.
        self.output = self.folder / f"output-{time.monotonic_ns()}"
        with self.output.open("w") as output:
            command = [sys.executable, str(HERE / script), json.dumps(arguments)]
            return subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)

    def run_to_the_end(self, script: str = "copy_topic.py", **more: str) -> None:
        assert self.run(None, script, more).wait(400) == 0, self.output.read_text()[-6000:]

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
        until = time.monotonic() + 60
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
            mine = [one for one in admin.list_transactions() if f"/{self.name}" in one.transactional_id]
        assert mine
        assert [one for one in mine if one.state not in ("Empty", "CompleteCommit", "CompleteAbort")] == []


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_without_two_phase() -> Iterator[ApacheKafka]:
    """An Apache Kafka as most are: no two-phase commit."""
    with ApacheKafka({"transaction.two.phase.commit.enable": False, "unstable.api.versions.enable": False}) as kafka:
        yield kafka


@pytest.fixture(params=["fencepost", pytest.param("kafka", marks=pytest.mark.kafka)])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    """Our broker gives the strongest level; Apache Kafka 4.3.1 the second, or as it comes the third."""
    if request.param == "kafka without two-phase commit":
        made = Copy(request.getfixturevalue("kafka_without_two_phase").bootstrap_servers, tmp_path, level="resume")
    elif request.param == "fencepost":
        servers = request.getfixturevalue("own_broker").bootstrap_servers
        made = Copy(servers, tmp_path, level="keep-prepared")
    else:
        made = Copy(request.getfixturevalue("apache_kafka").bootstrap_servers, tmp_path, level="two-phase")
    made.create()
    return made


def test_a_stream_and_its_restart_copy_every_record_once(copy: Copy) -> None:
    copy.produce(0, RECORDS)
    copy.run_to_the_end()
    assert "batches 5" in copy.output.read_text()
    copy.check(RECORDS)
    copy.produce(RECORDS, 700)
    copy.run_to_the_end()
    assert "batches 2" in copy.output.read_text()
    copy.check(RECORDS + 700)


# Which step, when, at its how-many-eth time. A batch has one Claim, three BeginTask, one WriteDecision, and
# EndTransactions in Open (from the second batch on) and in Commit.
KILLS = [
    ("WriteDecision", "after", 2),
    ("WriteDecision", "before", 3),
    ("EndTransactions", "after", 1),
    ("EndTransactions", "before", 3),
    ("BeginTask", "after", 5),
    ("Claim", "after", 2),
    ("ReadDecisions", "after", 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "when", "nth"), KILLS)
def test_killed_at_a_step_and_restarted(copy: Copy, step: str, when: str, nth: int) -> None:
    copy.produce(0, RECORDS)
    process = copy.run({"step": step, "when": when, "nth": nth, "mode": "all"})
    assert process.wait(400) == -9, copy.output.read_text()[-6000:]
    assert (copy.folder / "killed").exists()
    copy.produce(RECORDS, 100)
    # With another number of tasks: the batch that is replayed is cut otherwise than it was before the kill.
    copy.run_to_the_end(master="local[3]", tasks="5")
    copy.check(RECORDS + 100)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_preparing_at_the_strongest_level(copy: Copy, when: str) -> None:
    test_killed_at_a_step_and_restarted(copy, "Prepare", when, 5)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("copy", ["kafka without two-phase commit"], indirect=True)
@pytest.mark.parametrize(
    ("step", "when", "nth"),
    [("ListTransactions", "after", 2), ("WriteDecision", "after", 2), ("EndTransactions", "before", 3)],
)
def test_killed_at_a_step_and_restarted_in_time(copy: Copy, step: str, when: str, nth: int) -> None:
    """Level C: whole, as long as the restart comes before the transactions time out."""
    test_killed_at_a_step_and_restarted(copy, step, when, nth)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "nth"), [("WriteDecision", 2), ("EndTransactions", 3), ("ReadDecisions", 2)])
def test_a_zombie_that_goes_on_after_the_restart_changes_nothing(copy: Copy, step: str, nth: int) -> None:
    copy.produce(0, RECORDS)
    process = copy.run({"step": step, "when": "before", "nth": nth, "mode": "zombie"})
    assert process.wait(400) == -9, copy.output.read_text()[-6000:]
    copy.run_to_the_end()
    (copy.folder / "go").touch()
    until = time.monotonic() + 60
    while not (copy.folder / "zombie.done").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (copy.folder / "zombie.done").exists(), "the zombie did not go on"
    copy.produce(RECORDS, 100)
    copy.run_to_the_end()
    copy.check(RECORDS + 100)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_two_drivers_on_one_checkpoint(copy: Copy) -> None:
    """Spark stops one of them, or the sink does; whichever goes on, every record is there once."""
    copy.produce(0, RECORDS)
    first = copy.run(more={"rows_per_batch": "250"})
    outputs = [copy.output]
    second = copy.run(more={"rows_per_batch": "250"})
    outputs.append(copy.output)
    codes = [process.wait(400) for process in (first, second)]
    told = "".join(output.read_text() for output in outputs)
    assert codes == [0, 0] or "SupersededError" in told or "CONCURRENT" in told.upper(), told[-6000:]
    copy.run_to_the_end()
    copy.check(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_stopped_at_any_time(copy: Copy) -> None:
    copy.produce(0, RECORDS)
    copy.run_to_the_end(rows_per_batch="250", stops="0.2,0.9,0.5,0.05,0.7,1.3,0.35")
    assert "stopped 7 times" in copy.output.read_text()
    copy.check(RECORDS)
