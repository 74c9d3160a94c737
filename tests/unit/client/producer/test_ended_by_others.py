"""A decision that is carried out more than once, by whomever, is told the same each time, and never as a loss.

Restoring a checkpoint commits again what it names (FLIP-319); KIP-939 makes completing with nothing open a no-op.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

import fencepost
from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import (
    FatalError,
    PreparedTransactionLostError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionCommitFailedError,
    TransactionCommittedError,
    TransactionOutcomeUnknownError,
)
from fencepost.testing import read_all

Way = Callable[[fencepost.Broker, PreparedTransaction], object]


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def writer(broker: fencepost.Broker, **settings: object) -> fencepost.Producer:
    return fencepost.Producer(
        broker.bootstrap_servers,
        transactional_id="x",
        two_phase_commit=True,
        **settings,  # type: ignore[arg-type]
    )


def prepared(broker: fencepost.Broker, *values: bytes) -> PreparedTransaction:
    """The note of a writer that has died."""
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("t", value)
        return producer.prepare_transaction()


def by_producer(broker: fencepost.Broker, note: PreparedTransaction) -> bool:
    with writer(broker) as producer:
        producer.init_transactions(keep_prepared=True)
        return producer.complete_transaction(note)


def by_admin(broker: fencepost.Broker, note: PreparedTransaction) -> None:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.complete("x", note, commit=True)


def aborted_by_admin(broker: fencepost.Broker, note: PreparedTransaction) -> None:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.complete("x", note, commit=False)


def keep_and_leave(broker: fencepost.Broker, _note: PreparedTransaction) -> None:
    with writer(broker) as producer:
        producer.init_transactions(keep_prepared=True)


def killed(broker: fencepost.Broker, _note: PreparedTransaction) -> None:
    broker.restart(clean=False)


def next_transaction(broker: fencepost.Broker, _note: PreparedTransaction) -> None:
    with writer(broker) as producer:
        producer.init_transactions(keep_prepared=True)
        with producer.transaction():
            producer.send("u", b"later")


COMPLETES = [by_producer, by_admin]


@pytest.mark.parametrize("between", [[], [keep_and_leave], [killed], [keep_and_leave, killed], [keep_and_leave] * 3])
@pytest.mark.parametrize("ways", list(itertools.product(COMPLETES, repeat=3)))
def test_a_commit_is_told_by_every_way_in_every_order(
    broker: fencepost.Broker, ways: tuple[Way, ...], between: list[Way]
) -> None:
    note = prepared(broker, b"v")
    for way in ways:
        for act in between:
            act(broker, note)
        way(broker, note)
        assert [record.value for record in read_all(broker, "t")] == [b"v"]


@pytest.mark.parametrize("way", COMPLETES)
def test_a_commit_is_remembered_behind_later_transactions_and_a_kill(broker: fencepost.Broker, way: Way) -> None:
    note = prepared(broker, b"v")
    by_producer(broker, note)
    for _ in range(3):
        next_transaction(broker, note)
    with writer(broker) as producer:
        producer.init_transactions()
        for number in range(100):
            with producer.transaction():
                producer.send("u", b"%d" % number)
    killed(broker, note)
    way(broker, note)
    with pytest.raises(TransactionCommittedError):
        aborted_by_admin(broker, note)


@pytest.mark.parametrize("way", COMPLETES)
@pytest.mark.parametrize("later", [[], [killed], [next_transaction], [keep_and_leave, next_transaction, killed]])
def test_only_what_is_aborted_is_lost(broker: fencepost.Broker, way: Way, later: list[Way]) -> None:
    note = prepared(broker, b"v")
    aborted_by_admin(broker, note)
    for act in later:
        act(broker, note)
    with pytest.raises(PreparedTransactionLostError, match="another client has aborted it"):
        way(broker, note)
    aborted_by_admin(broker, note)
    assert read_all(broker, "t") == []


@pytest.mark.parametrize("ways", list(itertools.product([*COMPLETES, aborted_by_admin], repeat=2)))
@pytest.mark.parametrize("between", [[], [killed], [keep_and_leave], [next_transaction]])
def test_nothing_was_written_so_nothing_is_lost(
    broker: fencepost.Broker, ways: tuple[Way, ...], between: list[Way]
) -> None:
    note = prepared(broker)
    for way in ways:
        for act in between:
            act(broker, note)
        way(broker, note)


@pytest.mark.parametrize("commit", [True, False])
def test_the_note_of_an_empty_transaction_does_not_name_the_next_one(broker: fencepost.Broker, commit: bool) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        empty = producer.prepare_transaction()
        producer.complete_transaction(empty) if commit else producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"v")
        note = producer.prepare_transaction()
        assert note != empty
        (by_admin if commit else aborted_by_admin)(broker, empty)  # late
        assert read_all(broker, "t") == []
        assert producer.complete_transaction(note)
    assert [record.value for record in read_all(broker, "t")] == [b"v"]


@pytest.mark.parametrize("way", COMPLETES)
def test_an_expired_id_is_unknown_and_nothing_else(broker: fencepost.Broker, way: Way) -> None:
    note = prepared(broker, b"v")
    by_admin(broker, note)
    broker.clock.advance(8 * 86_400)
    broker.settle()
    with pytest.raises(TransactionOutcomeUnknownError) as raised:
        way(broker, note)
    assert isinstance(raised.value, FatalError)
    assert "write" not in str(raised.value)
    with pytest.raises(TransactionOutcomeUnknownError):
        aborted_by_admin(broker, note)
    next_transaction(broker, note)
    with pytest.raises(TransactionOutcomeUnknownError):
        way(broker, note)


def test_a_pair_that_was_never_given_out_is_unknown(broker: fencepost.Broker) -> None:
    note = prepared(broker, b"v")
    for other in (PreparedTransaction(note.producer_id, note.epoch + 5), PreparedTransaction(note.producer_id + 7, 0)):
        with pytest.raises(TransactionOutcomeUnknownError):
            by_admin(broker, other)
    assert by_producer(broker, note)


def test_a_decision_to_abort_beside_a_live_producer_is_told_as_that(broker: fencepost.Broker) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        note = producer.prepare_transaction()
        aborted_by_admin(broker, note)
        with pytest.raises(PreparedTransactionLostError, match="another client has aborted it"):
            producer.complete_transaction(note)
        assert producer.metrics()["transaction_timed_out_total"] == 0


def test_a_decision_to_commit_beside_a_live_producer_is_told_as_that(broker: fencepost.Broker) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        note = producer.prepare_transaction()
        by_admin(broker, note)
        with pytest.raises(TransactionCommittedError, match="another client has carried out"):
            producer.abort_transaction()
        assert producer.complete_transaction(note)
        with producer.transaction():
            producer.send("t", b"w")
    assert [record.value for record in read_all(broker, "t")] == [b"v", b"w"]


def test_an_abort_beside_a_live_producer_that_has_not_prepared_is_no_timeout(broker: fencepost.Broker) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        aborted_by_admin(broker, PreparedTransaction(producer.producer_id, producer.producer_epoch))
        with pytest.raises(TransactionCommitFailedError, match="another client has aborted") as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, TransactionAbortableError)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"w")
        assert producer.metrics()["transaction_timed_out_total"] == 0
    assert [record.value for record in read_all(broker, "t")] == [b"w"]


def test_the_writer_is_fenced_by_a_keep_and_its_transaction_is_not_lost(broker: fencepost.Broker) -> None:
    with writer(broker) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"v")
        note = first.prepare_transaction()
        keep_and_leave(broker, note)
        with pytest.raises(ProducerFencedError, match="still open"):
            first.complete_transaction(note)
    assert by_producer(broker, note)


def test_the_writer_learns_that_its_successor_has_committed(broker: fencepost.Broker) -> None:
    with writer(broker) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"v")
        note = first.prepare_transaction()
        by_producer(broker, note)
        next_transaction(broker, note)
        assert first.complete_transaction(note)
        with pytest.raises(ProducerFencedError), first.transaction():
            first.send("t", b"zombie")
    assert [record.value for record in read_all(broker, "t")] == [b"v"]


@pytest.mark.parametrize("commit", [True, False])
def test_two_deciders_at_the_same_time_agree_with_what_happened(broker: fencepost.Broker, commit: bool) -> None:
    """One keeps the transaction, and the other one ends it before the first has decided."""
    note = prepared(broker, b"v")
    with writer(broker) as slow:
        slow.init_transactions(keep_prepared=True)
        (by_admin if commit else aborted_by_admin)(broker, note)
        if commit:
            with pytest.raises(TransactionCommittedError):
                slow.abort_transaction()
            assert slow.complete_transaction(note)
        else:
            with pytest.raises(PreparedTransactionLostError):
                slow.complete_transaction(note)
    assert [record.value for record in read_all(broker, "t")] == ([b"v"] if commit else [])
