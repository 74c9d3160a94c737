"""Monitors read `metrics()` in threads of their own, and may still do so when a client is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import fencepost
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.client.metrics import PrometheusCollector
from tests.support.interrupted_calls import FACES

SETTINGS: dict[str, dict[str, Any]] = {"ShareConsumer": {"group_id": "g"}}
NAME = b'fencepost_client_connection_creation_total{client="one"}'


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as broker:
        yield broker


@pytest.mark.parametrize("face", FACES)
def test_another_thread_reads_an_asyncio_client_while_open_and_when_closed(broker: fencepost.Broker, face: str) -> None:
    registry = CollectorRegistry()

    async def body() -> list[bytes]:
        async with FACES[face][1](broker.bootstrap_servers, **SETTINGS.get(face, {})) as client:
            registry.register(PrometheusCollector(one=client))
            while_open = await asyncio.to_thread(generate_latest, registry)
        return [while_open, await asyncio.to_thread(generate_latest, registry)]

    for page in [*asyncio.run(body()), generate_latest(registry)]:
        assert NAME in page


@pytest.mark.parametrize("face", FACES)
def test_a_closed_blocking_client_leaves_the_page_of_the_others_intact(broker: fencepost.Broker, face: str) -> None:
    registry = CollectorRegistry()
    with FACES[face][0](broker.bootstrap_servers, **SETTINGS.get(face, {})) as client:
        registry.register(PrometheusCollector(one=client))
        assert NAME in generate_latest(registry)
    assert NAME in generate_latest(registry)


def test_the_records_of_the_last_poll_are_in_hand(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("shared", b"%d" % number)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs("g", {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
    with fencepost.ShareConsumer(
        broker.bootstrap_servers, group_id="g", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe(["shared"])
        records: list[fencepost.SharedRecord] = []
        while not records:
            records = consumer.poll(1000)
        assert consumer.metrics()["records_in_hand"] == len(records)
        consumer.acknowledge(records[0])
        assert consumer.metrics()["records_in_hand"] == len(records) - 1
        for record in records[1:]:
            consumer.acknowledge(record)
        assert consumer.metrics()["records_in_hand"] == 0
