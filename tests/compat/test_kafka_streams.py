"""Kafka Streams with exactly_once_v2 on our broker: counts are right although its processes are killed (-9)."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.support.apache_kafka import SHORT_LIVED, Unavailable, jars_folder, java_command
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCES = Path(__file__).with_name("java_streams")
WORDS = ["one", "two", "three", "four", "five"]
RECORDS = 6000
PATIENCE_S = 150.0


def classpath(folder: Path) -> str:
    """The compiled program and everything it needs. Raises Unavailable."""
    streams = jars_folder(SOURCES / "streams.pom.xml", "dependency:copy")
    jars = f"{streams}/*:{jars_folder()}/*"
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("the Kafka Streams program has to be compiled, and there is no `javac` in PATH")
    subprocess.run([compiler, "-nowarn", "-d", str(folder), "-cp", jars, str(SOURCES / "Counter.java")], check=True)
    return f"{folder}:{jars}"


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


def test_counts_are_exact(tmp_path: Path) -> None:
    jars = classpath(tmp_path)
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            for topic in ("words", "counts"):
                admin.create_topic(topic, 2)
        with fencepost.Producer(servers) as producer:
            for number in range(RECORDS):
                producer.send("words", WORDS[number % 5].encode(), partition=number % 2)
            producer.flush()
        running: list[subprocess.Popen[bytes]] = []

        def start(name: str) -> None:
            frugal = (*SHORT_LIVED, "-Xmx192m", "-Dorg.apache.logging.log4j.level=OFF")
            command = [java_command(), *frugal, "-cp", jars, "Counter", servers, "counter", "words", "counts"]
            running.append(
                subprocess.Popen([*command, str(tmp_path / name)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

        try:
            start("first")
            wait_for_updates(servers, 1)
            running[0].kill()
            running[0].wait()
            start("second")
            wait_for_total(servers)
        finally:
            for process in running:
                process.kill()
                process.wait()
        updates = outputs(servers)
    assert {word: max(count for each, count in updates if each == word) for word in WORDS} == dict.fromkeys(WORDS, 1200)
    # Every update that was committed was committed once.
    assert [pair for pair, times in Counter(updates).items() if times > 1] == []


def wait_for_updates(servers: str, count: int) -> None:
    wait(lambda: len(outputs(servers)) >= count, servers)


def wait_for_total(servers: str) -> None:
    def total() -> bool:
        latest = dict(outputs(servers))
        return sum(latest.values()) >= RECORDS

    wait(total, servers)


def wait(condition: Callable[[], bool], servers: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, outputs(servers)[-10:]
        time.sleep(0.2)
