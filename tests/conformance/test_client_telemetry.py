"""Our clients push their metrics (KIP-714) to both brokers. Apache Kafka has a plugin that keeps what it gets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.client.admin.configs import CLIENT_METRICS_RESOURCE
from fencepost.errors import UnsupportedVersionError, UsageError
from fencepost.protocol.telemetry.otlp import MetricPoint
from tests.conformance.conftest import ARMS
from tests.support.brokers import BrokerUnderTest
from tests.support.telemetry_kafka import TelemetryKafka
from tests.support.waiting import until

SENT = "org.apache.kafka.producer.record.send.total"
READ = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
COMMITTED = "org.apache.kafka.consumer.coordinator.commit.total"
CREATED = "org.apache.kafka.admin.client.connection.creation.total"
INTERVAL_MS = 100
RECORDS = 10


class Serving:
    """A broker that serves telemetry and has a subscription for all clients."""

    def __init__(self, running: Broker | TelemetryKafka) -> None:
        self.running = running
        self.bootstrap_servers = running.bootstrap_servers
        self.subscribe("*")

    def subscribe(self, metrics: str) -> None:
        wanted = {"metrics": metrics, "interval.ms": str(INTERVAL_MS)}
        with fencepost.Admin(self.bootstrap_servers, enable_metrics_push=False) as admin:
            admin.alter_configs("everybody", wanted, resource_type=CLIENT_METRICS_RESOURCE)

    def points(self, instance_id: str) -> list[list[MetricPoint]]:
        """The pushes of a client. Our broker has the last one only."""
        if isinstance(self.running, TelemetryKafka):
            return [push.points for push in self.running.pushes() if push.instance_id == instance_id]
        seen = self.running.metrics().pushing_clients
        return [list(client.points) for client in seen if client.client["client_instance_id"] == instance_id]

    def has_pushed(self, instance_id: str) -> bool:
        return self.points(instance_id) != []

    def total(self, instance_id: str, name: str, **labels: str) -> float:
        """A sum as the client's pushes have it: that of all growths, or the last total."""
        found = [
            [
                point
                for point in push
                if point.name == name and labels.items() == dict(point.attributes).items() - {("group_id", "g")}
            ]
            for push in self.points(instance_id)
        ]
        values = [point for push in found for point in push]
        if any(point.is_delta for point in values):
            return sum(point.value for point in values)
        return values[-1].value if values else 0


@pytest.fixture(scope="module", params=ARMS)
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    with Broker() if request.param == "fencepost" else TelemetryKafka() as running:
        yield Serving(running)


@pytest.fixture
def topic(serving: Serving) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(serving.bootstrap_servers, enable_metrics_push=False) as admin:
        admin.create_topic(name, 1)
    return name


def producer_of(serving: Serving, topic: str, records: int = RECORDS, **settings: Any) -> fencepost.Producer:
    producer = fencepost.Producer(serving.bootstrap_servers, **settings)
    for number in range(records):
        producer.send(topic, b"%d" % number)
    producer.flush()
    return producer


def test_a_producer_pushes_at_the_interval_and_when_it_is_closed(serving: Serving, topic: str) -> None:
    with producer_of(serving, topic) as producer:
        name = producer.client_instance_id(30_000)
        until(lambda: serving.total(name, SENT) == RECORDS)
        producer.send(topic, b"one more").result()
    assert serving.total(name, SENT) == RECORDS + 1
    assert serving.total(name, "org.apache.kafka.producer.topic.record.send.total", topic=topic) == RECORDS + 1
    until(lambda: serving.has_pushed(name))
    latest = serving.points(name)[-1]
    assert {"node_id"} == {label for point in latest if ".node." in point.name for label, _ in point.attributes}
    if isinstance(serving.running, TelemetryKafka):
        (last,) = [push for push in serving.running.pushes() if push.is_last and push.instance_id == name]
        assert last is not None


def test_a_consumer_and_an_admin_client_push_too(serving: Serving, topic: str) -> None:
    producer_of(serving, topic).close()
    with fencepost.Consumer(serving.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        read = 0
        while read < RECORDS:
            read += len(consumer.poll(10_000))
        consumer.commit()
        name = consumer.client_instance_id()
        until(lambda: serving.has_pushed(name))
    assert serving.total(name, READ) == RECORDS
    assert serving.total(name, READ, topic=topic) == RECORDS
    assert serving.total(name, COMMITTED) == 1
    assert all(("group_id", "g") in point.attributes for point in serving.points(name)[-1])
    with fencepost.Admin(serving.bootstrap_servers) as admin:
        name = admin.client_instance_id()
        until(lambda: serving.has_pushed(name))
    assert serving.total(name, CREATED) >= 1


def test_asyncio_clients_push_too(serving: Serving, topic: str) -> None:
    async def work() -> list[str]:
        async with (
            fencepost.AsyncProducer(serving.bootstrap_servers) as producer,
            fencepost.AsyncConsumer(serving.bootstrap_servers, auto_offset_reset="earliest") as consumer,
            fencepost.AsyncShareConsumer(serving.bootstrap_servers, group_id="s") as sharing,
            fencepost.AsyncAdmin(serving.bootstrap_servers) as admin,
        ):
            await producer.send(topic, b"v")
            await consumer.assign([(topic, 0)])
            while not await consumer.poll(10_000):
                pass
            names = [await client.client_instance_id() for client in (producer, consumer, sharing, admin)]
            for name in names:
                await asyncio.to_thread(until, partial(serving.has_pushed, name))
            return names

    names = asyncio.run(asyncio.wait_for(work(), 60))
    assert len(set(names)) == 4
    assert serving.total(names[0], SENT) == 1
    assert serving.total(names[1], READ) == 1


def test_another_subscription_is_followed(serving: Serving, topic: str) -> None:
    with producer_of(serving, topic) as producer:
        name = producer.client_instance_id()
        until(lambda: serving.has_pushed(name))
        serving.subscribe("org.apache.kafka.producer.buffer.")
        try:
            until(
                lambda: (
                    {point.name for point in serving.points(name)[-1]}
                    == {
                        f"org.apache.kafka.producer.buffer.{what}"
                        for what in ("available.bytes", "exhausted.total", "total.bytes")
                    }
                )
            )
        finally:
            serving.subscribe("*")


def test_nothing_is_pushed_by_a_client_that_may_not(serving: Serving, topic: str) -> None:
    with (
        producer_of(serving, topic, enable_metrics_push=False) as producer,
        pytest.raises(UsageError, match="enable_metrics_push"),
    ):
        producer.client_instance_id()


def test_a_broker_that_serves_none_gives_no_id(broker: BrokerUnderTest) -> None:
    with (
        fencepost.Producer(broker.bootstrap_servers) as producer,
        pytest.raises(UnsupportedVersionError, match="no broker serves client telemetry"),
    ):
        producer.client_instance_id()
