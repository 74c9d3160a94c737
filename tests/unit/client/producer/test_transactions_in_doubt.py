"""Errors of a transactional producer when a timeout looks like a takeover, and when offsets stay unanswered."""

from __future__ import annotations

import pytest

from fencepost.client.types import TopicPartition
from fencepost.errors import AbortableError, FencedOrTimedOutError, KafkaError, ProducerFencedError, RetriableError
from tests.unit.client.producer.test_transactions import (
    ADD_OFFSETS,
    OFFSETS,
    answer_init,
    refuse_end,
    started,
)
from tests.unit.client.scripted import ScriptedBroker, World, run

DESCRIBE = 65
OVER = ("CompleteAbort", "PrepareAbort", "PrepareEpochFence")


@pytest.mark.parametrize(
    ("level", "open_ms", "says", "expected"),
    [
        *((1, 60_000, (state, 1), FencedOrTimedOutError) for state in OVER),  # as a timeout leaves it
        (0, 90_000, ("CompleteAbort", 1), FencedOrTimedOutError),
        (1, 60_000, None, FencedOrTimedOutError),  # brokers before 3.0 do not describe transactions
        (1, 60_000, ("Empty", 2), ProducerFencedError),  # somebody has claimed the id
        (1, 60_000, ("Ongoing", 2), ProducerFencedError),
        (1, 60_000, ("CompleteAbort", 2), ProducerFencedError),  # and has aborted a transaction since
        (1, 60_000, ("CompleteCommit", 1), ProducerFencedError),
        (1, 59_999, ("CompleteAbort", 1), ProducerFencedError),  # it was not open for its timeout
        (2, 90_000, ("CompleteAbort", 1), ProducerFencedError),  # version 2 tells the two apart
    ],
)
@pytest.mark.parametrize("call", ["commit", "abort", "send"])
def test_below_version_2_time_and_coordinator_tell_a_timeout_from_a_takeover(
    level: int, open_ms: int, says: tuple[str, int] | None, expected: type[KafkaError], call: str
) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.flush()
        await world.runtime.sleep_ms(open_ms)
        if says is not None:
            world.broker.scripts[DESCRIBE] += [lambda _, request: world.broker.described(request, *says)] * 9
        refuse_end(world.broker, 47)
        answer_init(world.broker, 90)
        if call == "send":
            world.broker.refuse_produce(47)
            await world.outcome(producer.append("t", b"w"))
        with pytest.raises(expected):
            await (producer.abort_transaction() if call == "abort" else producer.commit_transaction())
        with pytest.raises(expected):
            producer.begin_transaction()
        assert producer.metrics()["producer_fenced_total"] == (expected is ProducerFencedError)
        await producer.close(0)

    broker = ScriptedBroker(transaction_version=level)
    if says is None:
        broker.offered = {key: at for key, at in broker.offered.items() if key != DESCRIBE}
    run(body, broker)


@pytest.mark.parametrize(("level", "unanswered"), [(2, OFFSETS), (1, ADD_OFFSETS), (1, OFFSETS)])
def test_offsets_that_are_not_answered_spoil_the_transaction(level: int, unanswered: int) -> None:
    """They may be missing. The same call again cannot help, so the error is not a retriable one."""

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=1_000, request_timeout_ms=300)
        producer.begin_transaction()
        world.broker.scripts[unanswered] += [lambda _, __: None] * 50
        for _ in range(2):
            with pytest.raises(AbortableError) as raised:
                await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
            assert not isinstance(raised.value, RetriableError)
        world.broker.scripts[unanswered].clear()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
        await producer.commit_transaction()
        await producer.close()

    run(body, ScriptedBroker(transaction_version=level))
