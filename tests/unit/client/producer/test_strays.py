"""Late requests of a finished transaction, which must not affect the next transaction.

Below transaction.version 2 both transactions have the same epoch, unless the producer takes another one.
"""

from __future__ import annotations

import asyncio

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import TopicPartition
from fencepost.errors import TransactionAbortableError, TransactionCommitFailedError
from tests.unit.client.producer.test_transactions import ADD_OFFSETS, ADD_PARTITIONS, END, INIT, OFFSETS, started
from tests.unit.client.scripted import ScriptedBroker, World, cut, run


async def transaction(producer: ProducerCore, *, records: bool = True) -> None:
    producer.begin_transaction()
    if records:
        producer.append("t", b"v")
    await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
    await producer.commit_transaction()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("lost", [ADD_PARTITIONS, ADD_OFFSETS, OFFSETS, END])
def test_after_an_unanswered_request_the_next_transaction_has_an_epoch_of_its_own(
    lost: int, records: bool, level: int
) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        world.broker.scripts[lost].append(cut)
        await transaction(producer)
        for _ in range(3):
            await transaction(producer, records=records)
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=level))
    assert [request.producer_epoch for request in broker.asked(END)] == [0, *[0] * (lost == END), 1, 1, 1]
    assert [(request.producer_id, request.producer_epoch) for request in broker.asked(INIT)] == [(-1, -1), (70, 0)]
    for api_key in (ADD_OFFSETS, OFFSETS):
        assert [request.producer_epoch for request in broker.asked(api_key)] == [0, *[0] * (lost == api_key), 1, 1, 1]
    assert broker.batches == [(70, 0, 0, 1), *[(70, 1, sequence, 1) for sequence in range(3) if records]]


@pytest.mark.parametrize(("level", "epochs"), [(0, [0, 0]), (1, [0, 0]), (2, [0, 1])])
def test_where_everything_was_answered_nothing_is_asked(level: int, epochs: list[int]) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        await transaction(producer)
        await transaction(producer)
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=level))
    assert [request.producer_epoch for request in broker.asked(END)] == epochs
    assert len(broker.asked(INIT)) == 1


def test_a_cancelled_commit_may_have_left_one() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END].append(lambda _, __: None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.commit_transaction()
        await producer.commit_transaction()
        await transaction(producer)
        await producer.close()

    *before, last = (request.producer_epoch for request in run(body, ScriptedBroker(transaction_version=1)).asked(END))
    assert (set(before), last) == ({0}, 1)


def test_until_the_next_epoch_is_there_nothing_is_enlisted() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2_000)
        world.broker.scripts[END].append(cut)
        await transaction(producer)
        world.broker.scripts[INIT] += [cut] * 200
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match="time is up"):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 6}, "g")
        with pytest.raises(TransactionCommitFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed.__cause__, TransactionAbortableError)
        await producer.abort_transaction()
        world.broker.scripts[INIT].clear()
        await transaction(producer)
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=1))
    assert [request.producer_epoch for request in broker.asked(END)] == [0, 0, 1]
    assert broker.batches == [(70, 0, 0, 1), (70, 1, 0, 1)]


def test_before_kafka_2_5_the_epoch_stays() -> None:
    async def body(world: World) -> None:
        world.broker.offered[INIT] = (0, 1)
        producer = await started(world)
        world.broker.scripts[END].append(cut)
        await transaction(producer)
        await transaction(producer)
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=0))
    assert [request.producer_epoch for request in broker.asked(END)] == [0, 0, 0]
    assert broker.batches == [(70, 0, 0, 1), (70, 0, 1, 1)]
