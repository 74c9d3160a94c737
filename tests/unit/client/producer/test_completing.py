"""`complete_transaction` after a restart tells what was committed from what is lost; unanswered, it can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import fencepost
from fencepost.client.prepared import PreparedTransaction
from fencepost.errors import (
    KafkaTimeoutError,
    PreparedTransactionLostError,
    TransactionCommitFailedError,
    TransactionCommittedError,
    UnsupportedVersionError,
    UsageError,
)
from fencepost.testing import read_all

PATIENCE_MS = 3_000
"""The limit of each call: those that get no answer take it whole, and the others must be answered within it."""


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("keep_prepared", [False, True])
def test_two_phases_need_an_epoch_for_each_transaction(level: int, keep_prepared: bool) -> None:
    """With the epoch of the transaction before it, a late decision about that one would end it."""
    settings = {"transaction.two.phase.commit.enable": True, "transaction.version": level}
    words = f"has transaction.version {level}; two-phase commit needs 2"
    with (
        fencepost.Broker(settings) as broker,
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(
            broker.bootstrap_servers, transactional_id="x", two_phase_commit=not keep_prepared
        ) as producer,
    ):
        with pytest.raises(UnsupportedVersionError, match=words):
            producer.init_transactions(keep_prepared)
        assert admin.list_transactions() == []  # nothing was asked of the coordinator


@pytest.mark.parametrize("end", ["commit", "abort", "time"])
def test_a_prepared_transaction_that_is_over_is_told_by_its_end(end: str) -> None:
    settings = {"transaction.two.phase.commit.enable": False}
    with fencepost.Broker(settings) as broker:
        first = fencepost.Producer(broker.bootstrap_servers, transactional_id="x")
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"v")
        stored = str(first.prepare_transaction())
        if end == "commit":
            assert first.complete_transaction(stored) is True
            assert first.complete_transaction(stored) is True
        elif end == "abort":
            first.abort_transaction()
        else:
            broker.clock.advance(61)
            broker.settle()
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as second:
            assert second.init_transactions(keep_prepared=True) is None
            if end == "commit":
                assert second.complete_transaction(stored) is True
            else:
                with pytest.raises(PreparedTransactionLostError, match=stored):
                    second.complete_transaction(stored)
            with second.transaction():
                second.send("t", b"w")
        first.close(0)


@pytest.fixture(params=[1, 2])
def broker(request: pytest.FixtureRequest) -> Iterator[fencepost.Broker]:
    """One for each version of the protocol of transactions."""
    settings = {"transaction.two.phase.commit.enable": True, "transaction.version": request.param}
    with fencepost.Broker(settings) as running:
        yield running


@pytest.fixture
def two_phase_broker() -> Iterator[fencepost.Broker]:
    """One that lets producers keep what they find prepared."""
    with fencepost.Broker({"transaction.two.phase.commit.enable": True}) as running:
        yield running


def prepared(broker: fencepost.Broker) -> tuple[fencepost.Producer, PreparedTransaction]:
    producer = fencepost.Producer(broker.bootstrap_servers, transactional_id="x", max_block_ms=PATIENCE_MS)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    return producer, producer.prepare_transaction()


def commit_unanswered(broker: fencepost.Broker, producer: fencepost.Producer, stored: PreparedTransaction) -> None:
    with broker.faults.drop_reply("EndTxn", times=None) as lost, pytest.raises(TransactionCommitFailedError) as raised:
        producer.complete_transaction(stored)
    assert raised.value.outcome_unknown
    assert lost.hits > 0


def test_a_commit_without_an_answer_is_completed_again(broker: fencepost.Broker) -> None:
    producer, stored = prepared(broker)
    with producer:
        commit_unanswered(broker, producer, stored)
        assert producer.complete_transaction(stored) is True
        assert producer.complete_transaction(stored) is True
        with producer.transaction():
            producer.send("t", b"w")
    assert [record.value for record in read_all(broker, "t")] == [b"v", b"w"]


def test_a_commit_that_a_restart_found_prepared_is_completed_again(two_phase_broker: fencepost.Broker) -> None:
    first, stored = prepared(two_phase_broker)
    second = fencepost.Producer(two_phase_broker.bootstrap_servers, transactional_id="x", max_block_ms=PATIENCE_MS)
    with second:
        assert second.init_transactions(keep_prepared=True) == stored
        commit_unanswered(two_phase_broker, second, stored)
        assert second.complete_transaction(stored) is True
    assert [record.value for record in read_all(two_phase_broker, "t")] == [b"v"]
    first.close(0)


def test_what_an_unanswered_restart_found_out_is_not_forgotten(two_phase_broker: fencepost.Broker) -> None:
    """Its InitProducerId took effect, and moved the id on from the transaction that ended."""
    first, stored = prepared(two_phase_broker)
    assert first.complete_transaction(stored) is True
    second = fencepost.Producer(two_phase_broker.bootstrap_servers, transactional_id="x", max_block_ms=PATIENCE_MS)
    with second:
        with two_phase_broker.faults.drop_reply("InitProducerId", times=None) as lost, pytest.raises(KafkaTimeoutError):
            second.init_transactions(keep_prepared=True)
        assert lost.hits > 0
        assert second.init_transactions(keep_prepared=True) is None
        assert second.complete_transaction(stored) is True
        with second.transaction():
            second.send("t", b"w")
        assert second.complete_transaction(stored) is True  # also when another one has followed it
    first.close(0)


def test_an_unanswered_completion_may_be_finished_by_a_commit_or_told_by_an_abort(broker: fencepost.Broker) -> None:
    producer, stored = prepared(broker)
    with producer:
        commit_unanswered(broker, producer, stored)
        producer.commit_transaction()
        assert producer.complete_transaction(stored) is True
        producer.begin_transaction()
        producer.send("t", b"w")
        stored = producer.prepare_transaction()
        commit_unanswered(broker, producer, stored)
        with pytest.raises(TransactionCommittedError):
            producer.abort_transaction()
        assert producer.complete_transaction(stored) is True
    assert [record.value for record in read_all(broker, "t")] == [b"v", b"w"]


def test_an_abort_without_an_answer_is_completed_again_as_an_abort_alone(broker: fencepost.Broker) -> None:
    producer, mine = prepared(broker)
    other = PreparedTransaction(mine.producer_id, mine.epoch + 7)
    with producer:
        with broker.faults.drop_reply("EndTxn", times=None) as lost, pytest.raises(KafkaTimeoutError):
            producer.complete_transaction(other)
        assert lost.hits > 0
        with pytest.raises(UsageError, match="ABORTING"):
            producer.complete_transaction(mine)
        assert producer.complete_transaction(other) is False
    assert read_all(broker, "t") == []


def test_what_is_being_committed_is_not_completed_as_another(broker: fencepost.Broker) -> None:
    producer, mine = prepared(broker)
    with producer:
        commit_unanswered(broker, producer, mine)
        with pytest.raises(UsageError, match="COMMITTING"):
            producer.complete_transaction(PreparedTransaction(mine.producer_id, mine.epoch + 7))
        assert producer.complete_transaction(mine) is True


def test_a_cancelled_completion_is_repeated(broker: fencepost.Broker) -> None:
    async def body() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="x") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"v")
            stored = await producer.prepare_transaction()
            with broker.faults.swallow("EndTxn") as swallowed:
                completing = asyncio.ensure_future(producer.complete_transaction(stored))
                await asyncio.to_thread(swallowed.wait, 1, 10)
                completing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await completing
            broker.faults.disconnect()
            assert await producer.complete_transaction(stored) is True

    asyncio.run(body())
    assert [record.value for record in read_all(broker, "t")] == [b"v"]
