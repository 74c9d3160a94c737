"""A commit without an answer: it can be repeated, and an abort that finds it done says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.errors import KafkaTimeoutError, TransactionCommitFailedError, TransactionCommittedError
from fencepost.protocol.messages.end_txn import EndTxnResponse
from tests.unit.client.producer.test_transactions import END, INIT, refuse_end, started
from tests.unit.client.scripted import World, cut, run


def test_an_unanswered_commit_can_be_repeated() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert raised.value.outcome_unknown
        assert isinstance(raised.value.__cause__, KafkaTimeoutError)
        world.broker.scripts[END].clear()
        await producer.commit_transaction()
        await producer.close()

    assert {(request.producer_epoch, request.committed) for request in run(body).asked(END)} == {(0, True)}


def test_an_abort_that_finds_the_unanswered_commit_says_so() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(TransactionCommitFailedError):
            await producer.commit_transaction()
        world.broker.scripts[END].clear()
        refuse_end(world.broker, 48)  # what Kafka says to the opposite result
        with pytest.raises(TransactionCommittedError):
            await producer.abort_transaction()
        producer.begin_transaction()
        await producer.commit_transaction()
        await producer.close()

    run(body)


@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_a_retry_that_is_refused_says_nothing_about_the_attempt_before(code: int) -> None:
    """51: the markers of the commit that was not answered are being written, and the disk is full, for example."""

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut, *[lambda *_: EndTxnResponse(error_code=code)] * 200]
        with pytest.raises(TransactionCommitFailedError, match="not known") as raised:
            await producer.commit_transaction()
        assert raised.value.outcome_unknown
        world.broker.scripts[END].clear()
        refuse_end(world.broker, 48)
        with pytest.raises(TransactionCommittedError):
            await producer.abort_transaction()
        await producer.close()

    assert len(run(body).asked(END)) > 3


def test_an_abort_says_so_too_when_its_question_was_not_answered_at_first() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(TransactionCommitFailedError):
            await producer.commit_transaction()
        world.broker.scripts[END].clear()
        refuse_end(world.broker, 48)
        world.broker.scripts[INIT] += [cut] * 200  # who asks now is not told whether another producer took over
        with pytest.raises(KafkaTimeoutError):
            await producer.abort_transaction()
        world.broker.scripts[INIT].clear()
        with pytest.raises(TransactionCommittedError):
            await producer.abort_transaction()
        producer.begin_transaction()
        await producer.commit_transaction()
        await producer.close()

    run(body)


FOUND_COMMITTED = [lambda *_: None, lambda *_: EndTxnResponse(error_code=48)]
"""A commit that is not answered, and what Kafka says to the abort when it had taken effect."""


async def block(world: World, producer: ProducerCore, answers: Sequence[Any], *, commits: bool = False) -> None:
    async with TransactionBlock(producer, None):
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[END] += answers
        if commits:
            await producer.commit_transaction()


def test_a_block_whose_commit_is_found_to_have_taken_effect_ends_well() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=1_000, request_timeout_ms=2_000)
        await block(world, producer, FOUND_COMMITTED)
        await block(world, producer, [])
        await producer.close()

    run(body)


def test_a_commit_within_a_block_that_is_found_to_have_taken_effect_is_told() -> None:
    """The application was told that it is unknown, and may have left out what belongs to the block."""

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=1_000, request_timeout_ms=2_000)
        with pytest.raises(TransactionCommittedError):
            await block(world, producer, FOUND_COMMITTED, commits=True)
        await producer.close(0)

    run(body)


@pytest.mark.parametrize("silent_ms", [0, 5_000])
def test_an_abort_in_the_background_ends_before_the_next_block(silent_ms: int) -> None:
    """It is cut short if it still runs, and has nothing left to do if it does not."""

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=1_000, request_timeout_ms=2_000)
        with pytest.raises(TransactionCommitFailedError):
            await block(world, producer, [lambda *_: None] * 3)
        owed = producer.background_abort
        assert owed is not None
        running = owed._task
        assert running is not None
        world.broker.scripts[END][:] = FOUND_COMMITTED[1:]
        await world.runtime.sleep_ms(silent_ms)
        assert owed.is_running is (silent_ms == 0)
        with pytest.raises(TransactionCommittedError):
            await asyncio.wait_for(block(world, producer, []), 60)
        assert running.done()
        assert producer.metrics()["transaction_begin_total"] == 1
        await producer.close(0)

    run(body)
