"""The answer to a batch is lost, and its transaction is aborted before the batch is repeated.

confluent-kafka 2.16 (librdkafka) uses the sequence number of the purged record again, in the same epoch. The broker
takes the next transaction's record for the repeated one: it is reported as delivered and committed, and is in no log.
Apache Kafka and our broker behave alike. Our client goes on with another epoch.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.compat import confluent_kafka as compat
from fencepost.protocol.produce_wire import API_KEY as PRODUCE
from fencepost_lab.torture.fault_proxy import FaultDraw, FaultProxy
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

PATIENCE_S = 60


class LostProduce(FaultDraw):
    """Loses the answer to one Produce request, when `armed`."""

    armed = False

    def __init__(self) -> None:
        super().__init__(0, 1)

    def draw(self, api_key: int) -> tuple[str, float]:
        if not self.armed or api_key != PRODUCE:
            return "pass", 0.0
        self.armed = False
        return "lose answer", 0.0


def committed(servers: str, topic: str, end: int) -> list[bytes | None]:
    """Return the committed values below the offset `end`."""
    partition = fencepost.TopicPartition(topic, 0)
    found: list[bytes | None] = []
    with fencepost.Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        while consumer.position(partition) < end:
            found += [record.value for record in consumer.poll(1_000)]
    return found


@pytest.mark.parametrize(
    ("module", "expected"),
    [(confluent_kafka, [b"first", b"third"]), (compat, [b"first", b"second", b"third"])],
    ids=["confluent-kafka", "ours"],
)
def test_the_next_transactions_records(
    broker: BrokerUnderTest, admin: fencepost.Admin, module: Any, expected: list[bytes]
) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    reports: dict[bytes, str] = {}

    def reported(error: Any, message: Any) -> None:
        reports[message.value()] = "ok" if error is None else error.name()

    host, _, port = broker.bootstrap_servers.rpartition(":")
    with FaultProxy((host, int(port)), fault_draw := LostProduce()) as proxy:
        producer = module.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "transactional.id": broker.name("x"),
                "retry.backoff.ms": 6_000,  # the abort comes before
                "retry.backoff.max.ms": 6_000,
                "linger.ms": 0,
            }
        )

        def transact(value: bytes) -> None:
            producer.begin_transaction()
            producer.produce(topic, value, partition=0, on_delivery=reported)
            producer.flush(PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)

        producer.init_transactions(PATIENCE_S)
        transact(b"first")
        fault_draw.armed = True
        producer.begin_transaction()
        producer.produce(topic, b"lost", partition=0, on_delivery=reported)
        until(lambda: producer.poll(0.05) is not None and not fault_draw.armed)
        partition = fencepost.TopicPartition(topic, 0)
        until(lambda: admin.list_offsets({partition: -1})[partition].offset == 3)  # first, its marker, and the lost one
        producer.abort_transaction(PATIENCE_S)
        transact(b"second")
        transact(b"third")
    assert (reports[b"lost"] != "ok", reports[b"second"], reports[b"third"]) == (True, "ok", "ok")
    assert committed(broker.bootstrap_servers, topic, admin.list_offsets({partition: -1})[partition].offset) == expected
