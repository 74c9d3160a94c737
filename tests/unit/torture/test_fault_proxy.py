"""The proxy stands before every broker that an answer names, and loses what it is told to."""

from __future__ import annotations

import pytest

import fencepost
import fencepost.testing
from fencepost_lab.torture.fault_proxy import FaultDraw, FaultProxy


def quiet() -> FaultDraw:
    fault_draw = FaultDraw(1, requests_per_fault=1)
    fault_draw.enabled = False
    return fault_draw


def test_all_of_a_clients_traffic_goes_through_the_proxy(fencepost_broker: fencepost.Broker) -> None:
    host, _, port = fencepost_broker.bootstrap_servers.rpartition(":")
    with FaultProxy((host, int(port)), quiet()) as proxy:
        servers = f"127.0.0.1:{proxy.port}"
        with fencepost.Producer(servers, transactional_id="t", max_block_ms=10_000) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", b"book")
            with fencepost.Admin(servers) as admin:
                assert {(broker.host, broker.port) for broker in admin.describe_cluster().brokers} == {
                    ("127.0.0.1", proxy.port)
                }
            proxy.away = True
            proxy.cut()
            producer.begin_transaction()
            producer.send("orders", b"pen")
            with pytest.raises(fencepost.errors.KafkaError):
                producer.flush(timeout_ms=300)
            proxy.away = False
            producer.commit_transaction()
    assert [record.value for record in fencepost.testing.read_all(fencepost_broker, "orders")] == [b"book", b"pen"]


def test_what_goes_one_way_only_is_done_and_not_answered(fencepost_broker: fencepost.Broker) -> None:
    host, _, port = fencepost_broker.bootstrap_servers.rpartition(":")
    with FaultProxy((host, int(port)), quiet()) as proxy, fencepost.Producer(f"127.0.0.1:{proxy.port}") as producer:
        producer.send("orders", b"1").result()
        proxy.is_one_way = True
        delivery = producer.send("orders", b"2")
        while len(fencepost.testing.read_all(fencepost_broker, "orders")) < 2:
            assert not delivery.done()
        assert not delivery.done()
        proxy.is_one_way = False
        assert delivery.result().offset == 1
