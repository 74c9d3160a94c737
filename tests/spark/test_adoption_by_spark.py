"""A query moves between Spark's own connector and ours by `fencepost spark adopt` and `release`: with real Spark.

Its checkpoint, its state and its output stay. test_adoption.py has the kills at each step.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from tests.spark.answering import AnsweringProgram
from tests.spark.beside import BUILT_IN, OURS
from tests.spark.copying import HERE
from tests.spark.moved_query import forget
from tests.support import built_in_connector
from tests.support.apache_kafka import Unavailable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
PATIENCE_S = 300
START_MS = 1_700_000_100_000  # a multiple of five minutes


class Driver(AnsweringProgram):
    """The program moving.py, in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        command = [str(HERE / "moving.py"), built_in_connector.jars()]
        super().__init__(command, folder / f"log-{uuid.uuid4().hex[:8]}", own_group=True)

    def __call__(self, **asked: Any) -> str | None:
        """The error that ended the query."""
        self.send(asked)
        error: str | None = self.answer()["error"]
        return error


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"log.retention.ms": -1, "transaction.two.phase.commit.enable": True}) as broker:
        yield broker.bootstrap_servers


class Query:
    """From one topic to another."""

    def __init__(self, servers: str, folder: Path, partitions: int = 1, **asked: Any) -> None:
        name = uuid.uuid4().hex[:8]
        self.servers, self.input, self.output = servers, f"in-{name}", f"out-{name}"
        self.folder, self.rows = folder / f"checkpoint-{name}", folder / f"rows-{name}"
        self.partitions, self.asked = partitions, asked
        with Admin(servers) as admin:
            admin.create_topic(self.input, partitions)
            admin.create_topic(self.output, 1)

    def of(self, source: str, sink: str, **more: Any) -> dict[str, Any]:
        """A question to the driver."""
        own = {"servers": self.servers, "input": self.input, "output": self.output, "checkpoint": str(self.folder)}
        return {**own, **self.asked, "source": source, "sink": sink, "path": str(self.rows), **more}

    def add(self, first: int, end: int, topic: str = "") -> None:
        with Producer(self.servers) as producer:
            for number in range(first, end):
                partition = number % (1 if topic else self.partitions)
                producer.send(topic or self.input, f"order {number}".encode(), partition=partition)

    def add_minutes(self, first: int, end: int) -> None:
        """A record for each minute of event time, of one of three values."""
        with Producer(self.servers) as producer:
            for minute in range(first, end):
                moment = START_MS + minute * 60_000
                partition = minute % self.partitions
                producer.send(self.input, b"value %d" % (minute % 3), partition=partition, timestamp_ms=moment)

    def command(self, name: str, *words: str) -> int:
        forget()
        with pytest.raises(SystemExit) as ended:
            main(["spark", name, str(self.folder), "--yes", *words, "-b", self.servers])
        return int(ended.value.code or 0)

    def adopt(self, *words: str) -> int:
        return self.command("adopt", "--topic", self.output, *words)

    def unfinished(self) -> int:
        """As if Spark was killed before it noted the last batch as finished."""
        last = max(int(path.name) for path in (self.folder / "commits").glob("[0-9]*"))
        for name in (str(last), f".{last}.crc"):
            (self.folder / "commits" / name).unlink()
        return last

    def written(self) -> list[str]:
        """The output, as committed readers see it."""
        partition = TopicPartition(self.output, 0)
        found: list[str] = []
        with (
            Admin(self.servers) as admin,
            Consumer(self.servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
        ):
            consumer.assign([partition])
            end = admin.list_offsets({partition: -1})[partition].offset
            while consumer.position(partition) < end:
                found += [record.value.decode() for record in consumer.poll(1000) if record.value is not None]
        return sorted(found)

    @staticmethod
    def expected(end: int) -> list[str]:
        return sorted(f"order {number}" for number in range(end))


def test_queries_move_with_checkpoint_state_and_output(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases share one driver, whose start takes longer than all of them."""
    try:
        with Driver(tmp_path) as driver:
            there_and_back(driver, Query(servers, tmp_path, query="distinct"))
            windows = [Query(servers, tmp_path, 2, query="windows") for _ in range(2)]
            as_if_it_had_never_moved(driver, *windows, capsys=capsys)
            begun_and_whole(driver, Query(servers, tmp_path, query="distinct"), capsys)
            begun_and_nothing(driver, Query(servers, tmp_path), capsys)
            begun_and_partly(driver, Query(servers, tmp_path), capsys)
            killed = Query(servers, tmp_path, 2)
            kill_in_a_batch(driver, killed)
        with Driver(tmp_path) as driver:
            after_the_kill(driver, killed, capsys)
    except Unavailable as reason:
        pytest.skip(str(reason))


def there_and_back(driver: Driver, query: Query) -> None:
    query.add(0, 10)
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    assert query.adopt() == 0
    query.add(5, 20)  # five of them again: the state knows them
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(20)
    query.unfinished()
    assert query.command("release") == 1  # it would write the batch again
    assert driver(**query.of(OURS, OURS)) is None
    assert query.command("release") == 0
    query.add(15, 30)
    assert "given back to another sink" in str(driver(**query.of(OURS, OURS)))
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    assert query.written() == query.expected(30)
    assert query.adopt() == 0
    query.add(25, 40)
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(40)


def as_if_it_had_never_moved(
    driver: Driver, moving: Query, staying: Query, *, capsys: pytest.CaptureFixture[str]
) -> None:
    """A watermark and open windows go along, late records are dropped alike, and no window comes twice."""

    def both(first: int, end: int, where: str) -> None:
        for query, kind in ((moving, where), (staying, BUILT_IN)):
            query.add_minutes(first, end)
            assert driver(**query.of(kind, kind)) is None
        assert moving.written() == staying.written()

    both(0, 33, BUILT_IN)
    assert moving.adopt() == 0
    both(28, 60, OURS)  # the first two are in a window that is open, and late in no round
    moving.unfinished()
    both(5, 8, OURS)  # late
    both(60, 90, OURS)
    assert moving.command("release") == 0
    both(40, 93, BUILT_IN)  # some are late
    last = moving.unfinished()
    assert f"batch {last} of query" in str(driver(**moving.of(BUILT_IN, "describe")))
    capsys.readouterr()
    assert moving.adopt("--rows", str(moving.rows)) == 0
    assert "all of its" in capsys.readouterr().out
    both(93, 120, OURS)
    both(1000, 1001, OURS)  # the watermark passes all windows
    windows = {row.rpartition(" ")[0] for row in moving.written()}
    assert len(windows) == len(moving.written()) == 24 * 3


def begun_and_whole(driver: Driver, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    query.add(0, 10)
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    query.add(5, 20)
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    last = query.unfinished()
    assert query.adopt() == 3
    described = str(driver(**query.of(BUILT_IN, "describe")))
    assert f"batch {last} of query" in described and "10 rows" in described
    capsys.readouterr()
    assert query.adopt("--rows", str(query.rows)) == 0
    assert "all of its 10 rows are in the output" in capsys.readouterr().out
    query.add(15, 30)
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(30)


def begun_and_nothing(driver: Driver, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    query.add(0, 10)
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    query.add(10, 20)
    assert "as it was asked to" in str(driver(**query.of(BUILT_IN, BUILT_IN, breaks=0)))
    assert "10 rows" in str(driver(**query.of(BUILT_IN, "describe")))
    capsys.readouterr()
    assert query.adopt("--rows", str(query.rows)) == 0
    assert "none of its 10 rows is in the output" in capsys.readouterr().out
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(20)


def begun_and_partly(driver: Driver, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    query.add(0, 10)
    assert "as it was asked to" in str(driver(**query.of(BUILT_IN, BUILT_IN, breaks=3)))
    assert query.written() == query.expected(3)
    assert "10 rows" in str(driver(**query.of(BUILT_IN, "describe")))
    assert query.adopt("--rows", str(query.rows)) == 3
    assert "3 of its 10 rows are in the output, and 7 are not" in capsys.readouterr().err
    with Producer(query.servers) as producer:  # as a person does, who writes what is missing
        for value in sorted(set(query.expected(10)) - set(query.written())):
            producer.send(query.output, value.encode())
    assert query.adopt("--rows", str(query.rows)) == 0
    query.add(10, 20)
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(20)


def kill_in_a_batch(driver: Driver, query: Query) -> None:
    query.add(0, 10)
    assert driver(**query.of(BUILT_IN, BUILT_IN)) is None
    query.add(10, 20)
    driver.send(query.of(BUILT_IN, BUILT_IN, hangs=True))
    deadline_s = time.monotonic() + PATIENCE_S
    while len(query.written()) < 15:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    driver.kill()


def after_the_kill(driver: Driver, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    assert "10 rows" in str(driver(**query.of(BUILT_IN, "describe")))
    rows = ("--rows", str(query.rows))
    assert query.adopt(*rows) == 3
    assert "5 of its 10 rows are in the output, and 5 are not" in capsys.readouterr().err
    assert query.adopt(*rows, "--begun", "missing") == 0
    assert query.written() == query.expected(20)
    query.add(20, 30)
    assert driver(**query.of(OURS, OURS)) is None
    assert query.written() == query.expected(30)
