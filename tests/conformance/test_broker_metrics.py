"""The broker's metrics beside the statistics of a real client.

There is no arm of Apache Kafka: its brokers have these numbers in JMX only. The judge is the client, which counts what
it sends and receives.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.embedded import Broker
from fencepost.broker.metrics.endpoint import serve_metrics
from tests.support.waiting import until

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")

COUNT = 500


class Scrape:
    """The samples of one answer of the metrics port."""

    def __init__(self, text: str) -> None:
        self._samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        full = f"fencepost_broker_{name}"
        return sum(each.value for each in self._samples if each.name == full and labels.items() <= each.labels.items())


@contextmanager
def port_of(broker: Broker) -> Iterator[int]:
    port, end = serve_metrics(broker.metrics, "127.0.0.1", 0)
    try:
        yield port
    finally:
        end()


def scrape(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return Scrape(answer.read().decode())


Sizes = tuple[float, float]


class Statistics:
    """A producer of librdkafka and its newest statistics."""

    def __init__(self, servers: dict[str, str]) -> None:
        self._newest: dict[str, Any] = {}
        settings = {
            "statistics.interval.ms": 50,
            "topic.metadata.refresh.interval.ms": -1,
            "enable.metrics.push": False,
        }
        self.producer = confluent_kafka.Producer({**servers, **settings, "stats_cb": self._take})

    def _take(self, text: str) -> None:
        self._newest = json.loads(text)

    def produce(self, count: int) -> None:
        for number in range(count):
            self.producer.produce("orders", b"%d" % number, b"key", partition=0)
        assert self.producer.flush(60) == 0

    def sent(self) -> float:
        """Messages that were sent, as told now."""
        self.producer.poll(0.1)
        partitions = self._newest.get("topics", {}).get("orders", {}).get("partitions", {})
        return float(partitions.get("0", {}).get("txmsgs", 0))

    def sizes(self) -> Sizes:
        """Bytes sent and received on the connection to the leader, whose requests are Produce and ApiVersions."""
        (leader,) = [each for each in self._newest["brokers"].values() if each["nodeid"] == 1]
        return leader["txbytes"], leader["rxbytes"]


def test_the_broker_and_librdkafka_count_the_same() -> None:
    with Broker() as broker, port_of(broker) as port:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        client = Statistics(servers)

        def differences() -> tuple[Sizes, Sizes]:
            """Bytes since the first record, as the client and the broker count them."""
            now, seen = client.sizes(), scrape(port)
            own = (now[0] - first[0], now[1] - first[1])
            return own, (seen.sum("request_bytes_total") - before[0], seen.sum("response_bytes_total") - before[1])

        client.produce(1)
        until(lambda: client.sent() == 1)
        first, seen = client.sizes(), scrape(port)
        before = seen.sum("request_bytes_total"), seen.sum("response_bytes_total")
        client.produce(COUNT)
        until(lambda: client.sent() == COUNT + 1)
        until(lambda: client.sent() > 0 and differences()[0] == differences()[1])
        assert min(differences()[0]) > 0
        seen = scrape(port)
        assert seen.sum("topic_written_records_total", topic="orders") == COUNT + 1
        assert seen.sum("partition_end_offset", topic="orders", partition="0") == COUNT + 1
        written = seen.sum("topic_written_bytes_total", topic="orders")
        assert seen.sum("topic_size_bytes", topic="orders") == written
        assert COUNT * len(b"key") < written < seen.sum("request_bytes_total", api="produce")


def test_the_broker_sees_how_far_a_group_of_librdkafka_is_behind() -> None:
    with Broker() as broker, port_of(broker) as port:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = confluent_kafka.Producer(servers)
        for _ in range(COUNT):
            producer.produce("orders", b"book")
        assert producer.flush(60) == 0
        settings = {"group.id": "billing", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**servers, **settings})
        consumer.subscribe(["orders"])
        read: list[Any] = []

        def has_read_all() -> bool:
            read.extend(consumer.consume(COUNT - len(read), 0.2))
            return len(read) == COUNT

        until(has_read_all)
        consumer.commit(read[COUNT // 5 - 1], asynchronous=False)
        seen = scrape(port)
        assert seen.sum("group_lag", group="billing", topic="orders") == COUNT - COUNT // 5
        written = seen.sum("topic_written_bytes_total", topic="orders")
        assert seen.sum("topic_read_bytes_total", topic="orders") == written > 0
        consumer.close()


def test_the_errors_that_a_client_gets_are_counted() -> None:
    with Broker({"auto.create.topics.enable": False}) as broker, port_of(broker) as port:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        wanted = [confluent_kafka.admin.NewTopic("orders", 1)]
        admin.create_topics(wanted)["orders"].result(60)
        for _ in range(2):
            with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
                admin.create_topics(wanted)["orders"].result(60)
        seen = scrape(port)
        assert seen.sum("response_errors_total", api="create_topics", error="TOPIC_ALREADY_EXISTS") == 2
        assert seen.sum("response_errors_total", api="create_topics") == 2
