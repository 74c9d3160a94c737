"""A broker that has lost a partition's log and with it what it knew of its producers: what every client makes of it.

With the strict check (R2 of docs/observed.md) the next batch, which does not begin at 0, is UNKNOWN_PRODUCER_ID and a
line in the broker's log: what was acknowledged before is gone. Clients that can re-initialise do so without a word to
their application, hence the log line. With `producer.state.check=kafka`, as at Apache Kafka, nobody is told anything.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import aiokafka
import kafka
import pytest
from confluent_kafka import Producer as LibrdkafkaProducer

import fencepost
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.compat.java_clients import JavaClients

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RELEASES = ("2.0.1", "2.4.1", "2.5.1", "2.8.2", "3.9.1", "4.4.0")
CHECKS = ("strict", "kafka")
BEFORE, AFTER = ("r0", "r1", "r2"), ("r3", "r4", "r5")
OK = ["ok", "ok", "ok"]


@dataclass
class Seen:
    """By (check, client): what its sends came to, and what is in the partition afterwards; by check, the log."""

    sends: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    written: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    reported: dict[str, str] = field(default_factory=dict)


def empty(broker: BrokerProcess, topics: list[str]) -> None:
    """Remove the files of partitions that a lost disk would take."""
    for topic in topics:
        lost = [path for path in (broker.data_directory / f"{topic}-0").iterdir() if path.suffix != ".metadata"]
        assert lost
        for path in lost:
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "partition.metadata":
                path.unlink()


def read(servers: str, topic: str) -> list[str]:
    """Return the readable values. The broker knows that it had more, and names the lost offsets."""
    partition = fencepost.TopicPartition(topic, 0)
    with fencepost.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        with fencepost.Admin(servers) as admin:
            end = admin.list_offsets({partition: -1})[partition].offset
        found: list[str] = []
        while (at := consumer.position(partition)) < end:
            try:
                found += [(record.value or b"").decode() for record in consumer.poll(1000)]
            except fencepost.errors.CorruptRecordError:
                assert at < len(BEFORE)
                consumer.seek(partition, at + 1)
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    seen = Seen()
    with JavaClients(tmp_path_factory.mktemp("classes")) as java:
        for check in CHECKS:
            broker = BrokerProcess({"producer.state.check": check})
            broker.start()
            try:
                forget(java, broker, check, seen)
            finally:
                broker.stop()
    return seen


def outcome(send: Callable[[], object]) -> str:
    try:
        send()
    except Exception as error:  # noqa: BLE001 - what the application sees is what is asked
        return type(error).__name__
    return "ok"


def librdkafka(servers: str, topic: str) -> Iterator[str]:
    producer = LibrdkafkaProducer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def send(value: str) -> None:
        reported: list[object] = []
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(120) == 0
        assert reported == [None], reported

    yield from (outcome(lambda value=value: send(value)) for value in (*BEFORE, *AFTER))  # type: ignore[misc]


def of_aiokafka(servers: str, topic: str) -> Iterator[str]:
    with asyncio.Runner() as runner:

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
            await producer.start()
            return producer

        producer = runner.run(start())
        for value in (*BEFORE, *AFTER):

            async def send(value: str = value) -> None:
                await asyncio.wait_for(producer.send_and_wait(topic, value.encode(), partition=0), 60)

            yield outcome(lambda send=send: runner.run(send()))  # type: ignore[misc]
        runner.run(producer.stop())


def kafka_python(servers: str, topic: str) -> Iterator[str]:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    for value in (*BEFORE, *AFTER):
        yield outcome(lambda value=value: producer.send(topic, value.encode(), partition=0).get(60))  # type: ignore[misc]
    producer.close()


def ours(servers: str, topic: str) -> Iterator[str]:
    with fencepost.Producer(servers) as producer:
        for value in (*BEFORE, *AFTER):
            yield outcome(lambda value=value: producer.send(topic, value.encode(), partition=0).result(120))  # type: ignore[misc]


PYTHON: dict[str, Callable[[str, str], Iterator[str]]] = {
    "librdkafka": librdkafka,
    "aiokafka": of_aiokafka,
    "kafka-python": kafka_python,
    "fencepost": ours,
}


def forget(java: JavaClients, broker: BrokerProcess, check: str, seen: Seen) -> None:
    servers = broker.bootstrap_servers
    topics = {client: f"of-{client}" for client in (*RELEASES, *PYTHON)}
    keys = {release: f"{check}/{release}" for release in RELEASES}
    with fencepost.Admin(servers) as admin:
        for topic in topics.values():
            admin.create_topic(topic, 1)
    for release in RELEASES:
        java.start(keys[release], release, servers, topics[release], "forgotten")
    runs = {client: run(servers, topics[client]) for client, run in PYTHON.items()}
    for run in runs.values():
        assert [next(run) for _ in BEFORE] == OK
    for release in RELEASES:
        java.wait_for(keys[release], "ready")
    broker.kill()
    empty(broker, list(topics.values()))
    broker.start()
    with fencepost.Admin(servers) as admin:
        for topic in topics.values():
            admin.create_topic(f"{topic}-go", 1)
    for client, run in runs.items():
        seen.sends[check, client] = list(run)
    for release in RELEASES:
        reported = java.wait(keys[release])
        seen.sends[check, release] = [reported[value] for value in AFTER]
    for client, topic in topics.items():
        seen.written[check, client] = read(servers, topic)
    seen.reported[check] = broker.output()


# What the application sees with the strict check. Java 2.0 and aiokafka speak Produce v6 and v7, whose readers cannot
# live with the answer: they are let in, and only the log tells. Java 2.4 and kafka-python fail the batch and go on; our
# own client says what happened and stops. Everybody else re-initialises and sends again by itself.
SENDS = {
    "2.4.1": ["UnknownProducerIdException", "ok", "ok"],
    "kafka-python": ["UnknownProducerIdError", "ok", "ok"],
    "fencepost": ["ProduceFailedError", "DataLossError", "DataLossError"],
}


@pytest.mark.parametrize("client", [*RELEASES, *PYTHON])
def test_what_the_application_sees(seen: Seen, client: str) -> None:
    expected = SENDS.get(client, OK)
    assert seen.sends["strict", client] == expected
    assert seen.written["strict", client] == [
        value for value, sent in zip(AFTER, expected, strict=True) if sent == "ok"
    ]


@pytest.mark.parametrize("client", [*RELEASES, *PYTHON])
def test_the_broker_tells_of_each(seen: Seen, client: str) -> None:
    reported = rf"of-{re.escape(client)}-0: (accepted sequence \d+ of )?producer id"
    assert re.search(reported, seen.reported["strict"])


@pytest.mark.parametrize("client", [*RELEASES, *PYTHON])
def test_with_kafka_s_rule_nobody_sees_anything(seen: Seen, client: str) -> None:
    assert (seen.sends["kafka", client], seen.written["kafka", client]) == (OK, list(AFTER))
