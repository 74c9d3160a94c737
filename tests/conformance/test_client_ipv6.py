"""The client and the broker over IPv6: addresses in brackets, as bootstrap and as advertised."""

from __future__ import annotations

import socket

import pytest

import fencepost
from fencepost.cli.main import main
from fencepost.errors import KafkaTimeoutError


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")


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


def test_an_address_that_is_shown_can_be_used_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    with fencepost.Broker(host="::1") as broker:
        servers = broker.bootstrap_servers
        with pytest.raises(SystemExit):
            main(["doctor", "-b", servers])
        assert f"brokers: 1 ({servers})\n" in capsys.readouterr().out
        with pytest.raises(SystemExit):
            main(["ui", "-b", servers, "--host", "::1", "--port", servers.rpartition(":")[2]])
        assert f"the page cannot listen on {servers}: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["topics", "list", "-b", servers])
    errors = capsys.readouterr().err
    assert f"no broker answers at {servers}: cannot connect to {servers}: " in errors
    with (
        pytest.raises(KafkaTimeoutError) as late,
        fencepost.Admin(servers, default_api_timeout_ms=300) as admin,
    ):
        admin.describe_cluster()
    assert str(late.value).count(servers) == str(late.value).count("::1") > 0
