"""Idempotent producers with several batches in flight, each tried before: their topic was deleted and created again, or
the partition has lost what it knew of them. Every client family, against the strict check of producers.

Each application sends three records one by one, five at once as batches of their own, and a ninth at the end.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer

import fencepost
from fencepost.broker.embedded import Broker
from tests.compat.java_clients import JavaClients
from tests.compat.test_forgotten_producers import RELEASES
from tests.compat.test_franz_go import QUICKLY, go
from tests.support.raw_client import RawClient
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "t"
BEFORE, AT_ONCE, AFTER = ("r0", "r1", "r2"), ("r3", "r4", "r5", "r6", "r7"), "r8"
OUTCOMES = (*AT_ONCE, AFTER)
PATIENCE_S = 120.0

Told = dict[str, str]


class Application(Protocol):
    """A client. `ready`: the first three records are acknowledged. It goes on when it is let, and `t-go` is there."""

    def start(self, servers: str) -> None: ...
    def wait_until_ready(self) -> None: ...
    def let_go(self) -> None: ...
    def outcomes(self) -> Told: ...


class InAThread:
    """A Python client: `run(servers, ready, may_go)` returns the outcomes of OUTCOMES."""

    def __init__(self, run: Callable[[str, threading.Event, threading.Event], list[str]]) -> None:
        self._run = run
        self._ready, self._go = threading.Event(), threading.Event()
        self._told: list[str] = []
        self._error: BaseException | None = None

    def start(self, servers: str) -> None:
        def work() -> None:
            try:
                self._told = self._run(servers, self._ready, self._go)
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

    def outcomes(self) -> Told:
        self._thread.join(PATIENCE_S + 60)
        assert self._error is None, self._error
        assert not self._thread.is_alive()
        return dict(zip(OUTCOMES, self._told, strict=True))


def librdkafka(servers: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    producer = LibrdkafkaProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    told: dict[str, str] = {}

    def send(*values: str) -> list[str]:
        for value in values:
            try:
                producer.produce(
                    TOPIC,
                    value,
                    partition=0,
                    on_delivery=lambda error, _, value=value: told.update(  # type: ignore[misc]
                        {value: "ok" if error is None else error.name()}
                    ),
                )
            except KafkaException as error:
                told[value] = error.args[0].name()
        until(lambda: _polled(producer) and told.keys() >= set(values), within_s=PATIENCE_S)
        return [told[value] for value in values]

    assert [outcome for value in BEFORE for outcome in send(value)] == ["ok"] * 3
    ready.set()
    may_go.wait(PATIENCE_S)
    return send(*AT_ONCE) + send(AFTER)


def _polled(producer: LibrdkafkaProducer) -> bool:
    with suppress(KafkaException):
        producer.poll(0)
    return True


def of_aiokafka(servers: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    async def story() -> list[str]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, max_batch_size=1)
        await producer.start()
        try:
            for value in BEFORE:
                await producer.send_and_wait(TOPIC, value.encode(), partition=0)
            ready.set()
            await asyncio.to_thread(may_go.wait, PATIENCE_S)
            sent = [
                asyncio.ensure_future(producer.send_and_wait(TOPIC, value.encode(), partition=0)) for value in AT_ONCE
            ]
            told = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), PATIENCE_S)
            last = asyncio.wait_for(producer.send_and_wait(TOPIC, AFTER.encode(), partition=0), PATIENCE_S)
            told += await asyncio.gather(last, return_exceptions=True)
            return ["ok" if not isinstance(one, BaseException) else type(one).__name__ for one in told]
        finally:
            await producer.stop()

    return asyncio.run(story())


def kafka_python(servers: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, batch_size=0)

    def outcome(send: Callable[[], object]) -> str:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
            return type(error).__name__
        return "ok"

    for value in BEFORE:
        producer.send(TOPIC, value.encode(), partition=0).get(PATIENCE_S)
    ready.set()
    may_go.wait(PATIENCE_S)
    sent = [producer.send(TOPIC, value.encode(), partition=0) for value in AT_ONCE]
    told = [outcome(lambda one=one: one.get(PATIENCE_S)) for one in sent]  # type: ignore[misc]
    told.append(outcome(lambda: producer.send(TOPIC, AFTER.encode(), partition=0).get(PATIENCE_S)))
    producer.close()
    return told


def ours(servers: str, ready: threading.Event, may_go: threading.Event) -> list[str]:
    def outcome(send: Callable[[], object]) -> str:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
            return type(error).__name__
        return "ok"

    with fencepost.Producer(servers, batch_size=1) as producer:
        for value in BEFORE:
            producer.send(TOPIC, value.encode(), partition=0).result(PATIENCE_S)
        ready.set()
        may_go.wait(PATIENCE_S)
        sent = [producer.send(TOPIC, value.encode(), partition=0) for value in AT_ONCE]
        told = [outcome(lambda one=one: one.result(PATIENCE_S)) for one in sent]  # type: ignore[misc]
        return [*told, outcome(lambda: producer.send(TOPIC, AFTER.encode(), partition=0).result(PATIENCE_S))]


PYTHON = {"librdkafka": librdkafka, "aiokafka": of_aiokafka, "kafka-python": kafka_python, "fencepost": ours}


class InJava:
    """kafka-clients of a release."""

    def __init__(self, java: JavaClients, release: str, key: str) -> None:
        self._java, self._release, self._key = java, release, key

    def start(self, servers: str) -> None:
        self._java.start(self._key, self._release, servers, TOPIC, "burst")

    def wait_until_ready(self) -> None:
        self._java.wait_for(self._key, "ready")

    def let_go(self) -> None:
        """It looks for the topic."""

    def outcomes(self) -> Told:
        told = self._java.wait(self._key)
        return {step: told.get(step, "") for step in OUTCOMES}


class InGo:
    """franz-go."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def start(self, servers: str) -> None:
        self._ran = subprocess.Popen([self._binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._ran.stdin is not None
        self._ran.stdin.write(f"k {servers} {TOPIC} burst\n")
        self._ran.stdin.close()

    def _line(self) -> str:
        assert self._ran.stdout is not None
        return self._ran.stdout.readline().rstrip("\n").removeprefix("k ")

    def wait_until_ready(self) -> None:
        assert self._line() == "ready="

    def let_go(self) -> None:
        """It looks for the topic."""

    def outcomes(self) -> Told:
        told: Told = {}
        while (line := self._line()) not in ("end", ""):
            step, _, outcome = line.partition("=")
            told[step] = outcome
        assert self._ran.wait(60) == 0
        return told


Strike = Callable[[Broker, fencepost.Admin, Application], None]


def asked(broker: Broker, api: str) -> int:
    return broker.metrics().requests.get(api, 0)


def delete_and_create(broker: Broker, admin: fencepost.Admin, application: Application) -> None:
    """A batch is refused, because the topic is not there, or the client sees that before it sends one."""
    admin.delete_topic(TOPIC)
    before = {api: asked(broker, api) for api in ("produce", "metadata")}
    admin.create_topic(f"{TOPIC}-go", 1)
    application.let_go()
    until(
        lambda: asked(broker, "produce") > before["produce"] or asked(broker, "metadata") > before["metadata"] + 10,
        within_s=PATIENCE_S,
    )
    admin.create_topic(TOPIC, 1)


def forget(broker: Broker, admin: fencepost.Admin, application: Application) -> None:
    """The batches in flight are lost with their connection, and with it what the partition knew of the producer."""
    lost = broker.faults.drop_request("Produce", times=None)
    admin.create_topic(f"{TOPIC}-go", 1)
    application.let_go()
    until(lambda: lost.hits > 0, within_s=PATIENCE_S)
    for path in Path(broker.data_dir, f"{TOPIC}-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    broker.restart(clean=False)
    lost.remove()


def run(application: Application, strike: Strike, folder: Path) -> tuple[Told, list[str]]:
    """What the application saw, and what was written since."""
    with Broker({"auto.create.topics.enable": False}, data_dir=str(folder), port=0) as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, 1)
            application.start(broker.bootstrap_servers)
            application.wait_until_ready()
            strike(broker, admin, application)
        told = application.outcomes()
        with RawClient(broker.bootstrap_servers) as client:
            start = client._offsets(TOPIC, 0, -2, False).offset
            return told, [(value or b"").decode() for value in client.fetch(TOPIC, start).values]


Seen = dict[tuple[str, str], tuple[Told, list[str]]]
STRIKES: dict[str, Strike] = {"deleted": delete_and_create, "forgotten": forget}
CLIENTS = (*RELEASES, *PYTHON)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    found: Seen = {}
    with JavaClients(tmp_path_factory.mktemp("classes")) as java:
        for name, strike in STRIKES.items():
            for client in CLIENTS:
                key = f"{name}/{client}"
                application = InAThread(PYTHON[client]) if client in PYTHON else InJava(java, client, key)
                found[name, client] = run(application, strike, tmp_path_factory.mktemp("broker"))
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_was_deleted_and_created_again(seen: Seen, client: str) -> None:
    """Nobody sees anything: each record is acknowledged, and in the new topic, in its order."""
    assert seen["deleted", client] == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))


HEALED = ("2.0.1", "2.5.1", "2.8.2", "3.9.1", "4.3.1", "aiokafka")


@pytest.mark.parametrize("client", HEALED)
def test_lost_state_that_the_client_heals(seen: Seen, client: str) -> None:
    assert seen["forgotten", client] == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))


# The batches that are refused fail, and the rest is sent.
FAIL = {"2.4.1": "UnknownProducerIdException", "kafka-python": "UnknownProducerIdError"}


@pytest.mark.parametrize("client", FAIL)
def test_lost_state_that_costs_batches(seen: Seen, client: str) -> None:
    told, written = seen["forgotten", client]
    assert told["r3"] == FAIL[client]
    assert set(told.values()) == {"ok", FAIL[client]}
    assert written == [value for value in OUTCOMES if told[value] == "ok"]
    assert told[AFTER] == "ok"


# A batch that was tried before cannot be sent again in a new epoch: nobody knows whether it is there. Others of the
# producer are given up with it.
ENDED = {
    "librdkafka": ("UNKNOWN_PRODUCER_ID", {"UNKNOWN_PRODUCER_ID", "_PURGE_QUEUE"}, "_FATAL"),
    "fencepost": ("ProduceFailedError", {"ProduceFailedError"}, "DataLossError"),
}


@pytest.mark.parametrize("client", ENDED)
def test_lost_state_that_ends_the_producer(seen: Seen, client: str) -> None:
    first, at_once, after = ENDED[client]
    told, written = seen["forgotten", client]
    assert told[AT_ONCE[0]] == first
    assert {told[value] for value in AT_ONCE} <= at_once
    assert (told[AFTER], written) == (after, [])


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("go") / "story"
    go("build", *QUICKLY, "-o", str(binary), ".")
    return binary


@pytest.mark.go
@pytest.mark.parametrize("strike", STRIKES)
def test_franz_go_heals_both(franz_go: Path, tmp_path: Path, strike: str) -> None:
    assert run(InGo(franz_go), STRIKES[strike], tmp_path) == (dict.fromkeys(OUTCOMES, "ok"), list(OUTCOMES))
