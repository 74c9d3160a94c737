"""Other people's consumers read through fetch sessions (or without) all there is, in both isolation levels, while more
is being written."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fencepost
from tests.support.kafka_tools import run_kafka_tool

pytestmark = pytest.mark.slow

PARTITIONS = 6
ROUNDS = 60


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("t", PARTITIONS)
        yield running


class Writer(threading.Thread):
    """Transactions, every third of them aborted, one batch to each partition in each."""

    def __init__(self, broker: fencepost.Broker) -> None:
        super().__init__()
        self._servers = broker.bootstrap_servers
        self.committed: list[str] = []
        self.all: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error
            raise

    def _write(self) -> None:
        with fencepost.Producer(self._servers, transactional_id="writer") as producer:
            producer.init_transactions()
            for number in range(ROUNDS):
                producer.begin_transaction()
                values = [f"{number}-{partition}" for partition in range(PARTITIONS)]
                for partition, value in enumerate(values):
                    producer.send("t", value.encode(), partition=partition)
                producer.flush()
                self.all += values
                if number % 3 == 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self.committed += values


def counted(broker: fencepost.Broker) -> dict[str, int]:
    """Return the broker's counters by name."""

    async def read(server: object) -> dict[str, int]:
        return dict(server.core.metrics.values)  # type: ignore[attr-defined]

    return broker._run_inside(read)


def check(broker: fencepost.Broker, read: Callable[[str, int], list[str]], *, sessions: bool) -> None:
    """`read(isolation level, number of records)` while it is written, then once more."""
    writer = Writer(broker)
    writer.start()
    found = read("read_uncommitted", ROUNDS * PARTITIONS)
    writer.join()
    assert writer.error is None
    assert sorted(found) == sorted(writer.all)
    assert sorted(read("read_committed", len(writer.committed))) == sorted(writer.committed)
    metrics = counted(broker)
    assert (metrics["fetch_sessions"] > 0, metrics["incremental_fetches"] > 0) == (sessions, sessions), metrics


def test_our_own_consumer(broker: fencepost.Broker) -> None:
    def read(level: str, number: int) -> list[str]:
        with fencepost.Consumer(
            broker.bootstrap_servers, isolation_level=level, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([("t", partition) for partition in range(PARTITIONS)])
            found: list[str] = []
            while len(found) < number:
                records = consumer.poll(60_000)
                assert records, f"{len(found)} of {number} after a minute of silence"
                found += [(record.value or b"").decode() for record in records]
            return found

    check(broker, read, sessions=True)


@pytest.mark.kafka
def test_java(broker: fencepost.Broker) -> None:
    def read(level: str, number: int) -> list[str]:
        arguments = ("--topic", "t", "--from-beginning", "--isolation-level", level, "--max-messages")
        ran = run_kafka_tool(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap_servers, "--timeout-ms", "60000"),
            *(*arguments, str(number)),
        )
        return [line for line in ran.output.splitlines() if "-" in line and line[0].isdigit()]

    check(broker, read, sessions=True)


@pytest.mark.go
def test_franz_go(broker: fencepost.Broker, tmp_path: Path) -> None:
    binary = str(tmp_path / "read")
    source = Path(__file__).with_name("franz_go")
    subprocess.run(["go", "build", "-o", binary, "./read"], cwd=source, check=True)

    def read(level: str, number: int) -> list[str]:
        arguments = [binary, broker.bootstrap_servers, "t", level, str(number)]
        return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=300).stdout.split()

    check(broker, read, sessions=True)


def test_librdkafka_which_knows_no_sessions(broker: fencepost.Broker) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")

    def read(level: str, number: int) -> list[str]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": level,
                "auto.offset.reset": "earliest",
                "isolation.level": level,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", index, 0) for index in range(PARTITIONS)])
            found: list[str] = []
            while len(found) < number:
                record = consumer.poll(60)
                assert record is not None, f"{len(found)} of {number} after a minute of silence"
                assert record.error() is None
                found.append(record.value().decode())
            return found
        finally:
            consumer.close()

    check(broker, read, sessions=False)
