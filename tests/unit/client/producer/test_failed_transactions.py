"""Errors of failed transactions: the call that reports each, and its class."""

from __future__ import annotations

import pytest

from fencepost.client.producer.transaction_answers import abortable
from fencepost.errors import (
    FatalError,
    InvalidProducerEpochError,
    KafkaError,
    TransactionAbortableError,
    TransactionCommitFailedError,
)
from fencepost.protocol.messages.end_txn import EndTxnResponse
from tests.unit.client.scripted import ScriptedBroker, World, run

INIT, END, DESCRIBE = 22, 26, 65


@pytest.mark.parametrize("complete", [False, True])
def test_what_failed_is_told_when_it_is_to_be_prepared_or_completed(complete: bool) -> None:
    """KIP-939: both raise what `commit` would."""

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x", two_phase_commit=True)
        await producer.init_transactions()
        producer.begin_transaction()
        world.broker.refuse_produce(120)
        await world.outcome(producer.append("t", b"v"))
        with pytest.raises(TransactionCommitFailedError):
            await (producer.complete_transaction("70:0") if complete else producer.prepare_transaction())
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.close()

    assert not any(request.committed for request in run(body).asked(END))


def test_what_a_transaction_failed_of_keeps_its_kind() -> None:
    """Only what may be fencing is told as such until it is known."""
    for code in (47, 90):
        assert type(abortable(KafkaError("x", code=code))) is InvalidProducerEpochError
    assert type(abortable(KafkaError("x", code=29))) is TransactionAbortableError


def test_a_defect_of_the_sender_before_init_transactions_ends_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would ever be sent: the transactional id is not taken from who has it."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x")
        monkeypatch.setattr("fencepost.client.producer.ready_batches.ReadyBatches.expire", broken)
        producer.sender.wake()
        await world.runtime.sleep_ms(1)
        with pytest.raises(FatalError, match="the sender failed"):
            await producer.init_transactions()
        await producer.close(0)

    assert run(body).asked(INIT) == []


def test_a_coordinator_that_cannot_tell_how_a_transaction_ended_proves_no_timeout() -> None:
    """DescribeTransactions comes with Kafka 3.0 (KIP-664); what was met with first stands."""
    broker = ScriptedBroker()
    del broker.offered[DESCRIBE]

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x")
        await producer.init_transactions()
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END].append(lambda *_: EndTxnResponse(error_code=47))
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert type(raised.value.__cause__) is InvalidProducerEpochError
        assert producer.metrics()["transaction_timed_out_total"] == 0
        await producer.close(0)

    run(body, broker)
