"""Requests that take something from a prepared transaction are told of in the broker's log; time takes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import fencepost

TX = "fencepost.broker.transactions"


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


@pytest.fixture
def admin(broker: fencepost.Broker) -> Iterator[fencepost.Admin]:
    with fencepost.Admin(broker.bootstrap_servers) as running:
        running.create_topic("t", 1)
        running.create_topic("in", 1)
        yield running


def prepared(broker: fencepost.Broker) -> fencepost.PreparedTransaction:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="book", two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        producer.send_offsets_to_transaction({("in", 0): 1}, "g")
        return producer.prepare_transaction()


@pytest.mark.parametrize("what", ["topic 't' is deleted", "records of t-0 before offset 1 are deleted", "group 'g'"])
def test_what_is_taken_from_a_prepared_transaction_is_logged(
    broker: fencepost.Broker, admin: fencepost.Admin, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    note = prepared(broker)
    caplog.set_level(logging.WARNING, logger=TX)
    if what.startswith("topic"):
        admin.delete_topic("t")
    elif what.startswith("records"):
        admin.delete_records({("t", 0): -1})
    else:
        admin.delete_group("g")
    (reported,) = [
        record.getMessage() for record in caplog.records if "are lost, even if it commits" in record.getMessage()
    ]
    assert what in reported
    assert f"transaction {note} of transactional id 'book' (open, waiting for its owner's decision)" in reported


def test_nothing_is_logged_where_nothing_is_open(
    broker: fencepost.Broker, admin: fencepost.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.complete("book", prepared(broker), commit=True)
    caplog.set_level(logging.WARNING, logger=TX)
    admin.delete_records({("t", 0): -1})
    admin.delete_group("g")
    admin.delete_topic("t")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("protocol", ["", "classic", "consumer"])
def test_offsets_count_from_the_marker(
    broker: fencepost.Broker, admin: fencepost.Admin, protocol: str, restart: bool
) -> None:
    """They pended for longer than offsets.retention.minutes (a week), and the group was empty for as long."""
    if protocol:
        servers = broker.bootstrap_servers
        with fencepost.Consumer(servers, group_id="g", group_protocol=protocol) as consumer:
            consumer.subscribe(["in"])
            while not consumer.assignment():
                consumer.poll(100)
    note = prepared(broker)
    broker.clock.advance(8 * 86_400)
    broker.settle()
    admin.complete("book", note, commit=True)
    if restart:
        broker.restart(clean=False)
    broker.clock.advance(86_400)
    broker.settle()
    assert [at.offset for at in admin.group_offsets("g").values()] == [1]
    broker.clock.advance(7 * 86_400)
    broker.settle()
    assert admin.group_offsets("g") == {}
