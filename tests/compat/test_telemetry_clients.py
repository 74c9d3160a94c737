"""Java's clients (kafka-clients 4.4.0) and librdkafka push their metrics to our broker (KIP-714), which shows them."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.broker.metrics.pushed import PushingClient
from fencepost.client.admin.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, ConfigChange, ConfigResource
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.java_programs import compile_java, java_program
from tests.support.raw_client import RawClient
from tests.support.waiting import until

SOURCE = Path(__file__).with_name("java_telemetry") / "Pushes.java"
SHARES = SOURCE.with_name("SharePushes.java")
OF_PARTITIONS = {f"org.apache.kafka.consumer.fetch.manager.records.{what}" for what in ("lag", "lead")}
OF_SHARES = "org.apache.kafka.consumer.share."
RECORDS = 100
Kind = tuple[str, bool, tuple[str, ...]]
"""A metric: its name, True for a sum, and its labels."""
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        settings = {"metrics": "*", "interval.ms": "300"}
        configs = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS_RESOURCE, resource_name="all", configs=configs)
        with RawClient(running.bootstrap_servers) as client:
            answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        yield running


def clients(broker: Broker, client_id: str) -> list[PushingClient]:
    return [client for client in broker.metrics().pushing_clients if client.client["client_id"] == client_id]


def values(client: PushingClient) -> dict[str, float]:
    """By name; of several values of a name the largest."""
    found: dict[str, float] = {}
    for point in client.points:
        found[point.name] = max(point.value, found.get(point.name, 0.0))
    return found


@pytest.mark.java
def test_java(broker: Broker, tmp_path: Path) -> None:
    """The consumer's last push, at its end, tells of all records. The producer makes none when it is closed."""
    topic = "java"
    compile_java([SOURCE], tmp_path)
    stop = tmp_path / "stop"
    command = java_program("Pushes", broker.bootstrap_servers, topic, str(RECORDS), str(stop), folder=tmp_path)
    known: set[Kind] = set()  # of all pushes: the last one of a consumer may have no metrics of partitions any more
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        while not running.done():
            known |= {kind for client in clients(broker, f"java-{topic}") for kind in kinds(client)}
            if {name for name, _, _ in known} >= OF_PARTITIONS:
                stop.touch()
            time.sleep(0.02)
    run = running.result()
    reported = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("> ")]
    assert reported[0] == ["read", str(RECORDS)]
    ids = {name: instance_id for what, name, instance_id in reported[1:] if what == "id"}
    assert {what[1] for what in reported if what[0] == "closed"} == {"producer", "consumer"}
    pushed = {instance.client["client_instance_id"]: instance for instance in clients(broker, f"java-{topic}")}
    assert set(pushed) == set(ids.values())
    producer, consumer = pushed[ids["producer"]], pushed[ids["consumer"]]
    assert producer.client["client_software_name"] == "apache-kafka-java"
    assert 0 < values(producer)["org.apache.kafka.producer.record.send.total"] <= RECORDS
    assert values(consumer)["org.apache.kafka.consumer.fetch.manager.records.consumed.total"] == RECORDS
    assert ("group_id", topic) in consumer.points[0].attributes
    assert any(point.is_sum for point in producer.points)
    assert_ours_are_named_alike(broker, known | {kind for client in pushed.values() for kind in kinds(client)})


def kinds(client: PushingClient) -> set[Kind]:
    """Return the metrics of a client, without labels of its group. A JVM has its own order of the labels."""
    ours = {label for point in client.points for label, _ in point.attributes if label.startswith("group_")}
    return {
        (point.name, point.is_sum, tuple(sorted(label for label, _ in point.attributes if label not in ours)))
        for point in client.points
    }


def assert_ours_are_named_alike(broker: Broker, known: set[Kind]) -> None:
    """Each metric of our clients has the name, the kind and the labels of one of Java's."""
    with (
        fencepost.Producer(broker.bootstrap_servers, client_id="ours") as producer,
        fencepost.Consumer(broker.bootstrap_servers, client_id="ours", group_id="g") as consumer,
    ):
        producer.send("ours", b"v").result()
        consumer.assign([("ours", 0)])
        consumer.seek_to_beginning([("ours", 0)])
        while not consumer.poll(10_000):
            pass
        consumer.commit()
        until(lambda: len(clients(broker, "ours")) == 2)
    names = {kind for client in clients(broker, "ours") for kind in kinds(client)}
    assert len(names) > 40
    assert names - known == set()


@pytest.mark.java
def test_share_consumers(broker: Broker, tmp_path: Path) -> None:
    """Java's share consumer and ours read the same records, and push metrics of the same names and totals."""
    compile_java([SHARES], tmp_path)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        for topic in ("java-shares", "shares"):
            admin.create_topic(topic, 2)
            earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
            admin.incremental_alter_configs({ConfigResource(topic, GROUP_RESOURCE): earliest})
            with fencepost.Producer(broker.bootstrap_servers) as producer:
                for number in range(RECORDS):
                    producer.send(topic, b"%d" % number)
    stop = tmp_path / "stop"
    arguments = (broker.bootstrap_servers, "java-shares", str(RECORDS), str(stop))
    with ThreadPoolExecutor(1) as pool:
        command = java_program("SharePushes", *arguments, folder=tmp_path)
        running = pool.submit(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        until(lambda: running.done() or totals(broker, "java-java-shares")["records.consumed"] == RECORDS)
        stop.touch()
        assert f"> read {RECORDS}" in running.result().stdout
    with fencepost.ShareConsumer(broker.bootstrap_servers, client_id="ours-shares", group_id="shares") as consumer:
        consumer.subscribe(["shares"])
        read, deadline = 0, time.monotonic() + PATIENCE_S
        while read < RECORDS and time.monotonic() < deadline:
            read += len(consumer.poll(1_000))
        consumer.commit()
    (java,), (ours,) = clients(broker, "java-java-shares"), clients(broker, "ours-shares")
    expected = {"records.consumed": RECORDS, "acknowledgements.send": RECORDS, "acknowledgements.error": 0}
    for seen in (totals(broker, "java-java-shares"), totals(broker, "ours-shares")):
        assert {name: seen[name] for name in expected} == expected
        assert seen["fetch"] > 0
        assert seen["bytes.consumed"] > RECORDS
    own = {kind for kind in kinds(ours) if kind[0].startswith(OF_SHARES)}
    assert {name for name, _, _ in own} >= {f"{OF_SHARES}coordinator.{of}.total" for of in ("heartbeat", "rebalance")}
    assert len(own) > 10
    assert kinds(ours) - kinds(java) == set()


def totals(broker: Broker, client_id: str) -> dict[str, float]:
    """The totals of a share consumer's fetches in its last push, by short names; 0 for others."""
    found: dict[str, float] = defaultdict(float)
    for client in clients(broker, client_id):
        for name, value in values(client).items():
            if name.startswith(f"{OF_SHARES}fetch.manager.") and name.endswith(".total"):
                found[name.removeprefix(f"{OF_SHARES}fetch.manager.").removesuffix(".total")] = value
    return found


def test_librdkafka(broker: Broker) -> None:
    topic = "librdkafka"
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": topic, "log_level": 0}
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    for number in range(RECORDS):
        producer.produce(topic, f"value {number}")
    assert producer.flush(PATIENCE_S) == 0
    read, deadline = 0, time.monotonic() + PATIENCE_S
    while read < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        read += message is not None and message.error() is None
    assert read == RECORDS

    def has_pushed(what: str) -> bool:
        producer.poll(0)
        consumer.poll(0)
        return any(
            name.startswith(f"org.apache.kafka.{what}.") for client in clients(broker, topic) for name in values(client)
        )

    until(lambda: has_pushed("producer"))
    until(lambda: has_pushed("consumer"))
    consumer.close()
    producer.close()
    (of_producer,) = (
        each
        for each in map(values, clients(broker, topic))
        if "org.apache.kafka.producer.connection.creation.total" in each
    )
    assert of_producer["org.apache.kafka.producer.connection.creation.total"] >= 1
    assert of_producer["org.apache.kafka.producer.record.queue.time.max"] >= 0
    pushing = clients(broker, topic)
    assert {instance.client["client_software_name"] for instance in pushing} == {"confluent-kafka-python"}
    assert broker.metrics().counters["telemetry_refused"] == 0
