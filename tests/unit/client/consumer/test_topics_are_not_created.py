"""Consumers create no topic unless they are told to; a producer does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost.errors import KafkaError


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker({"auto.create.topics.enable": True}) as running:
        yield running


@pytest.mark.parametrize("asked", [False, True])
def test_a_consumer_creates_topics_only_when_it_is_told_to(broker: fencepost.Broker, asked: bool) -> None:
    settings: dict[str, Any] = {"allow_auto_create_topics": True} if asked else {}
    servers = broker.bootstrap_servers
    with (
        fencepost.Consumer(servers, group_id="g", topic_metadata_propagation_max_ms=100, **settings) as consumer,
        fencepost.Admin(servers) as admin,
    ):
        consumer.subscribe(["subscribed"])
        for topic in ("partitions", "offsets"):
            with contextlib.suppress(KafkaError):
                if topic == "partitions":
                    consumer.partitions_for(topic, timeout_ms=2_000)
                else:
                    consumer.offsets_for({(topic, 0): 0}, timeout_ms=2_000)
        looks = 0
        while looks < 20 and "subscribed" not in admin.list_topics():
            consumer.poll(100)
            looks += 1
        expected = {"subscribed", "partitions", "offsets"} if asked else set()
        assert {name for name in admin.list_topics() if not name.startswith("__")} == expected


def test_a_producer_creates_topics(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        assert producer.send("made", b"v").result(60).topic == "made"
