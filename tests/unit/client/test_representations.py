"""Representations of public objects: a client or broker shows its address and its state."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any

import pytest

import fencepost

CLIENTS = [fencepost.Admin, fencepost.Producer, fencepost.Consumer]


@pytest.mark.parametrize("make", CLIENTS, ids=lambda each: each.__name__)
def test_a_client_shows_address_and_state(make: type[fencepost.Admin]) -> None:
    with make("127.0.0.1:1") as client:
        assert repr(client) == f"<fencepost.{make.__name__} 127.0.0.1:1, open>"
    assert repr(client) == f"<fencepost.{make.__name__} 127.0.0.1:1, closed>"


def test_an_async_client_shows_address_and_state() -> None:
    async def show() -> tuple[str, str]:
        client = fencepost.AsyncAdmin("127.0.0.1:1")
        before = repr(client)
        await client.close()
        return before, repr(client)

    assert asyncio.run(show()) == (
        "<fencepost.AsyncAdmin 127.0.0.1:1, open>",
        "<fencepost.AsyncAdmin 127.0.0.1:1, closed>",
    )


def test_a_broker_shows_address_and_state() -> None:
    broker = fencepost.Broker()
    assert repr(broker) == "<fencepost.Broker stopped>"
    with broker:
        assert repr(broker) == f"<fencepost.Broker {broker.bootstrap_servers}, running>"
    assert repr(broker) == "<fencepost.Broker stopped>"


BLOCKING: list[Callable[[str], Any]] = [
    fencepost.Admin,
    fencepost.Producer,
    lambda servers: fencepost.Consumer(servers, group_id="g"),
    lambda servers: fencepost.ShareConsumer(servers, group_id="s"),
]


@pytest.mark.parametrize("make", BLOCKING, ids=["admin", "producer", "consumer", "share"])
def test_a_forked_child_shows_that_the_client_is_its_parent_s(make: Callable[[str], Any]) -> None:
    with make("127.0.0.1:1") as client:
        name = type(client).__name__
        assert in_a_child(lambda: repr(client)) == f"<fencepost.{name} 127.0.0.1:1, open in the parent process>"
        assert in_a_child(lambda: (client.close(), repr(client))[1]).endswith("open in the parent process>")
    assert in_a_child(lambda: repr(client)) == f"<fencepost.{name} 127.0.0.1:1, closed>"


def test_a_forked_child_shows_that_the_broker_is_its_parent_s() -> None:
    with fencepost.Broker() as broker:
        shown = f"<fencepost.Broker {broker.bootstrap_servers}, running in the parent process>"
        assert in_a_child(lambda: repr(broker)) == shown
        assert repr(broker).endswith(", running>")


def test_a_fenced_producer_shows_that_it_has_failed() -> None:
    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        old = fencepost.Producer(servers, transactional_id="x")
        old.init_transactions()
        old.begin_transaction()
        with fencepost.Producer(servers, transactional_id="x") as new:
            new.init_transactions()
            with pytest.raises(fencepost.errors.KafkaError):
                old.send("t", b"v").result()
            with pytest.raises(fencepost.errors.ProducerFencedError):
                old.abort_transaction()
            assert repr(old) == f"<fencepost.Producer {servers}, failed: ProducerFencedError>"
            assert repr(new) == f"<fencepost.Producer {servers}, open>"
        old.close()
        assert repr(old) == f"<fencepost.Producer {servers}, closed>"


def test_a_delivery_shows_topic_and_outcome() -> None:
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        delivery = producer.send("t", b"secret")
        assert repr(delivery) == "<Delivery to t, waiting>"
        producer.flush()
        assert repr(delivery) == "<Delivery to t, partition 0, offset 0>"
        assert repr(producer.send("t", b"v", partition=0)) == "<Delivery to t, waiting>"

    async def show(servers: str) -> str:
        async with fencepost.AsyncProducer(
            servers, delivery_timeout_ms=300, request_timeout_ms=100, linger_ms=0
        ) as failing:
            lost = await failing.send("t", b"secret")
            with pytest.raises(fencepost.errors.ProduceFailedError):
                await lost
            return repr(lost)

    assert asyncio.run(show("127.0.0.1:1")) == "<AsyncDelivery to t, failed: ProduceFailedError>"


def test_arrow_data_in_delivery_shows_its_outcome() -> None:
    pa = pytest.importorskip("pyarrow")
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
        delivery = producer.send_arrow("t", pa.table({"value": pa.array([b"a", b"b"], pa.binary())}))
        delivery.result()
        assert repr(delivery) == "<BulkDelivery to t, done>"


def test_no_public_class_shows_a_place_in_memory() -> None:
    """Each that a program gets as a value: not listeners and assignors, which programs write."""
    classes = [each for name in fencepost.__all__ if isinstance(each := getattr(fencepost, name), type)]
    plain = [each.__name__ for each in classes if vars(object)["__repr__"] is inspect.getattr_static(each, "__repr__")]
    assert sorted(plain) == ["PartitionAssignor", "RebalanceListener"]


def in_a_child(show: Callable[[], str]) -> str:
    """The text that a forked child computes."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, show().encode())
        os._exit(0)
    os.close(there)
    with open(here, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(child, 0)
    return text
