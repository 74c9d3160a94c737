"""Python's Kafka clients after a transaction timeout: librdkafka (L), aiokafka (A), kafka-python, and our own (D)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import aiokafka
import kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer

import fencepost
from fencepost.broker.embedded import Broker
from tests.support.raw_client import RawClient

TIMEOUT_MS = 1000
SCENARIOS = ("commit", "produce", "partition", "abort")


class Client(Protocol):
    """One producer; whatever fails raises."""

    def begin(self) -> None: ...
    def send(self, partition: int, value: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, servers: str, topic: str) -> None:
        config = {"transactional.id": topic, "transaction.timeout.ms": TIMEOUT_MS, "log_level": 0}
        self._topic = topic
        self._producer = LibrdkafkaProducer({"bootstrap.servers": servers, **config})
        self._producer.init_transactions(60)
        self.begin = self._producer.begin_transaction

    def send(self, partition: int, value: str) -> None:
        failed: list[Any] = []
        self._producer.produce(
            self._topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error)
        )
        assert self._producer.flush(120) == 0
        if failed[0] is not None:
            raise KafkaException(failed[0])

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)

    def close(self) -> None:
        self._producer.purge()


class Aiokafka:
    def __init__(self, servers: str, topic: str) -> None:
        self._runner = asyncio.Runner()
        self._topic = topic

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=TIMEOUT_MS
            )
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def _run(self, call: Any) -> None:
        self._runner.run(asyncio.wait_for(call, 60))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, partition: int, value: str) -> None:
        self._run(self._producer.send_and_wait(self._topic, value.encode(), partition=partition))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._runner.close()


class KafkaPython:
    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer: Any = kafka.KafkaProducer(
            bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=TIMEOUT_MS
        )
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def send(self, partition: int, value: str) -> None:
        self._producer.send(self._topic, value.encode(), partition=partition).get(60)

    def close(self) -> None:
        self._producer.close(1)


class Ours:
    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = fencepost.Producer(servers, transactional_id=topic, transaction_timeout_ms=TIMEOUT_MS)
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction
        self.close = self._producer.close

    def send(self, partition: int, value: str) -> None:
        self._producer.send(self._topic, value.encode(), partition=partition).result(120)


CLIENTS: dict[str, Callable[[str, str], Client]] = {
    "librdkafka": Librdkafka,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
    "fencepost": Ours,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def await_abort(servers: str, transactional_id: str) -> None:
    deadline = time.monotonic() + 120
    with fencepost.Admin(servers) as admin:
        while admin.describe_transactions([transactional_id])[0].state != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def committed(servers: str, topic: str) -> list[str]:
    with RawClient(servers) as client:
        return [
            (value or b"").decode()
            for partition in (0, 1)
            for value in client.fetch(topic, partition=partition, committed=True).values
        ]


def transaction(client: Client, value: str) -> None:
    client.begin()
    client.send(0, value)
    client.commit()


def reported(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
        return type(error).__name__
    return "ok"


def story(client: Client, servers: str, name: str, scenario: str) -> dict[str, str]:
    """A transaction that times out, one more call, what had been asked for, an abort, two more transactions."""
    client.begin()
    client.send(0, "lost")
    await_abort(servers, name)
    steps: dict[str, str] = {}
    if scenario in {"produce", "partition"}:
        steps["send"] = reported(lambda: client.send(0 if scenario == "produce" else 1, "late"))
    if scenario != "abort":
        steps["commit"] = reported(client.commit)
    steps["abort"] = reported(client.abort)
    for value in ("t0", "t1"):
        steps[value] = reported(lambda value=value: transaction(client, value))  # type: ignore[misc]
        if steps[value] != "ok":
            steps[f"abort-{value}"] = reported(client.abort)
    return steps


# Who goes on with the same producer, and the first thing the others are told, which is final. kafka-python is told at
# once what ends it, because it would never ask for a new epoch but after a failed delivery (the last test).
GOES_ON = {"librdkafka": "KafkaException", "fencepost": "TransactionCommitFailedError"}
IS_FENCED = {"aiokafka": "ProducerFenced", "kafka-python": "ProducerFencedError"}
CASES = [
    (name, scenario) for name in CLIENTS for scenario in SCENARIOS if (name, scenario) != ("kafka-python", "produce")
]


def run_scenario(servers: str, name: str, scenario: str) -> tuple[dict[str, str], list[str]]:
    """The story's steps, and what is committed in the end."""
    topic = f"{name}-{scenario}"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, 2)
    client = CLIENTS[name](servers, topic)
    try:
        steps = story(client, servers, topic, scenario)
    finally:
        reported(client.close)  # a fenced producer may say so once more
    return steps, committed(servers, topic)


@pytest.mark.parametrize(("name", "scenario"), CASES)
def test_after_a_timeout(servers: str, name: str, scenario: str) -> None:
    steps, read = run_scenario(servers, name, scenario)
    if name in IS_FENCED:
        assert next(iter(steps.values())) == IS_FENCED[name]
        assert "ok" not in steps.values()
        assert read == []
    else:
        assert steps.get("commit", GOES_ON[name]) == GOES_ON[name]
        assert (steps["abort"], steps["t0"], steps["t1"], read) == ("ok", "ok", "ok", ["t0", "t1"])


def test_kafka_python_after_a_failed_delivery(servers: str) -> None:
    """It gets itself a new epoch, in its own time: until then every call is refused, afterwards all goes well."""
    topic = "kafka-python-produce"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, 2)
    client = KafkaPython(servers, topic)
    try:
        client.begin()
        client.send(0, "lost")
        await_abort(servers, topic)
        assert reported(lambda: client.send(0, "late")) == "InvalidProducerEpochError"
        assert reported(client.commit) == "KafkaError"
        deadline = time.monotonic() + 120
        while reported(lambda: transaction(client, "again")) != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        client.close()
    assert committed(servers, topic) == ["again"]
