"""A consumer that gets nothing says why: soon, again and again, and with the true reason."""

from __future__ import annotations

import logging
import re
import socket
import time

import pytest

import fencepost
from fencepost.errors import AuthenticationError

TOPIC_RULES = {"auto.create.topics.enable": False}
PATIENCE_S = 60


def poll_until_warned(consumer: fencepost.Consumer, caplog: pytest.LogCaptureFixture, pattern: str) -> str:
    """Poll until there is a warning like that; it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert consumer.poll(200) == []
        for entry in caplog.records:
            if entry.levelno >= logging.WARNING and re.search(pattern, entry.getMessage()):
                return entry.getMessage()
    raise AssertionError(f"no warning like {pattern!r} in {[entry.getMessage() for entry in caplog.records]}")


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
def test_no_broker(caplog: pytest.LogCaptureFixture, protocol: str | None) -> None:
    servers = f"127.0.0.1:{closed_port()}"
    group = {} if protocol is None else {"group_id": "g", "group_protocol": protocol}
    with fencepost.Consumer(servers, **group) as consumer:  # type: ignore[arg-type]
        if protocol is None:
            consumer.assign([("t", 0)])
        else:
            consumer.subscribe(["t"])
        poll_until_warned(consumer, caplog, f"cannot connect to {servers}")
        if protocol is not None:
            reported = poll_until_warned(consumer, caplog, "not settled")
            assert f"cannot connect to {servers}" in reported
            assert f"cannot connect to {servers}" in consumer.state()


@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
def test_a_listener_that_wants_another_protocol(caplog: pytest.LogCaptureFixture, protocol: str | None) -> None:
    group = {} if protocol is None else {"group_id": "g", "group_protocol": protocol}
    with (
        fencepost.Broker(users={"a": "right"}) as broker,
        fencepost.Consumer(broker.bootstrap_servers, **group) as consumer,  # type: ignore[arg-type]
    ):
        if protocol is None:
            consumer.assign([("t", 0)])
        else:
            consumer.subscribe(["t"])
        reported = poll_until_warned(consumer, caplog, "security_protocol")
        assert broker.bootstrap_servers in reported


@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
def test_no_such_topic(caplog: pytest.LogCaptureFixture, protocol: str | None) -> None:
    """It is waited for, as by Kafka's own consumer, and read when it comes."""
    group = {} if protocol is None else {"group_id": "g", "group_protocol": protocol}
    settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500, **group}
    with (
        fencepost.Broker(TOPIC_RULES) as broker,
        fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer,  # type: ignore[arg-type]
        fencepost.Admin(broker.bootstrap_servers) as admin,
    ):
        if protocol is None:
            consumer.assign([("missing", 0)])
        else:
            admin.create_topic("there", 1)
            consumer.subscribe(["there", "missing"])
        poll_until_warned(consumer, caplog, "^topic 'missing'.*UNKNOWN_TOPIC_OR_PARTITION")
        admin.create_topic("missing", 1)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("missing", b"at last").result()
        values: list[bytes | None] = []
        end = time.monotonic() + PATIENCE_S
        while not values and time.monotonic() < end:
            values = [record.value for record in consumer.poll(200)]
        assert values == [b"at last"]


def test_no_such_partition(caplog: pytest.LogCaptureFixture) -> None:
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2)
        with fencepost.Consumer(broker.bootstrap_servers) as consumer:
            consumer.assign([("t", 7)])
            reported = poll_until_warned(consumer, caplog, "t-7")
            assert "2 partitions" in reported


@pytest.mark.parametrize("protocol", ["classic", "consumer", None])
def test_a_wrong_password_is_raised(protocol: str | None) -> None:
    group = {} if protocol is None else {"group_id": "g", "group_protocol": protocol}
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "a",
        "sasl_plain_password": "wrong",
    }
    with (
        fencepost.Broker(users={"a": "right"}) as broker,
        fencepost.Consumer(broker.bootstrap_servers, **login, **group) as consumer,  # type: ignore[arg-type]
    ):
        if protocol is None:
            consumer.assign([("t", 0)])
        else:
            consumer.subscribe(["t"])
        end = time.monotonic() + PATIENCE_S

        def poll_on() -> None:
            while time.monotonic() < end:
                consumer.poll(1000)

        for _ in range(2):
            with pytest.raises(AuthenticationError, match="Invalid username or password"):
                poll_on()
