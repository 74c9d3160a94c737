"""Kafka's own console clients against our broker: read_committed shows what is committed and nothing else."""

from __future__ import annotations

import re

import pytest

import fencepost
from tests.support.apache_kafka import run_kafka_class

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def consumed(servers: str, topic: str, isolation: str) -> list[str]:
    """What the Java console consumer prints, from the beginning until nothing comes for some seconds."""
    done = run_kafka_class(
        CONSUMER,
        "--bootstrap-server",
        servers,
        "--topic",
        topic,
        "--from-beginning",
        "--isolation-level",
        isolation,
        "--timeout-ms",
        "8000",
    )
    # Its log lines go to stdout as well.
    return sorted(re.findall(r"^\d-(?:left|right)$", done.stdout, re.MULTILINE))


def test_the_java_consumer_sees_committed_records_only() -> None:
    with fencepost.Broker() as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="writer") as producer:
            producer.init_transactions()
            for number in range(4):
                producer.begin_transaction()
                producer.send("orders", f"{number}-left".encode(), partition=0)
                producer.send("orders", f"{number}-right".encode(), partition=1)
                if number % 2:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        kept = ["0-left", "0-right", "2-left", "2-right"]
        dropped = ["1-left", "1-right", "3-left", "3-right"]
        assert consumed(broker.bootstrap_servers, "orders", "read_committed") == kept
        assert consumed(broker.bootstrap_servers, "orders", "read_uncommitted") == sorted(kept + dropped)
