"""Quotas of a real Apache Kafka (KIP-219): the answer comes at once and asks for silence, and the client keeps it."""

from __future__ import annotations

import time

import pytest

import fencepost
from tests.support.apache_kafka import ApacheKafka

BYTES_PER_S = 10_000


@pytest.mark.kafka
def test_a_producer_over_its_quota_is_slowed_down_and_loses_nothing(apache_kafka: ApacheKafka) -> None:
    name = "slow-client"
    run = apache_kafka.run_kafka_class(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", apache_kafka.bootstrap_servers, "--alter"),
        *("--add-config", f"producer_byte_rate={BYTES_PER_S}", "--entity-type", "clients", "--entity-name", name),
    )
    assert run.returncode == 0, run.stdout + run.stderr
    topic = "quota"
    with fencepost.Producer(apache_kafka.bootstrap_servers, client_id=name, linger_ms=0) as producer:
        deadline = time.monotonic() + 120
        sent = 0
        while producer.metrics()["produce_throttle_ms_total"] == 0:
            assert producer.send(topic, b"x" * 20_000).result(120).offset == sent
            sent += 1
            assert time.monotonic() < deadline, "it was never throttled"
        begun = time.monotonic()
        throttle_ms = producer.metrics()["produce_throttle_ms_max"]
        assert producer.send(topic, b"after").result(120).offset == sent
        assert (time.monotonic() - begun) * 1000 > throttle_ms / 2
        assert producer.metrics()["record_retry_total"] == 0
