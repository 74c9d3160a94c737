"""The latency that a delivery reports, beside confluent-kafka's, while a stopped broker delays the response."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest, Killable
from tests.support.standing_still import standing_still

STOPPED_S = 0.2
ROUNDING_MS = 2  # of clocks in whole milliseconds

Send = Callable[[str], Callable[[], float]]
"""Sends a record to a topic; returns a function that waits for its result and returns the latency in ms."""


def ours(producer: fencepost.Producer) -> Send:
    def send(topic: str) -> Callable[[], float]:
        delivery = producer.send(topic, b"v")
        return lambda: delivery.result(120).latency_ms

    return send


def confluents(producer: confluent_kafka.Producer) -> Send:
    reported: list[Any] = []

    def send(topic: str) -> Callable[[], float]:
        producer.produce(topic, b"v", on_delivery=lambda _error, message: reported.append(message))

        def latency_ms() -> float:
            producer.flush(120)
            return float(reported[-1].latency()) * 1000

        return latency_ms

    return send


def check(running: Killable, topic: str, send: Send) -> None:
    pid = running.pid
    assert pid is not None
    send(topic)()
    with standing_still(pid):
        before_s = time.monotonic()
        result = send(topic)
        sent_s = time.monotonic()
        time.sleep(STOPPED_S)  # the broker does not answer before it goes on
        goes_on_s = time.monotonic()
    latency_ms = result()
    assert latency_ms >= (goes_on_s - sent_s) * 1000 - ROUNDING_MS
    assert latency_ms <= (time.monotonic() - before_s) * 1000 + ROUNDING_MS


@pytest.mark.parametrize("peer", [False, True], ids=["ours", "confluent-kafka"])
def test_it_is_the_time_from_send_to_the_response(killable: tuple[BrokerUnderTest, Killable], peer: bool) -> None:
    broker, running = killable
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
    if peer:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}
        check(running, topic, confluents(confluent_kafka.Producer(settings)))
        return
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        check(running, topic, ours(producer))
