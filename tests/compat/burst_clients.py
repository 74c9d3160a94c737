"""An idempotent producer of each client family, with several batches in flight, driven from outside.

Each application sends three records one by one, five at once as batches of their own, and a ninth at the end. It goes
on behind the third when it is let, and a topic `<topic>-go` is there.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import aiokafka
import kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer

import fencepost
from tests.compat.java_clients import JavaClients
from tests.support.waiting import until

__all__ = [
    "AFTER",
    "AT_ONCE",
    "BEFORE",
    "OUTCOMES",
    "PATIENCE_S",
    "PYTHON",
    "Application",
    "InAThread",
    "InGo",
    "InJava",
    "Outcomes",
]

BEFORE, AT_ONCE, AFTER = ("r0", "r1", "r2"), ("r3", "r4", "r5", "r6", "r7"), "r8"
OUTCOMES = (*AT_ONCE, AFTER)
PATIENCE_S = 120.0

Outcomes = dict[str, str]

_librdkafka = logging.getLogger("tests.librdkafka")
_librdkafka.setLevel(logging.DEBUG)  # pytest shows it with a failure


class Application(Protocol):
    """A client that writes to a topic. `ready`: the first three records are acknowledged."""

    def start(self, servers: str, topic: str) -> None: ...
    def wait_until_ready(self) -> None: ...
    def let_go(self) -> None: ...
    def outcomes(self) -> Outcomes: ...


class InAThread:
    """A Python client: `run(servers, topic, ready, may_go)` returns the outcomes of OUTCOMES."""

    def __init__(self, run: Callable[[str, str, threading.Event, threading.Event], list[str]]) -> None:
        self._run = run
        self._ready, self._go = threading.Event(), threading.Event()
        self._outcomes: list[str] = []
        self._error: BaseException | None = None

    def start(self, servers: str, topic: str) -> None:
        def work() -> None:
            try:
                self._outcomes = self._run(servers, topic, self._ready, self._go)
            except BaseException as error:  # noqa: BLE001 (told by the thread that waits)
                self._error = error
            finally:
                self._ready.set()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> None:
        assert self._ready.wait(PATIENCE_S)
        assert self._error is None, self._error

    def let_go(self) -> None:
        self._go.set()

    def outcomes(self) -> Outcomes:
        self._thread.join(PATIENCE_S + 60)
        assert self._error is None, self._error
        assert not self._thread.is_alive()
        return dict(zip(OUTCOMES, self._outcomes, strict=True))


def librdkafka(servers: str, topic: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    fatal: list[KafkaError] = []
    producer = LibrdkafkaProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "debug": "eos,topic,metadata",
        },
        logger=_librdkafka,
    )
    reported: dict[str, str] = {}

    def send(*values: str) -> list[str]:
        for value in values:
            try:
                producer.produce(
                    topic,
                    value,
                    partition=0,
                    on_delivery=lambda error, _, value=value: reported.update(  # type: ignore[misc]
                        {value: "ok" if error is None else error.name()}
                    ),
                )
            except KafkaException as error:
                reported[value] = error.args[0].name()
        until(lambda: _polled(producer, fatal) and reported.keys() >= set(values), within_s=PATIENCE_S)
        return [reported[value] for value in values]

    assert [outcome for value in BEFORE for outcome in send(value)] == ["ok"] * 3
    ready.set()
    may_go.wait(PATIENCE_S)
    return send(*AT_ONCE) + send(AFTER)


def _polled(producer: LibrdkafkaProducer, fatal: list[KafkaError]) -> bool:
    """Take reports; a producer that was ended gives up what it still has, which else waits for its timeout.

    The module raises a fatal error in one call of poll(), and does not give it to error_cb.
    """
    try:
        producer.poll(0)
    except KafkaException as raised:
        fatal += [error for error in raised.args if error.fatal()]
    if fatal:
        producer.purge()
    return True


def of_aiokafka(servers: str, topic: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    async def story() -> list[str]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, max_batch_size=1)
        await producer.start()
        try:
            for value in BEFORE:
                await producer.send_and_wait(topic, value.encode(), partition=0)
            ready.set()
            await asyncio.to_thread(may_go.wait, PATIENCE_S)
            sent = [
                asyncio.ensure_future(producer.send_and_wait(topic, value.encode(), partition=0)) for value in AT_ONCE
            ]
            reported = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), PATIENCE_S)
            last = asyncio.wait_for(producer.send_and_wait(topic, AFTER.encode(), partition=0), PATIENCE_S)
            reported += await asyncio.gather(last, return_exceptions=True)
            return ["ok" if not isinstance(result, BaseException) else type(result).__name__ for result in reported]
        finally:
            await producer.stop()

    return asyncio.run(story())


def kafka_python(servers: str, topic: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, batch_size=0)

    def outcome(send: Callable[[], object]) -> str:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
            return type(error).__name__
        return "ok"

    for value in BEFORE:
        producer.send(topic, value.encode(), partition=0).get(PATIENCE_S)
    ready.set()
    may_go.wait(PATIENCE_S)
    sent = [producer.send(topic, value.encode(), partition=0) for value in AT_ONCE]
    reported = [outcome(lambda future=future: future.get(PATIENCE_S)) for future in sent]  # type: ignore[misc]
    reported.append(outcome(lambda: producer.send(topic, AFTER.encode(), partition=0).get(PATIENCE_S)))
    producer.close()
    return reported


def ours(servers: str, topic: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    def outcome(send: Callable[[], object]) -> str:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
            return type(error).__name__
        return "ok"

    with fencepost.Producer(servers, batch_size=1) as producer:
        for value in BEFORE:
            producer.send(topic, value.encode(), partition=0).result(PATIENCE_S)
        ready.set()
        may_go.wait(PATIENCE_S)
        sent = [producer.send(topic, value.encode(), partition=0) for value in AT_ONCE]
        reported = [outcome(lambda future=future: future.result(PATIENCE_S)) for future in sent]  # type: ignore[misc]
        return [*reported, outcome(lambda: producer.send(topic, AFTER.encode(), partition=0).result(PATIENCE_S))]


PYTHON = {"librdkafka": librdkafka, "aiokafka": of_aiokafka, "kafka-python": kafka_python, "fencepost": ours}


class InJava:
    """kafka-clients of a release."""

    def __init__(self, java: JavaClients, release: str, key: str) -> None:
        self._java, self._release, self._key = java, release, key

    def start(self, servers: str, topic: str) -> None:
        self._java.start(self._key, self._release, servers, topic, "burst")

    def wait_until_ready(self) -> None:
        self._java.wait_for(self._key, "ready")

    def let_go(self) -> None:
        """It looks for the topic."""

    def outcomes(self) -> Outcomes:
        reported = self._java.wait(self._key)
        return {step: reported.get(step, "") for step in OUTCOMES}


class InGo:
    """franz-go."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def start(self, servers: str, topic: str) -> None:
        self._ran = subprocess.Popen([self._binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._ran.stdin is not None
        self._ran.stdin.write(f"k {servers} {topic} burst\n")
        self._ran.stdin.close()

    def _line(self) -> str:
        assert self._ran.stdout is not None
        return self._ran.stdout.readline().rstrip("\n").removeprefix("k ")

    def wait_until_ready(self) -> None:
        assert self._line() == "ready="

    def let_go(self) -> None:
        """It looks for the topic."""

    def outcomes(self) -> Outcomes:
        reported: Outcomes = {}
        while (line := self._line()) not in ("end", ""):
            step, _, outcome = line.partition("=")
            reported[step] = outcome
        assert self._ran.wait(60) == 0
        assert self._ran.stdout is not None
        self._ran.stdout.close()
        return reported
