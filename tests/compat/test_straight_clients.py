"""The usual clients' requests take the straight paths; otherwise a precondition has rotted, and nobody would see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

import fencepost
from bench.brokers import produce_frame
from bench.common import RawConnection
from fencepost.broker.embedded import Broker

TOPIC = "t"
RECORDS = 20


@pytest.fixture(params=["never", "commit"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(fsync=request.param) as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, 1)
        with fencepost.Producer(running.bootstrap_servers) as producer:
            producer.send(TOPIC, b"the first one opens the log").result()
        yield running


def ours(servers: str) -> None:
    with fencepost.Producer(servers) as producer:
        for _ in range(RECORDS):
            producer.send(TOPIC, b"v").result()


def our_transactions(servers: str) -> None:
    with fencepost.Producer(servers, transactional_id="ours") as producer:
        producer.init_transactions()
        for _ in range(RECORDS):
            with producer.transaction():
                producer.send(TOPIC, b"v")


def confluent(servers: str, **settings: str | bool | int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"v")
        producer.flush()


def confluent_idempotent(servers: str) -> None:
    confluent(servers, **{"enable.idempotence": True})


def confluent_compressed(servers: str) -> None:
    confluent(servers, **{"compression.type": "lz4"})


def confluent_transactions(servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "confluent"})
    producer.init_transactions()
    for _ in range(RECORDS):
        producer.begin_transaction()
        producer.produce(TOPIC, b"v")
        producer.commit_transaction()


def aiokafka_client(servers: str) -> None:
    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for _ in range(RECORDS):
                await producer.send_and_wait(TOPIC, b"v")

    asyncio.run(story())


def kafka_python(servers: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    for _ in range(RECORDS):
        producer.send(TOPIC, b"v").get(60)
    producer.close()


def benchmark(servers: str) -> None:
    connection = RawConnection(servers)
    connection.pipelined(produce_frame(TOPIC, [b"v" * 100]), RECORDS)
    connection.close()


CLIENTS = (ours, aiokafka_client, kafka_python, benchmark, confluent, confluent_idempotent, confluent_compressed)
TRANSACTIONAL = (our_transactions, confluent_transactions)


@pytest.mark.parametrize("client", CLIENTS)
def test_all_requests_of_a_usual_client_are_straight(broker: Broker, client: Callable[[str], None]) -> None:
    assert_straight(broker, client)


@pytest.mark.parametrize("broker", ["never"], indirect=True)
@pytest.mark.parametrize("client", TRANSACTIONAL)
def test_all_requests_of_a_transactional_client_are_straight(broker: Broker, client: Callable[[str], None]) -> None:
    """With fsync=commit a transaction waits until the markers of the one before are synced: not a common form."""
    assert_straight(broker, client)


def assert_straight(broker: Broker, client: Callable[[str], None]) -> None:
    before = broker.metrics()
    client(broker.bootstrap_servers)
    after = broker.metrics()
    asked = after.requests["produce"] - before.requests["produce"]
    assert asked >= RECORDS
    assert after.straight_requests["produce"] - before.straight_requests.get("produce", 0) == asked
