"""Kafka Streams with exactly_once_v2 on our broker: counts are right although its processes are killed (-9)."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import SHORT_LIVED, jars_folder
from tests.support.java_programs import compile_java, java_program
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCES = Path(__file__).with_name("java_streams")
WORDS = ["one", "two", "three", "four", "five"]
RECORDS = 6000
PATIENCE_S = 150.0


def compiled(folder: Path) -> Path:
    """The program, into the folder; the jars that it needs beside Kafka's. Raises Unavailable."""
    streams = jars_folder(SOURCES / "streams.pom.xml", "dependency:copy")
    compile_java([SOURCES / "Counter.java"], folder, f"{streams}/*:{jars_folder()}/*")
    return streams


def outputs(servers: str) -> list[tuple[str, int]]:
    """Every committed update, in order within each partition."""
    found = []
    with fencepost.Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([("counts", 0), ("counts", 1)])
        with RawClient(servers) as client:
            ends = [client.end_offset("counts", partition, committed=True) for partition in (0, 1)]
        while any(consumer.position(("counts", partition)) < end for partition, end in enumerate(ends)):
            found += [((record.key or b"").decode(), int(record.value or b"")) for record in consumer.poll(200)]
    return found


# Sessions end soon, so that what a killed instance had goes to the next.
SETTINGS = {"group.streams.session.timeout.ms": 6000, "group.streams.heartbeat.interval.ms": 500}


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_counts_are_exact(protocol: str, tmp_path: Path) -> None:
    """An instance is killed, then the broker: what was committed is counted once."""
    streams = compiled(tmp_path)
    broker = BrokerProcess(SETTINGS)
    broker.start()
    running: list[subprocess.Popen[bytes]] = []
    try:
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            for topic in ("words", "counts"):
                admin.create_topic(topic, 2)
        produce(servers, 0, RECORDS // 2)

        def start(name: str) -> None:
            frugal = (*SHORT_LIVED, "-Xmx192m", "-Dorg.apache.logging.log4j.level=OFF")
            reported = (servers, "counter", "words", "counts", str(tmp_path / name), protocol)
            command = java_program("Counter", *reported, folder=tmp_path, options=frugal, more_jars=streams)
            running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        start("first")
        wait_for_updates(servers, 1)
        running[0].kill()
        running[0].wait()
        start("second")
        wait_for_total(servers, RECORDS // 2)
        broker.kill()
        broker.restart()
        produce(servers, RECORDS // 2, RECORDS)
        wait_for_total(servers, RECORDS)
        updates = outputs(servers)
        with fencepost.Admin(servers) as admin:
            assert [(group.group_id, group.group_type) for group in admin.list_groups()] == [("counter", protocol)]
    finally:
        for process in running:
            process.kill()
            process.wait()
        broker.stop()
    assert {word: max(count for each, count in updates if each == word) for word in WORDS} == dict.fromkeys(WORDS, 1200)
    # Every update that was committed was committed once.
    assert [pair for pair, times in Counter(updates).items() if times > 1] == []


def produce(servers: str, first: int, end: int) -> None:
    with fencepost.Producer(servers) as producer:
        for number in range(first, end):
            producer.send("words", WORDS[number % 5].encode(), partition=number % 2)
        producer.flush()


def wait_for_updates(servers: str, count: int) -> None:
    wait(lambda: len(outputs(servers)) >= count, servers)


def wait_for_total(servers: str, records: int) -> None:
    def total() -> bool:
        latest = dict(outputs(servers))
        return sum(latest.values()) >= records

    wait(total, servers)


def wait(condition: Callable[[], bool], servers: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, outputs(servers)[-10:]
        time.sleep(0.2)
