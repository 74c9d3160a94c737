"""The share consumer against a scripted broker: sessions, acknowledgements, and what becomes of both when things fail.

What the broker does is KIP-932's "Share sessions" and "Client programming interface".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fencepost.client.records import SharedRecord
from fencepost.client.share.fetched import take
from fencepost.client.share.session import Run, runs
from fencepost.client.types import TopicPartition
from fencepost.errors import (
    CorruptRecordError,
    InvalidRecordStateError,
    KafkaError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    UsageError,
)
from fencepost.protocol.messages import share_fetch
from fencepost.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatResponse,
)
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import put_at
from tests.unit.client.scripted import World, cut, run, topic_id
from tests.unit.client.scripted_consumer import HostedRuntime
from tests.unit.client.scripted_shares import (
    ACCEPT,
    PARTITION,
    REJECT,
    RELEASE,
    RENEW,
    STORAGE_ERROR,
    TOPIC,
    ShareBroker,
    polled,
    subscribed,
)


def test_neighbours_of_one_kind_are_said_together() -> None:
    assert runs({3: 1, 1: 1, 2: 1, 7: 2, 8: 3}) == [Run(1, 3, [1]), Run(7, 8, [2, 3])]
    assert runs({}) == []


def test_epochs_count_the_requests_of_a_session() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        for record in await polled(core):
            core.acknowledge(record)
        assert await core.commit() == {PARTITION: None}
        await core.close()

    run(main, broker)
    fetched = [request.share_session_epoch for request in broker.asked(78)]
    assert fetched == list(range(len(fetched)))
    assert [request.share_session_epoch for request in broker.asked(79)] == [len(fetched), -1]
    assert [len(request.topics) for request in broker.asked(78)][:1] == [1]
    assert not any(request.topics for request in broker.asked(78)[1:])
    assert broker.said == {0: ACCEPT, 1: ACCEPT}
    assert [request.member_epoch for request in broker.asked(76)][-1] == -1


def test_implicitly_nothing_is_accepted_before_the_next_poll_or_at_the_end() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1), (1, [b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world, explicit=False)
        await polled(core)
        assert broker.said == {}
        await polled(core)
        await core.poll(0)
        assert broker.said == {0: ACCEPT}
        await core.close()

    run(main, broker)
    assert broker.said == {0: ACCEPT, 1: ACCEPT}  # the third poll accepted it


def test_close_accepts_nothing_that_nobody_accepted() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world, explicit=False)
        await polled(core)
        await core.close()

    run(main, broker)
    assert broker.said == {}
    assert broker.asked(79)[-1].share_session_epoch == -1


def test_what_a_cancelled_poll_would_have_given_comes_with_the_next() -> None:
    broker = ShareBroker()

    async def main(world: World) -> None:
        core = await subscribed(world, explicit=False)
        await core.poll(200)
        waiting = asyncio.ensure_future(core.poll(10_000))
        await asyncio.sleep(0)
        broker.waiting = [(0, [b"a"], 1)]
        waiting.cancel()
        await asyncio.wait([waiting])
        cut_short = await core.hand_out(10_000)
        assert [record.value for record in cut_short.records] == [b"a"]
        assert await core.commit() == {}  # of what no call has returned, nothing is accepted
        assert [record.value for record in await core.poll(0)] == [b"a"]
        assert broker.said == {}

    run(main, broker)


def test_a_lost_answer_is_told_and_not_asked_again() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1), (0, [b"a", b"b"], 2)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        first, second = await polled(core)
        core.acknowledge(first)
        broker.scripts[79] = [cut]
        results = await core.commit()
        error = results[PARTITION]
        assert error is not None and error.may_have_taken_effect
        core.acknowledge(second)
        results = await core.commit()
        assert isinstance(results[PARTITION], InvalidRecordStateError)
        assert len(broker.asked(79)) == 1
        with pytest.raises(UsageError, match="not in hand"):
            core.acknowledge(second)
        again = await polled(core)
        assert [record.delivery_count for record in again] == [2, 2]
        assert core.metrics()["share_sessions_lost_total"] == 1
        assert core.metrics()["acknowledgements_error_total"] == 2

    run(main, broker)
    assert [request.share_session_epoch for request in broker.asked(78)].count(0) == 2


@pytest.mark.parametrize("code", [122, 123])
def test_a_session_that_is_gone_is_begun_anew(code: int) -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1), (0, [b"a"], 2)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        (record,) = await polled(core)
        core.acknowledge(record)
        broker.scripts[78] = [lambda version, request: share_fetch.ShareFetchResponse(error_code=code)]
        (again,) = await polled(core)
        assert again.delivery_count == 2
        with pytest.raises(UsageError, match="not in hand"):
            core.acknowledge(record)
        core.acknowledge(again)
        assert await core.commit() == {PARTITION: None}  # the poll has sent the other one
        assert broker.said == {0: ACCEPT}

    run(main, broker)


def test_a_lock_that_is_over_is_told_by_partition_and_to_the_callback() -> None:
    broker = ShareBroker()
    broker.waiting = [(5, [b"a", b"b"], 1)]
    broker.code = 121
    reported: list[tuple[Mapping[TopicPartition, list[int]], KafkaError | None]] = []

    async def main(world: World) -> None:
        core = await subscribed(world)
        core.set_acknowledgement_callback(lambda offsets, error: reported.append((offsets, error)))
        for record in await polled(core):
            core.acknowledge(record, REJECT)
        results = await core.commit()
        assert isinstance(results[PARTITION], InvalidRecordStateError)
        assert await core.commit() == {}

    run(main, broker)
    assert [(offsets, type(error)) for offsets, error in reported] == [({PARTITION: [5, 6]}, InvalidRecordStateError)]


def test_a_callback_that_raises_hides_no_other_outcome() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    def raises(offsets: Mapping[TopicPartition, list[int]], error: KafkaError | None) -> None:
        raise ZeroDivisionError

    async def main(world: World) -> None:
        core = await subscribed(world)
        for record in await polled(core):
            core.acknowledge(record)
            core.commit_async()
            await world.runtime.sleep_ms(1_000)
        core.set_acknowledgement_callback(raises)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await core.poll(0)
        assert await core.poll(0) == []  # both were told, each once

    run(main, broker)


def test_what_waited_longer_than_its_lock_is_not_handed_out() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b", b"c"], 1), (3, [b"d"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        (first,) = await core.poll(5_000, max_records=1)
        core.acknowledge(first)
        await world.runtime.sleep_ms(30_001)
        assert [record.offset for record in await polled(core)] == [3]
        assert core.metrics()["records_expired_total"] == 2

    run(main, broker)


def test_renewing_goes_by_itself_and_leaves_the_record_in_hand() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        first, second = await polled(core)
        core.acknowledge(first, RENEW)
        core.acknowledge(second)
        await core.poll(0)
        assert await core.commit() == {}  # the poll has sent both
        assert broker.said == {0: RENEW, 1: ACCEPT}
        core.acknowledge(first)
        assert await core.commit() == {PARTITION: None}

    run(main, broker)
    assert [request.is_renew_ack for request in broker.asked(79)] == [True, False]
    assert not any(request.is_renew_ack for request in broker.asked(78))
    assert broker.said == {0: ACCEPT, 1: ACCEPT}


def test_a_broker_that_cannot_renew() -> None:
    broker = ShareBroker()
    broker.offered |= {78: (1, 1), 79: (1, 1)}
    broker.waiting = [(0, [b"a"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        (record,) = await polled(core)
        core.acknowledge(record, RENEW)
        results = await core.commit()
        assert isinstance(results[PARTITION], UnsupportedVersionError)
        core.acknowledge(record)
        assert await core.commit() == {PARTITION: None}

    run(main, broker)


def test_a_fenced_member_joins_again_and_may_acknowledge_what_it_has() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        (record,) = await polled(core)
        broker.scripts[76] = [lambda version, request: ShareGroupHeartbeatResponse(error_code=110)]
        await world.runtime.sleep_ms(6_000)
        core.acknowledge(record)
        assert await core.commit() == {PARTITION: None}

    run(main, broker)
    assert [request.member_epoch for request in broker.asked(76)][:3] == [0, 1, 0]


def test_who_does_not_poll_leaves_until_the_next_poll() -> None:
    broker = ShareBroker()

    async def main(world: World) -> None:
        core = await subscribed(world, max_poll_interval_ms=20_000)
        await core.poll(1_000)
        await world.runtime.sleep_ms(60_000)
        assert [request.member_epoch for request in broker.asked(76)][-1] == -1
        assert core.assignment() == []
        await core.poll(1_000)
        assert core.assignment() == [PARTITION]

    run(main, broker)


def test_what_cannot_be_read_is_released_and_told_once() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a", b"b"], 1)]
    broker.damaged = True

    async def main(world: World) -> None:
        core = await subscribed(world)
        with pytest.raises(CorruptRecordError, match="offset 0 to 1"):
            await polled(core)
        await core.poll(0)
        await core.commit()
        assert broker.said == {0: RELEASE, 1: RELEASE}

    run(main, broker)


def test_a_damaged_batch_hides_nothing_behind_it_and_gaps_are_told() -> None:
    batches = []
    for first, values in ((0, [b"a", b"b"]), (2, [b"c"]), (5, [b"f", b"g"])):
        batch = encode_batch(values=values)
        put_at(batch, first, 0)
        batches.append(batch)
    batches[1][-1] ^= 1
    acquired = [
        share_fetch.AcquiredRecords(first_offset=1, last_offset=3, delivery_count=1),
        share_fetch.AcquiredRecords(first_offset=5, last_offset=5, delivery_count=4),
    ]
    taken = take(PARTITION, b"".join(map(bytes, batches)), acquired, check_crcs=True, max_batch_bytes=2**20)
    assert [(record.offset, record.value, record.delivery_count) for record in taken.records] == [
        (1, b"b", 1),
        (5, b"f", 4),
    ]
    assert (taken.gaps, taken.unreadable) == ([3], [2])
    assert taken.error is not None and taken.error.offset == 2


def test_refusals_are_raised_by_the_poll() -> None:
    broker = ShareBroker()
    refused = share_fetch.PartitionData(error_code=29, current_leader=share_fetch.LeaderIdAndEpoch())
    topics = [share_fetch.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=[refused])]
    broker.scripts[78] = [lambda version, request: share_fetch.ShareFetchResponse(responses=topics)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        with pytest.raises(TopicAuthorizationError):
            await polled(core)
        broker.scripts[76] = [lambda version, request: ShareGroupHeartbeatResponse(error_code=35)]
        await world.runtime.sleep_ms(6_000)
        with pytest.raises(UnsupportedVersionError, match="switched off"):
            await polled(core)

    run(main, broker)


def test_a_leader_that_moved_is_looked_for() -> None:
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1)]

    def moved(version: int, request: Any) -> Any:
        broker.leader = 2
        refused = share_fetch.PartitionData(error_code=6, current_leader=share_fetch.LeaderIdAndEpoch())
        topic = share_fetch.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=[refused])
        return share_fetch.ShareFetchResponse(responses=[topic])

    broker.scripts[78] = [moved]

    async def main(world: World) -> None:
        core = await subscribed(world)
        assert [record.value for record in await polled(core)] == [b"a"]
        assert isinstance(world.runtime, HostedRuntime)
        assert world.runtime.hosts[-1] == "broker2"

    run(main, broker)
    begun = [request for request in broker.asked(78) if request.share_session_epoch == 0]
    assert len(begun) == 2


def refused_partition(_: int, request: Any) -> Any:
    refused = share_fetch.PartitionData(error_code=STORAGE_ERROR, current_leader=share_fetch.LeaderIdAndEpoch())
    topic = share_fetch.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=[refused])
    return share_fetch.ShareFetchResponse(responses=[topic])


def refused_session(_: int, request: Any) -> Any:
    return share_fetch.ShareFetchResponse(error_code=STORAGE_ERROR)


@pytest.mark.parametrize(
    ("refusal", "what"),
    [(refused_partition, "share fetch of t-0"), (refused_session, "share session with broker 1")],
    ids=["partition", "session"],
)
def test_refusals_that_last_are_told_and_so_is_their_end(
    refusal: Callable[[int, Any], Any], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = ShareBroker()
    broker.waiting = [(0, [b"a"], 1)]

    async def main(world: World) -> None:
        core = await subscribed(world)
        until_ms, usual = world.runtime.now_ms() + 5_000, broker.answer_78

        def answer(version: int, request: Any) -> Any:
            return (refusal if world.runtime.now_ms() < until_ms else usual)(version, request)

        broker.answer_78 = answer  # type: ignore[method-assign]
        found: list[SharedRecord] = []
        while not found:
            found = await core.poll(200)
            assert world.runtime.now_ms() < until_ms + 10_000
        assert [record.value for record in found] == [b"a"]

    run(main, broker)
    reported = [
        (log_record.levelname, log_record.getMessage())
        for log_record in caplog.records
        if log_record.getMessage().startswith(what)
    ]
    assert [level for level, _ in reported] == ["WARNING", "INFO"], caplog.text
    assert "KAFKA_STORAGE_ERROR (56)" in reported[0][1]
