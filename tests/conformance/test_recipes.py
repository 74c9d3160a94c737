"""Every program in examples/ does what it says, on our broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencepost
from examples import (
    arrow_in_and_out,
    asyncio_service,
    consume_transform_produce,
    dual_write,
    recovery_loop,
    two_phase_template,
)
from fencepost import TopicPartition
from fencepost.errors import ProducerFencedError, TransactionAbortableError
from tests.support import dying_writer
from tests.support.brokers import BrokerUnderTest
from tests.support.example_program import ExampleProgram
from tests.support.forked import forked

ROOT = Path(__file__).parents[2]
STEPS = (
    "initialized",
    "sent",
    "prepared",
    "before the decision",
    "decided",
    "completed",
    "settled",
)
PAYMENTS = 3


def values_of(broker: BrokerUnderTest, topic: str) -> list[bytes]:
    """All committed values, in order per partition; fails when something is still open at the end."""
    with fencepost.Admin(broker.bootstrap_servers) as admin, fencepost.Consumer(broker.bootstrap_servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        ends = admin.list_offsets(dict.fromkeys(partitions, -1), isolation=fencepost.Isolation.READ_UNCOMMITTED)
        found = []
        for partition, end in ends.items():
            for fetched in consumer.fetch_range(topic, partition.partition, 0, end.offset, timeout_ms=60_000):
                found += fetched.columns.values()
    return [value for value in found if value is not None]


def fill(broker: BrokerUnderTest, topic: str, values: list[bytes]) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"%d" % number)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


# --- dual write ---


def payments_in(address: str) -> list[tuple[int, int]]:
    with contextlib.closing(dual_write.Database(address)) as database:
        rows = database.execute("SELECT id, amount FROM payments ORDER BY id").fetchall()
        return [(int(number), int(amount)) for number, amount in rows]


def run_writer(broker: BrokerUnderTest, address: str, topic: str, last_step: str) -> int | None:
    process = forked(dying_writer.write, broker.bootstrap_servers, address, topic, f"id-{topic}", last_step, PAYMENTS)
    process.join(120)
    return process.exitcode


@pytest.mark.parametrize("step", STEPS)
def test_a_dual_write_killed_at_a_step(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str, step: str
) -> None:
    """kill -9, twice at that step, then a run to the end: the table and the topic hold the same, once each."""
    topic = broker.name("payments")
    admin.create_topic(topic, 1)
    for _ in range(2):
        assert run_writer(broker, database_address, topic, step) == -signal.SIGKILL
    assert run_writer(broker, database_address, topic, "none") == 0
    assert payments_in(database_address) == [(number, 100 + number) for number in range(PAYMENTS)]
    assert values_of(broker, topic) == [b'{"id": %d, "amount": %d}' % (n, 100 + n) for n in range(PAYMENTS)]
    assert [listing for listing in admin.list_transactions(f"id-{topic}") if listing.state == "Ongoing"] == []


def test_a_dual_write_killed_while_it_recovers(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str
) -> None:
    topic = broker.name("payments")
    admin.create_topic(topic, 1)
    for step in ("decided", "claimed", "finished", "finished"):
        assert run_writer(broker, database_address, topic, step) == -signal.SIGKILL
    assert run_writer(broker, database_address, topic, "none") == 0
    assert payments_in(database_address) == [(number, 100 + number) for number in range(PAYMENTS)]
    assert len(values_of(broker, topic)) == PAYMENTS


def test_a_dual_writers_zombie_decides_nothing(
    broker: BrokerUnderTest, admin: fencepost.Admin, database_address: str
) -> None:
    """The old process wakes up with a prepared transaction after the new one has started."""
    topic = broker.name("payments")
    admin.create_topic(topic, 1)
    started: list[bool] = []

    def new_process(step: str) -> None:
        if step == "prepared" and not started:
            started.append(True)
            with (
                contextlib.closing(dual_write.Database(database_address)) as fresh,
                dual_write.DualWriter(broker.bootstrap_servers, fresh, topic, f"id-{topic}") as writer,
            ):
                writer.write(7, 700)

    with contextlib.closing(dual_write.Database(database_address)) as database:
        zombie = dual_write.DualWriter(broker.bootstrap_servers, database, topic, f"id-{topic}", new_process)
        with pytest.raises(dual_write.Superseded):
            zombie.write(1, 100)
        with contextlib.suppress(ProducerFencedError):
            zombie.close()
    assert started
    assert payments_in(database_address) == [(7, 700)]
    assert values_of(broker, topic) == [b'{"id": 7, "amount": 700}']


def test_dual_write_as_a_program(broker: BrokerUnderTest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = broker.name("payments")
    path = tmp_path / "p.sqlite"
    options = ["--bootstrap-servers", broker.bootstrap_servers, "--database", str(path), "--topic", topic]
    dual_write.main([*options, "--count", "2"])
    dual_write.main([*options, "--count", "3"])
    assert capsys.readouterr().out.count("is in the table and in the topic") == 3
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM payments").fetchone() == (3,)


# --- the others ---


def test_consume_transform_produce(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Two threads work, a third joins and the first leaves in between: every record once."""
    source, target, group = broker.name("source"), broker.name("target"), broker.name("group")
    admin.create_topic(source, 4)
    admin.create_topic(target, 2)
    values = [b"record %d" % number for number in range(400)]
    stops = [threading.Event() for _ in range(3)]
    counts: list[int] = []

    def work(stopping: threading.Event) -> None:
        counts.append(consume_transform_produce.copy(broker.bootstrap_servers, source, target, group, stopping))

    threads = [threading.Thread(target=work, args=(stop,)) for stop in stops]
    fill(broker, source, values[:200])
    threads[0].start()
    threads[1].start()
    wait_for(lambda: len(values_of(broker, target)) >= 50, "50 records were copied")
    threads[2].start()
    fill(broker, source, values[200:])
    stops[0].set()
    wait_for(lambda: len(values_of(broker, target)) >= 400, "all records were copied")
    for stop in stops:
        stop.set()
    for thread in threads:
        thread.join(120)
    assert sum(counts) == 400
    assert sorted(values_of(broker, target)) == sorted(value.upper() for value in values)


def test_consume_transform_produce_as_a_program(
    broker: BrokerUnderTest, admin: fencepost.Admin, tmp_path: Path
) -> None:
    """It ends on SIGTERM, cleanly."""
    source, target = broker.name("source"), broker.name("target")
    admin.create_topic(source, 2)
    admin.create_topic(target, 1)
    fill(broker, source, [b"a", b"b"])
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--source", source, "--target", target)
    program = ExampleProgram("consume_transform_produce.py", *options, "--group", broker.name("group"), folder=tmp_path)
    output = program.run_until(lambda: len(values_of(broker, target)) == 2)
    assert sum(int(number) for number in re.findall(r"^worker-\d copied (\d+) records$", output, re.MULTILINE)) == 2


def test_the_two_phase_template(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A failing transmission is aborted, the records are read again, and everything is there once."""
    source, target, group = broker.name("source"), broker.name("target"), broker.name("group")
    admin.create_topic(source, 1)
    admin.create_topic(target, 1)
    fill(broker, source, [b"1", b"2", b"3"])

    class FailsOnce(fencepost.Producer):
        failed = False

        def send_offsets_to_transaction(self, *args: Any, **kwargs: Any) -> None:
            if not self.failed:
                self.failed = True
                raise RuntimeError("planted")
            super().send_offsets_to_transaction(*args, **kwargs)

    outcomes = []
    with (
        fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer,
        FailsOnce(broker.bootstrap_servers, transactional_id=broker.name("id")) as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        copied = 0
        deadline = time.monotonic() + 120
        while copied < 3 and time.monotonic() < deadline:
            records = consumer.poll(500)
            if records:
                outcomes.append(two_phase_template.transfer(consumer, producer, records, target))
                copied += len(records) if outcomes[-1] else 0
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert values_of(broker, target) == [b"1", b"2", b"3"]


def test_the_recovery_loop(broker: BrokerUnderTest, admin: fencepost.Admin, capsys: pytest.CaptureFixture[str]) -> None:
    topic = broker.name("ticks")
    admin.create_topic(topic, 1)
    recovery_loop.main(["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--count", "5"])
    printed = capsys.readouterr().out
    assert "beginning again" in printed
    assert printed.strip().endswith("transactions were repeated")
    assert values_of(broker, topic) == [b"%d" % number for number in range(5)]


def test_the_recovery_loop_stops_when_fenced(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, transactional_id = broker.name("ticks"), broker.name("id")
    admin.create_topic(topic, 1)

    def work(value: bytes) -> None:
        if value == b"2":
            with fencepost.Producer(broker.bootstrap_servers, transactional_id=transactional_id) as other:
                other.init_transactions()

    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=transactional_id)
    with pytest.raises((ProducerFencedError, TransactionAbortableError)) as raised:
        recovery_loop.write_all(producer, topic, [b"1", b"2", b"3"], work)
    assert isinstance(raised.value, ProducerFencedError)
    producer.close(0)
    assert values_of(broker, topic) == [b"1"]


def test_arrow_in_and_out(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    source, target = broker.name("words"), broker.name("lengths")
    admin.create_topic(source, 2)
    admin.create_topic(target, 2)
    fill(broker, source, [b"x" * number for number in range(300)])
    rows = arrow_in_and_out.copy(broker.bootstrap_servers, source, target, broker.name("group"), idle_s=4)
    assert rows == 300
    assert sorted(map(int, values_of(broker, target))) == list(range(300))


def test_the_asyncio_service(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    requests, replies, group = broker.name("questions"), broker.name("answers"), broker.name("group")
    admin.create_topic(requests, 2)
    admin.create_topic(replies, 1)
    fill(broker, requests, [b"abc", b"def", b"ghi"])

    async def scenario() -> int:
        stopping = asyncio.Event()
        service = asyncio.create_task(
            asyncio_service.serve(broker.bootstrap_servers, requests, replies, group, stopping)
        )
        await asyncio.to_thread(wait_for, lambda: len(values_of(broker, replies)) >= 3, "three answers")
        stopping.set()
        return await service

    assert asyncio.run(scenario()) == 3
    assert sorted(values_of(broker, replies)) == [b"cba", b"fed", b"ihg"]


def test_every_example_shows_its_options() -> None:
    programs = sorted((ROOT / "examples").glob("*.py"))
    assert len(programs) >= 6
    for program in programs:
        done = subprocess.run(
            [sys.executable, str(program), "--help"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            env={**os.environ, "COLUMNS": "100"},
        )
        assert "--bootstrap-servers" in done.stdout, program.name
