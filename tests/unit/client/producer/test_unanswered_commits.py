"""A commit without an answer: it can be repeated, and an abort that finds it done says so."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.errors import CommitFailedError, KafkaTimeoutError, TransactionCommittedError
from tests.unit.client.producer.test_transactions import END, INIT, refuse_end, started
from tests.unit.client.scripted import CutConnection, World, run


def test_an_unanswered_commit_can_be_repeated() -> None:
    def cut(version: int, request: Any) -> Any:
        raise CutConnection

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.fate(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(CommitFailedError) as raised:
            await producer.commit_transaction()
        assert raised.value.outcome_unknown
        assert isinstance(raised.value.__cause__, KafkaTimeoutError)
        world.broker.scripts[END].clear()
        await producer.commit_transaction()
        await producer.close()

    assert {(one.producer_epoch, one.committed) for one in run(body).asked(END)} == {(0, True)}


def test_an_abort_that_finds_the_unanswered_commit_says_so() -> None:
    def cut(version: int, request: Any) -> Any:
        raise CutConnection

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.fate(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(CommitFailedError):
            await producer.commit_transaction()
        world.broker.scripts[END].clear()
        refuse_end(world.broker, 48)  # what Kafka says to the opposite result
        with pytest.raises(TransactionCommittedError):
            await producer.abort_transaction()
        producer.begin_transaction()
        await producer.commit_transaction()
        await producer.close()

    run(body)


def test_an_abort_says_so_too_when_its_question_was_not_answered_at_first() -> None:
    def cut(version: int, request: Any) -> Any:
        raise CutConnection

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2000)
        producer.begin_transaction()
        await world.fate(producer.append("t", b"v"))
        world.broker.scripts[END] += [cut] * 200
        with pytest.raises(CommitFailedError):
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
