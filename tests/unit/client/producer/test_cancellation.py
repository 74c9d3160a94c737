"""A transactional call is cancelled at each of its suspensions: what follows is never wrong about what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.client.producer.transaction_states import ProducerTxnState
from fencepost.client.types import TopicPartition
from fencepost.errors import TransactionAbortableError, TransactionCommitFailedError, TransactionCommittedError
from fencepost.protocol.messages.end_txn import EndTxnResponse
from tests.unit.client.scripted import World, run

MOST_STEPS = 60
PRODUCE, END = 0, 26


class Coordinator:
    """Ends each epoch's transaction once; the other result for the same epoch is refused with 48, as Kafka does."""

    def __init__(self) -> None:
        self.ended: dict[int, bool] = {}

    def answer(self, version: int, request: Any) -> Any:
        known = self.ended.setdefault(request.producer_epoch, request.committed)
        if known is not request.committed:
            return EndTxnResponse(error_code=48)
        return EndTxnResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)


async def cancelled_after(steps: int, call: Coroutine[Any, Any, None]) -> bool:
    """Cancel the call after `steps` turns of the loop. Return false if it had finished."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def try_each_step(body: Callable[[World, ProducerCore, Coordinator, int], Coroutine[Any, Any, bool]]) -> None:
    """Run `body` with a cancellation after 0, 1, 2 ... steps, until the call finishes before it is cancelled."""
    for steps in range(MOST_STEPS):
        more: list[bool] = []

        async def scenario(world: World, steps: int = steps, more: list[bool] = more) -> None:
            coordinator = Coordinator()
            world.broker.answer_26 = coordinator.answer  # type: ignore[method-assign]
            producer = world.producer(transactional_id="x")
            await producer.init_transactions()
            producer.begin_transaction()
            for number in range(3):
                producer.append("t", b"%d" % number)
            more.append(await body(world, producer, coordinator, steps))
            await producer.close(0)

        broker = run(scenario)
        keys = [key for key, _, _ in broker.requests]
        if END in keys and any(request.committed for request in broker.asked(END)):
            assert sum(count for *_, count in broker.batches) == 3
            assert max(n for n, key in enumerate(keys) if key == PRODUCE) < keys.index(END), "records before the commit"
        if not more[0]:
            assert steps > 2, "it was cancelled in the middle as well"
            return
    pytest.fail("the call never finished")


def test_a_cancelled_commit_can_be_repeated() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        cut = await cancelled_after(steps, producer.commit_transaction())
        if cut:
            if steps == 0:
                return True  # it never began, nothing was asked for
            await producer.commit_transaction()
        assert coordinator.ended == {0: True}
        return cut

    try_each_step(body)


def test_a_cancelled_completion_can_be_repeated() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        stored = await producer.prepare_transaction()
        cut = await cancelled_after(steps, producer.complete_transaction(stored))  # type: ignore[arg-type]
        if cut:
            assert await producer.complete_transaction(stored) is True
        assert await producer.complete_transaction(stored) is True
        assert coordinator.ended == {0: True}
        return cut

    try_each_step(body)


def test_an_abort_after_a_cancelled_commit_tells_the_truth() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        cut = await cancelled_after(steps, producer.commit_transaction())
        if cut:
            try:
                await producer.abort_transaction()
                was_committed = False
            except TransactionCommittedError:
                was_committed = True
            assert coordinator.ended.get(0, False) is was_committed
        return cut

    try_each_step(body)


def test_a_close_after_a_cancelled_commit_leaves_nothing_open_that_is_surely_not_committed() -> None:
    """Committed readers would wait for the transaction until its timeout."""

    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        cut = await cancelled_after(steps, producer.commit_transaction())
        await producer.close()
        assert not world.broker.batches or 0 in coordinator.ended
        assert len(world.broker.asked(END)) <= 1, "no abort after a commit"
        return cut

    try_each_step(body)


def test_a_close_leaves_a_prepared_transaction_whose_completion_was_cancelled() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        stored = await producer.prepare_transaction()
        cut = await cancelled_after(steps, producer.complete_transaction(stored))  # type: ignore[arg-type]
        await producer.close()
        assert coordinator.ended in ({}, {0: True})
        return cut

    try_each_step(body)


def test_a_cancelled_abort_can_be_repeated() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        await producer.flush()
        cut = await cancelled_after(steps, producer.abort_transaction())
        if cut:
            await producer.abort_transaction()
        assert coordinator.ended == {0: False}
        producer.begin_transaction()
        return cut

    try_each_step(body)


def test_offsets_whose_commit_was_cancelled_spoil_the_transaction() -> None:
    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        call = producer.send_offsets_to_transaction({TopicPartition("in", 0): 7}, "g")
        cut = await cancelled_after(steps, call)
        if cut and steps > 0:
            with pytest.raises(TransactionCommitFailedError) as raised:
                await producer.commit_transaction()
            assert isinstance(raised.value.__cause__, TransactionAbortableError)
            await producer.abort_transaction()
            assert coordinator.ended.get(0, False) is False
        return cut

    try_each_step(body)


def test_a_cancelled_init_can_be_repeated() -> None:
    finished = []
    for steps in range(MOST_STEPS):

        async def body(world: World, steps: int = steps) -> None:
            producer = world.producer(transactional_id="x")

            async def init() -> None:
                await producer.init_transactions()

            cut = await cancelled_after(steps, init())
            if cut:
                await producer.init_transactions()
            producer.begin_transaction()
            finished.append(not cut)
            await producer.close(0)

        run(body)
        if finished[-1]:
            break
    assert finished[-1]
    assert len(finished) > 4


def test_a_cancellation_gets_through_the_transaction_block() -> None:
    """Check that the cancelled task ends as cancelled, whatever the abort finds, and that the producer can go on."""

    async def body(world: World, producer: ProducerCore, coordinator: Coordinator, steps: int) -> bool:
        async def block() -> None:
            async with TransactionBlock(producer, None):
                for number in range(3):
                    producer.append("t", b"%d" % number)

        await producer.abort_transaction()
        cut = await cancelled_after(steps, block())
        assert cut or True in coordinator.ended.values(), "a block that was not cancelled has committed"
        producer.begin_transaction()
        assert producer.transactions is not None
        assert producer.transactions.state is ProducerTxnState.IN_TRANSACTION
        return cut

    try_each_step(body)
