"""Metrics by topic, partition and broker: the values, their bound, and the exports."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import fencepost
from fencepost.client.metrics import (
    LABELLED,
    MOST_SERIES,
    OTHERS,
    CountersByLabel,
    PrometheusCollector,
    Series,
    TopicSends,
    lags,
    parts_of,
)
from fencepost.client.opentelemetry import ClientMeter
from tests.unit.client.scripted import World, run

API_VERSIONS = 18


def labelled(found: dict[str, float], name: str) -> dict[str, float]:
    """The values of a metric by its labels' values."""
    return {",".join(labels.values()): found[key] for key in found for own, labels in [parts_of(key)] if own == name}


def test_a_producer_counts_by_topic_and_broker() -> None:
    numbers: dict[str, float] = {}

    async def body(world: World) -> None:
        producer = world.producer()
        for topic in ("a", "a", "b"):
            await world.outcome(producer.append(topic, b"v"))
        world.broker.refuse_produce(5)
        await world.outcome(producer.append("b", b"retried"))
        world.broker.refuse_produce(87)
        await world.outcome(producer.append("b", b"refused"))
        numbers.update(producer.metrics())
        await producer.close()

    broker = run(body)
    assert labelled(numbers, "topic_record_send_total") == {"a": 2, "b": 2}
    assert labelled(numbers, "topic_record_error_total") == {"a": 0, "b": 1}
    assert labelled(numbers, "topic_record_retry_total") == {"a": 0, "b": 1}
    assert sum(labelled(numbers, "topic_byte_total").values()) == numbers["outgoing_byte_total"]
    asked = len([key for key, *_ in broker.requests if key != API_VERSIONS])  # which belongs to connecting
    assert labelled(numbers, "node_request_total") == {"1": asked}
    assert labelled(numbers, "node_response_total") == {"1": asked}
    assert labelled(numbers, "node_outgoing_byte_total")["1"] > numbers["outgoing_byte_total"]


def test_records_that_never_became_a_batch_are_failed_records_of_their_topic() -> None:
    numbers: dict[str, float] = {}

    async def body(world: World) -> None:
        producer = world.producer(linger_ms=10_000)
        producer.append("t", b"v")
        producer.purge()
        numbers.update(producer.metrics())
        await producer.close()

    run(body)
    assert labelled(numbers, "topic_record_error_total") == {"t": 1}


def test_what_is_above_the_bound_is_counted_together() -> None:
    counted: CountersByLabel[str, TopicSends] = CountersByLabel(TopicSends, "topic", "topic")
    for _ in range(2):
        for number in range(MOST_SERIES + 50):
            counted.of(f"t{number}").record_send_total += 1
    found = labelled(counted.series(), "topic_record_send_total")
    assert len(found) == MOST_SERIES + 1
    assert found["t0"] == found[f"t{MOST_SERIES - 1}"] == 2
    assert found[OTHERS] == 100


def test_partitions_are_bounded_as_well() -> None:
    found = lags({fencepost.TopicPartition("t", number): (number, 0) for number in range(MOST_SERIES + 50)})
    assert len(labelled(found, "partition_records_lag")) == MOST_SERIES


@pytest.mark.parametrize("value", ["t", 'with "quotes"', "back\\slash", "line\nfeed", "a,b={}"])
def test_a_key_is_in_the_notation_of_prometheus(value: str) -> None:
    [key] = Series.of({"topic": value, "partition": "0"}, {"name": 1})
    [family] = text_string_to_metric_families(f"{key} 1\n")
    [sample] = family.samples
    assert sample.labels == {"topic": value, "partition": "0"}
    assert parts_of(key) == ("name", sample.labels)
    assert parts_of("plain") == ("plain", {})


def test_a_key_is_a_text_for_all_else() -> None:
    [key] = Series.of({"topic": "t"}, {"name": 1})
    assert key == 'name{topic="t"}'
    found: dict[str, int] = {key: 1}
    assert found['name{topic="t"}'] == 1
    assert json.loads(json.dumps({key: 1})) == {'name{topic="t"}': 1}
    assert parts_of(pickle.loads(pickle.dumps(key))) == parts_of(key)


def test_every_name_with_labels_is_known_beforehand() -> None:
    """OpenTelemetry's instruments are made before there are values."""
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"v").result(60)
        with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            assert consumer.poll(60_000)
            keys = [*producer.metrics(), *consumer.metrics()]
    assert {name for key in keys for name, labels in [parts_of(key)] if labels} == LABELLED


def test_the_exports_have_the_labels() -> None:
    reader = InMemoryMetricReader()
    meter = ClientMeter(MeterProvider([reader]).get_meter("test"))
    registry = CollectorRegistry()
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
        meter.observe(orders=producer)  # before there is a series
        registry.register(PrometheusCollector(orders=producer))
        producer.send("t", b"v").result(60)
        producer.send("u", b"v").result(60)
        labels = {"client": "orders", "topic": "t"}
        assert registry.get_sample_value("fencepost_client_topic_record_send_total", labels) == 1
        collected = reader.get_metrics_data()
    assert collected is not None
    points: list[Any] = [
        point
        for resource in collected.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "fencepost.client.topic_record_send_total"
        for point in metric.data.data_points
    ]
    assert [(point.attributes, point.value) for point in points] == [(labels, 1), ({**labels, "topic": "u"}, 1)]


def test_a_collection_reads_a_client_once() -> None:
    class Client:
        reads = 0

        def metrics(self) -> dict[str, float]:
            self.reads += 1
            return {"polls_total": self.reads, "lag": self.reads} | Series.of(
                {"topic": "t"}, {"topic_byte_total": self.reads}
            )

    reader, client = InMemoryMetricReader(), Client()
    ClientMeter(MeterProvider([reader]).get_meter("test")).observe(orders=client)
    client.reads = 0
    for collection in (1, 2, 3):
        collected = reader.get_metrics_data()
        assert collected is not None
        scope: Any
        [scope] = collected.resource_metrics[0].scope_metrics
        values = {metric.name: [point.value for point in metric.data.data_points] for metric in scope.metrics}
        assert set(map(tuple, values.values())) == {(collection,)}
        assert len(values) == 3
    assert client.reads == 3
