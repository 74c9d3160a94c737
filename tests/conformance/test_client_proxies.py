"""Connections through an HTTP CONNECT or SOCKS5 proxy."""

from __future__ import annotations

import asyncio

import pytest

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.tunnels import Tunnels

ALIAS = ("kafka.test", 9092)  # a name that only the proxy knows (RFC 6761)


def port_of(broker: BrokerUnderTest) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("login", [None, ("ann", "p:w@d/ü")])
@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_all_connections_go_through_the_proxy(
    broker: BrokerUnderTest, admin: fencepost.Admin, scheme: str, login: tuple[str, str] | None, in_parts: bool
) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    with Tunnels({ALIAS: port_of(broker)}, login=login, in_parts=in_parts) as tunnels:
        user = "" if login is None else "ann:p%3Aw%40d%2F%C3%BC@"
        settings = {"bootstrap_servers": "kafka.test:9092", "proxy_url": tunnels.url(scheme, user)}
        with fencepost.Producer.from_config(settings) as producer:
            producer.send(topic, b"v").result(60)

        async def read() -> list[bytes | None]:
            async with fencepost.AsyncConsumer.from_config(
                {**settings, "group_id": topic, "auto_offset_reset": "earliest"}
            ) as consumer:
                await consumer.subscribe([topic])
                found: list[fencepost.Record] = []
                while not found:
                    found += await consumer.poll(10_000)
                return [record.value for record in found]

        assert asyncio.run(read()) == [b"v"]
        host, _, port = broker.bootstrap_servers.rpartition(":")
        assert set(tunnels.targets) == {ALIAS, (host, int(port))}
        assert len(tunnels.targets) > 4


def test_socks5_without_h_looks_names_up_here(broker: BrokerUnderTest) -> None:
    with Tunnels({("127.0.0.1", 9092): port_of(broker), ("::1", 9092): port_of(broker)}) as tunnels:
        with fencepost.Admin("localhost:9092", proxy_url=tunnels.url("socks5")) as admin:
            assert admin.list_topics() is not None
        assert tunnels.targets[0] in (("127.0.0.1", 9092), ("::1", 9092))
