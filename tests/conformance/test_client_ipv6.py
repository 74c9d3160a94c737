"""The client and the broker over IPv6: addresses in brackets, as bootstrap and as advertised."""

from __future__ import annotations

import socket

import pytest

import fencepost


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_everything_over_ipv6() -> None:
    with fencepost.Broker(host="::1") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="t") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("greetings", b"hello")
        with fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["greetings"])
            assert [record.value for record in consumer.poll(60_000)] == [b"hello"]
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            (node,) = admin.describe_cluster().brokers
            assert node.host == "::1"
