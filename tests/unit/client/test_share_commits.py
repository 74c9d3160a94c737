"""`commit()` of a share consumer tells of the acknowledgements that it has sent itself, and of no others."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.errors import (
    InvalidRecordStateError,
    KafkaTimeoutError,
)
from tests.unit.client.scripted import World, run
from tests.unit.client.scripted_shares import (
    PARTITION,
    RENEW,
    ShareBroker,
    finding_text,
    polled,
    subscribed,
)


def test_a_commit_tells_nothing_of_what_an_earlier_poll_has_sent() -> None:
    """Java 4.4.0 on Apache Kafka 4.3.1 does the same: the callback has the error, commitSync has none."""
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        reported = finding_text(core)
        (record,) = await polled(core)
        core.acknowledge(record)
        broker.code, broker.waiting = 121, [(0, [b"a"], 2)]
        (again,) = await polled(core)
        assert again.delivery_count == 2
        broker.code = 0
        core.acknowledge(again)
        assert await core.commit() == {PARTITION: None}
        assert reported == [([0], InvalidRecordStateError), ([0], None)]

    run(main, broker)


def test_a_commit_tells_nothing_of_an_earlier_commit_async() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        reported = finding_text(core)
        first, second = await polled(core)
        broker.code = 121
        core.acknowledge(first)
        core.commit_async()
        await world.runtime.sleep_ms(100)
        broker.code = 0
        core.acknowledge(second)
        assert await core.commit() == {PARTITION: None}
        assert reported == [([0], InvalidRecordStateError), ([1], None)]

    run(main, broker)


def test_a_commit_waits_for_a_commit_async_that_is_not_answered_and_tells_only_of_its_own() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        reported = finding_text(core)
        first, second = await polled(core)
        codes = iter([121, 0])
        answer = broker.answer_79

        def answered(version: int, request: Any) -> Any:
            broker.code = next(codes)
            return answer(version, request)

        broker.scripts[79] = [answered, answered]
        core.acknowledge(first)
        core.commit_async()
        core.acknowledge(second)
        assert await core.commit() == {PARTITION: None}
        assert reported == [([0], InvalidRecordStateError), ([1], None)]

    run(main, broker)


def test_a_renewal_that_failed_is_not_told_of_a_later_accept() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        first, second = await polled(core)
        core.acknowledge(first, RENEW)
        core.acknowledge(second)
        broker.code = 121
        refused = await core.commit()
        assert isinstance(refused[PARTITION], InvalidRecordStateError)
        broker.code = 0
        core.acknowledge(first)
        assert await core.commit() == {PARTITION: None}

    run(main, broker)


def test_a_commit_whose_time_was_over_leaves_its_outcome_to_the_callback() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        reported = finding_text(core)
        first, second = await polled(core)
        core.acknowledge(first)
        broker.code = 121
        with pytest.raises(KafkaTimeoutError) as late:
            await core.commit(timeout_ms=0)
        assert late.value.outcome_unknown
        await world.runtime.sleep_ms(100)
        broker.code = 0
        core.acknowledge(second)
        assert await core.commit() == {PARTITION: None}
        assert reported == [([0], InvalidRecordStateError), ([1], None)]

    run(main, broker)
