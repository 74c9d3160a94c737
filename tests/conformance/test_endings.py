"""Outcomes of prepared transactions that a client can learn, from our broker, which remembers them, and from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import fencepost
from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import (
    PreparedTransactionLostError,
    TransactionCommittedError,
    TransactionOutcomeUnknownError,
)
from tests.support.brokers import BrokerUnderTest


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[fencepost.Admin]:
    with fencepost.Admin(broker.bootstrap_servers) as running:
        yield running


class Writer:
    """The note of a producer that has died, and what may happen to the transaction."""

    def __init__(self, broker: BrokerUnderTest, admin: fencepost.Admin, *values: bytes) -> None:
        self.name, self.topic = broker.name("x"), broker.name("t")
        self._servers, self._admin = broker.bootstrap_servers, admin
        admin.create_topic(self.topic, 2)
        with self.producer() as producer:
            producer.init_transactions()
            for value in (b"before", *values):
                producer.begin_transaction()
                producer.send(self.topic, value, partition=1)
                if value == b"before":
                    producer.commit_transaction()
            if not values:
                producer.begin_transaction()
            self.note: PreparedTransaction = producer.prepare_transaction()

    def producer(self) -> fencepost.Producer:
        return fencepost.Producer(self._servers, transactional_id=self.name, two_phase_commit=True)

    def complete(self, *, commit: bool, topics: tuple[str, ...] = ()) -> None:
        self._admin.complete(self.name, self.note, commit=commit, topics=topics)

    def go_on(self) -> None:
        """Another one claims the id, and commits a transaction of its own."""
        with self.producer() as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(self.topic, b"behind", partition=1)


Check = Callable[[], None]


def is_committed(writer: Writer, *topics: str) -> None:
    writer.complete(commit=True, topics=topics)
    with pytest.raises(TransactionCommittedError):
        writer.complete(commit=False, topics=topics)


def is_aborted(writer: Writer, *topics: str) -> None:
    writer.complete(commit=False, topics=topics)
    with pytest.raises(PreparedTransactionLostError):
        writer.complete(commit=True, topics=topics)


def is_unknown(writer: Writer) -> None:
    for commit in (True, False):
        with pytest.raises(TransactionOutcomeUnknownError):
            writer.complete(commit=commit)


@pytest.mark.parametrize("commit", [True, False])
def test_the_state_of_the_id_tells_until_the_id_goes_on(
    broker: BrokerUnderTest, admin: fencepost.Admin, commit: bool
) -> None:
    writer, check = Writer(broker, admin, b"v"), is_committed if commit else is_aborted
    writer.complete(commit=commit)
    check(writer)
    writer.go_on()
    check(writer) if broker.is_ours else is_unknown(writer)
    check(writer, writer.topic)  # by its marker


def test_a_takeover_aborts_and_the_marker_tells(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    writer = Writer(broker, admin, b"v")
    writer.go_on()
    if not broker.is_ours:
        is_unknown(writer)
    is_aborted(writer, writer.topic)


def test_another_topic_tells_nothing(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    writer = Writer(broker, admin, b"v")
    writer.complete(commit=True)
    writer.go_on()
    admin.create_topic(other := broker.name("t"), 1)
    if broker.is_ours:
        is_committed(writer, other)
    else:
        with pytest.raises(TransactionOutcomeUnknownError, match=f"markers in {other} were looked for"):
            writer.complete(commit=True, topics=(other,))


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_without_records_is_nothing_to_complete(
    broker: BrokerUnderTest, admin: fencepost.Admin, commit: bool
) -> None:
    writer = Writer(broker, admin)
    writer.complete(commit=commit)
    if commit or broker.is_ours:
        writer.complete(commit=True)


def test_an_abort_by_somebody_else_is_no_timeout(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 1)
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=True)
    with producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
        note = producer.prepare_transaction()
        admin.complete(name, note, commit=False)
        with pytest.raises(PreparedTransactionLostError, match="another client has aborted it"):
            producer.complete_transaction(note)
        assert producer.metrics()["transaction_timed_out_total"] == 0


def test_a_live_producer_that_was_replaced_reads_its_marker(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic, name = broker.name("t"), broker.name("x")
    admin.create_topic(topic, 1)
    servers = broker.bootstrap_servers
    with fencepost.Producer(servers, transactional_id=name, two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
        note = producer.prepare_transaction()
        admin.complete(name, note, commit=True)
        with fencepost.Producer(servers, transactional_id=name, two_phase_commit=True) as heir:
            heir.init_transactions()
        assert producer.complete_transaction(note)
