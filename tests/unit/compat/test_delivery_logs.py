"""Records without on_delivery: a failure is logged, but not what the application dropped itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from fencepost.compat.confluent_kafka import Producer

LOGGER = "fencepost.client.producer"


def producer(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_records_of_an_aborted_transaction(fencepost_broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    with producer(fencepost_broker, **{"transactional.id": "aborted", "linger.ms": 60_000}) as client:
        client.init_transactions(60)
        client.begin_transaction()
        for _ in range(3):
            client.produce("t", b"never")
        client.abort_transaction(60)
        assert client.flush(60) == 0
    assert logged(caplog) == []


def test_purged_records(fencepost_broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    with producer(fencepost_broker, **{"linger.ms": 60_000}) as client:
        client.produce("t", b"never")
        client.purge()
        assert client.flush(60) == 0
    assert logged(caplog) == []


def test_a_record_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    settings = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100}
    client = Producer(settings)
    client.produce("t", b"never")
    assert client.flush(60) == 0
    assert ["was not delivered" in line for line in logged(caplog) if "'t'" in line] == [True]
