"""Readers of every client family: one partition from its beginning, with fetch settings by Kafka's names.

A reader tells the values in the order in which they came, and when. Its time begins when it is told to read, not when
its process or its JVM starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import aiokafka
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException, TopicPartition

import fencepost
from tests.compat.java_clients import JavaClients

__all__ = ["LAST", "PYTHON_READERS", "InAThread", "InGo", "InJava", "Read", "Reader", "Reading"]

PATIENCE_S = 60.0
MIN_BYTES, MAX_WAIT_MS = "fetch.min.bytes", "fetch.max.wait.ms"
MAX_BYTES, MAX_PARTITION_BYTES = "fetch.max.bytes", "max.partition.fetch.bytes"


@dataclass
class Read:
    """Values in their order, when each came (ms since 1970), seconds in all; `refused`: why the client would not read.

    A reader that did not see all its records in PATIENCE_S has fewer values.
    """

    values: list[str]
    came_ms: list[float]
    seconds: float
    refused: str = ""


class Reading(Protocol):
    """A reader at work."""

    def wait_until_it_reads(self) -> None: ...
    def result(self) -> Read: ...


LAST = "last"
"""A value behind which no reader waits for more, however many it was to read."""

Reader = Callable[[str, str, int, Mapping[str, str]], Reading]
"""(bootstrap servers, topic, how many records, settings by Kafka's names)."""

Took = Callable[[bytes | None], bool]
"""Takes a record's value; whether there are enough."""


class InAThread:
    """A Python client: `read(servers, topic, settings, ready, took)` polls until `took` says that it has enough."""

    def __init__(
        self,
        read: Callable[[str, str, Mapping[str, str], Callable[[], None], Took, float], None],
        servers: str,
        topic: str,
        count: int,
        settings: Mapping[str, str],
    ) -> None:
        self._ready = threading.Event()
        self._values: list[str] = []
        self._came_ms: list[float] = []
        self._refused = ""
        self._seconds = 0.0

        def took(value: bytes | None) -> bool:
            self._values.append((value or b"").decode())
            self._came_ms.append(time.time() * 1000)
            return len(self._values) >= count or self._values[-1] == LAST

        def work() -> None:
            began = time.perf_counter()
            try:
                read(servers, topic, settings, self._ready.set, took, time.monotonic() + PATIENCE_S)
            except Exception as error:  # noqa: BLE001 - what the application sees is what is compared
                self._refused = type(error).__name__
            finally:
                self._seconds = time.perf_counter() - began
                self._ready.set()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def wait_until_it_reads(self) -> None:
        if not self._ready.wait(PATIENCE_S):
            raise TimeoutError("the reader has not begun")

    def result(self) -> Read:
        self._thread.join(PATIENCE_S + 30)
        if self._thread.is_alive():
            raise TimeoutError(f"the reader does not end, with {len(self._values)} records")
        return Read(self._values, self._came_ms, self._seconds, self._refused)


def _librdkafka(
    servers: str, topic: str, settings: Mapping[str, str], ready: Callable[[], None], took: Took, until_s: float
) -> None:
    own = {"fetch.max.wait.ms": "fetch.wait.max.ms"}
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **{own.get(name, name): value for name, value in settings.items()},
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        ready()
        while time.monotonic() < until_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if not error.retriable():
                    raise KafkaException(error)
                continue
            if took(message.value()):
                return


def _aiokafka(
    servers: str, topic: str, settings: Mapping[str, str], ready: Callable[[], None], took: Took, until_s: float
) -> None:
    async def story() -> None:
        numbers = {name.replace(".", "_"): int(value) for name, value in settings.items() if value.isdigit()}
        words = {name.replace(".", "_"): value for name, value in settings.items() if not value.isdigit()}
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False, **numbers, **words
        )
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            ready()
            while time.monotonic() < until_s:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    if any(took(record.value) for record in records):
                        return
        finally:
            await consumer.stop()

    asyncio.run(story())


def _ours(
    servers: str, topic: str, settings: Mapping[str, str], ready: Callable[[], None], took: Took, until_s: float
) -> None:
    with fencepost.Consumer.from_config(
        {"bootstrap.servers": servers, "auto.offset.reset": "earliest", **settings}
    ) as consumer:
        consumer.assign([(topic, 0)])
        ready()
        while time.monotonic() < until_s:
            if any(took(record.value) for record in consumer.poll(500)):
                return


def _of(read: Callable[[str, str, Mapping[str, str], Callable[[], None], Took, float], None]) -> Reader:
    def start(servers: str, topic: str, count: int, settings: Mapping[str, str]) -> Reading:
        return InAThread(read, servers, topic, count, settings)

    return start


PYTHON_READERS: Mapping[str, Reader] = {
    "librdkafka": _of(_librdkafka),
    "aiokafka": _of(_aiokafka),
    "fencepost": _of(_ours),
}

_numbers = itertools.count()


def _words(count: int, settings: Mapping[str, str]) -> str:
    return ";".join([str(count), *(f"{name}={value}" for name, value in settings.items())])


def _read_of(reported: Mapping[str, str]) -> Read:
    pairs = [pair.rpartition(":") for pair in reported.get("read", "").split(",") if pair]
    return Read(
        [value for value, _, _ in pairs],
        [float(came) for _, _, came in pairs],
        int(reported.get("us", 0)) / 1e6,
        reported.get("broken", ""),
    )


class InJava:
    """kafka-clients of a release. Called as a `Reader`."""

    def __init__(self, java: JavaClients, release: str) -> None:
        self._java, self._release = java, release

    def __call__(self, servers: str, topic: str, count: int, settings: Mapping[str, str]) -> Reading:
        key = f"read{next(_numbers)}"
        self._java.start(key, self._release, servers, topic, "read", _words(count, settings))
        return _JavaReading(self._java, key)


@dataclass
class _JavaReading:
    java: JavaClients
    key: str

    def wait_until_it_reads(self) -> None:
        self.java.wait_for(self.key, "ready")

    def result(self) -> Read:
        return _read_of(self.java.wait(self.key))


class InGo:
    """franz-go. Called as a `Reader`."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def __call__(self, servers: str, topic: str, count: int, settings: Mapping[str, str]) -> Reading:
        return _GoReading(self._binary, f"k {servers} {topic} read:{_words(count, settings)}\n")


class _GoReading:
    def __init__(self, binary: Path, line: str) -> None:
        self._ran = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._steps: queue.Queue[str] = queue.Queue()
        self._seen: dict[str, str] = {}
        if self._ran.stdin is None or self._ran.stdout is None:
            raise RuntimeError("franz-go was started without pipes")
        self._ran.stdin.write(line)
        self._ran.stdin.close()
        lines = self._ran.stdout
        threading.Thread(target=self._collect, args=(lines,), daemon=True).start()

    def _collect(self, lines: IO[str]) -> None:
        for line in lines:
            self._steps.put(line.rstrip("\n"))

    def _until(self, word: str) -> None:
        while word not in self._seen:
            step, _, outcome = self._steps.get(timeout=PATIENCE_S + 30).removeprefix("k ").partition("=")
            self._seen[step] = outcome
            if step == "end":
                return

    def wait_until_it_reads(self) -> None:
        self._until("ready")

    def result(self) -> Read:
        self._until("end")
        self._ran.wait(PATIENCE_S)
        return _read_of(self._seen)
