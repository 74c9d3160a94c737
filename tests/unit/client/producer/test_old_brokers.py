"""A transactional producer on a broker like Kafka before 2.5 (KIP-360, KIP-447): what goes on, what is told by name."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.errors import (
    FencedOrTimedOutError,
    ProducerFencedError,
    TransactionCommitFailedError,
    TransactionCommittedError,
    UnsupportedVersionError,
)
from fencepost.protocol.messages.end_txn import EndTxnResponse
from tests.unit.client.scripted import ScriptedBroker, World, run

INIT, END, OFFSETS = 22, 26, 28


async def started(world: World, **settings: Any) -> ProducerCore:
    producer = world.producer(transactional_id="x", **settings)
    await producer.init_transactions()
    return producer


def old_broker() -> ScriptedBroker:
    """As Kafka before 2.5: no epoch for who has one already (KIP-360), no look at members (KIP-447)."""
    broker = ScriptedBroker(transaction_version=0)
    broker.offered[INIT] = broker.offered[OFFSETS] = (0, 2)
    return broker


def test_an_abort_keeps_the_epoch_and_the_sequences() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        for commit in (True, False, True):
            producer.begin_transaction()
            producer.append("t", b"v")
            await producer.flush()
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.close()

    broker = run(body, old_broker())
    assert broker.batches == [(70, 0, 0, 1), (70, 0, 1, 1), (70, 0, 2, 1)]
    assert len(broker.asked(INIT)) == 1, "a plain one would take the id from whoever took it over meanwhile"


def test_a_refused_batch_leaves_no_gap_behind_an_abort() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        world.broker.refuse_produce(29)
        producer.append("t", b"refused")
        with pytest.raises(TransactionCommitFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body, old_broker())
    assert broker.batches == [(70, 0, 0, 1), (70, 0, 0, 1)]


def test_a_batch_of_unknown_fate_ends_the_producer_with_the_abort() -> None:
    async def body(world: World) -> None:
        producer = await started(world, delivery_timeout_ms=2_000, request_timeout_ms=500)
        producer.begin_transaction()
        world.broker.scripts[0] += [lambda _, __: None] * 20
        producer.append("t", b"v")
        with pytest.raises(TransactionCommitFailedError):
            await producer.commit_transaction()
        with pytest.raises(UnsupportedVersionError, match=r"InitProducerId.*Kafka has it since 2\.5.*create a new one"):
            await producer.abort_transaction()
        with pytest.raises(UnsupportedVersionError):
            producer.begin_transaction()
        await producer.close(0)

    broker = run(body, old_broker())
    assert [request.committed for request in broker.asked(END)] == [False], (
        "nothing waits for the transaction's timeout"
    )


@pytest.mark.parametrize("open_ms", [59_000, 60_000])
def test_a_timeout_is_not_told_from_a_takeover(open_ms: int) -> None:
    """But by the time: a transaction that was not open for its timeout has not timed out."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.flush()
        await world.runtime.sleep_ms(open_ms)
        world.broker.scripts[END].append(lambda _, __: EndTxnResponse(error_code=47))
        if open_ms < 60_000:
            with pytest.raises(ProducerFencedError, match="took over: "):
                await producer.commit_transaction()
        else:
            with pytest.raises(FencedOrTimedOutError, match=r"timed out, or another producer .* make a new producer"):
                await producer.commit_transaction()
            with pytest.raises(FencedOrTimedOutError):
                producer.begin_transaction()
        await producer.close(0)

    run(body, old_broker())


def test_offsets_are_given_with_the_name_of_the_group() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        with pytest.raises(UnsupportedVersionError, match=r"TxnOffsetCommit v3.*2\.5.*the group's name"):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, GroupMetadata("g", 3, "m"))
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body, old_broker())
    assert len(broker.asked(OFFSETS)) == 1


def test_a_commit_without_an_answer_is_found_to_have_taken_effect() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=1_000)
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.flush()
        world.broker.scripts[END] += [lambda _, __: None, lambda _, __: EndTxnResponse(error_code=48)]
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert raised.value.outcome_unknown
        with pytest.raises(TransactionCommittedError):
            await producer.abort_transaction()
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body, old_broker())
    assert broker.batches == [(70, 0, 0, 1), (70, 0, 1, 1)]
