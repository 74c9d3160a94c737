"""librdkafka (confluent-kafka) in groups of both protocols on our broker: everybody gets a share, and moves on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from fencepost.broker.embedded import Broker
from tests.support.group_member import describe
from tests.support.raw_client import RawClient

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.consumer.heartbeat.interval.ms": 200}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connection:
        yield connection


class Crowd:
    """Consumers by name, polled in turn."""

    def __init__(self, servers: str, group: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.consumers: dict[str, Any] = {}
        self.read = 0

    def add(self, name: str, *topics: str, **settings: Any) -> None:
        own = {key.replace("_", "."): value for key, value in settings.items()}
        self.consumers[name] = Consumer({**self._settings, **own})
        self.consumers[name].subscribe(list(topics))

    def close(self, *names: str) -> None:
        for name in names:
            self.consumers.pop(name).close()

    def owned(self, name: str) -> frozenset[tuple[str, int]]:
        return frozenset((partition.topic, partition.partition) for partition in self.consumers[name].assignment())

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{ {name: self.owned(name) for name in self.consumers} }")
            for consumer in self.consumers.values():
                message = consumer.poll(0.05)
                self.read += message is not None and message.error() is None

    def until_shares(self, *sizes: int) -> None:
        """Until their shares are disjoint and of these sizes."""

        def check() -> bool:
            shares = [self.owned(name) for name in self.consumers]
            return sorted(map(len, shares)) == sorted(sizes) and len(frozenset().union(*shares)) == sum(sizes)

        self.until(check)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_consumer_protocol(broker: Broker, client: RawClient, assignor: str) -> None:
    topic, group = client.create_topic(f"c-{assignor}", 6), f"cg-{assignor}"
    for partition in range(6):
        client.produce(topic, [b"v"] * 5, partition=partition)
    crowd = Crowd(broker.bootstrap_servers, group, group_protocol="consumer", group_remote_assignor=assignor)
    crowd.add("a", topic)
    crowd.until_shares(6)
    crowd.until(lambda: crowd.read == 30)
    crowd.consumers["a"].commit(asynchronous=False)
    crowd.add("b", topic)
    crowd.until_shares(3, 3)
    crowd.add("c", topic)
    crowd.until_shares(2, 2, 2)
    assert describe(client, group).assignor_name == assignor
    crowd.close("a")
    crowd.until_shares(3, 3)
    assert crowd.read == 30  # who took over went on behind what was committed
    crowd.close("b", "c")
    assert describe(client, group).group_state == "Empty"


def test_a_pattern_and_static_members(broker: Broker, client: RawClient) -> None:
    client.create_topic("cpattern-one", 4)
    crowd = Crowd(broker.bootstrap_servers, "cg-static", group_protocol="consumer")
    for name in ("a", "b"):
        crowd.add(name, "^cpattern-.*", group_instance_id=name)
    crowd.until_shares(2, 2)
    before, epoch = crowd.owned("a"), describe(client, "cg-static").group_epoch
    crowd.close("a")
    crowd.add("a", "^cpattern-.*", group_instance_id="a")
    crowd.until_shares(2, 2)
    assert (crowd.owned("a"), describe(client, "cg-static").group_epoch) == (before, epoch)
    client.create_topic("cpattern-two", 2)
    crowd.until_shares(3, 3)
    crowd.close("a", "b")


def test_cooperative_sticky_in_a_classic_group(broker: Broker, client: RawClient) -> None:
    topic = client.create_topic("c-cooperative", 4)
    crowd = Crowd(
        broker.bootstrap_servers,
        "cg-cooperative",
        partition_assignment_strategy="cooperative-sticky",
        heartbeat_interval_ms=100,
    )
    crowd.add("a", topic)
    crowd.until_shares(4)
    crowd.add("b", topic)
    crowd.until_shares(2, 2)
    crowd.close("a")
    crowd.until_shares(4)
    crowd.close("b")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_goes_over_to_the_consumer_protocol_and_back(broker: Broker, client: RawClient, strategy: str) -> None:
    """Member by member, as a rolling upgrade does it; nothing that was committed is read again."""
    topic, group = client.create_topic(f"c-over-{strategy}", 6), f"cg-over-{strategy}"
    classic = {"group_protocol": "classic", "partition_assignment_strategy": strategy, "heartbeat_interval_ms": 100}
    crowd = Crowd(broker.bootstrap_servers, group)
    crowd.add("old-1", topic, **classic)
    crowd.add("old-2", topic, **classic)
    crowd.until_shares(3, 3)
    crowd.add("new-1", topic, group_protocol="consumer")
    crowd.until_shares(2, 2, 2)
    assert sorted(member.member_type for member in describe(client, group).members) == [0, 0, 1]
    crowd.close("old-1")
    crowd.until_shares(3, 3)
    crowd.add("new-2", topic, group_protocol="consumer")
    crowd.until_shares(2, 2, 2)
    crowd.close("old-2")
    crowd.until_shares(3, 3)
    assert [member.member_type for member in describe(client, group).members] == [1, 1]
    crowd.add("old-3", topic, **classic)
    crowd.until_shares(2, 2, 2)
    crowd.close("new-1", "new-2")
    crowd.until_shares(6)
    crowd.until(lambda: describe(client, group).error_code != 0)
    crowd.until_shares(6)
    crowd.close("old-3")
