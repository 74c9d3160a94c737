"""Warnings about refusals that last: a client that repeats a request names the reason."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import EARLIEST
from fencepost.protocol import fetch_wire
from fencepost.protocol.messages import describe_transactions, join_group, list_offsets
from fencepost.protocol.messages import offset_for_leader_epoch as epochs
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from fencepost.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.messages.metadata import MetadataResponse
from tests.unit.client.scripted import ScriptedBroker, World, run, topic_id
from tests.unit.client.scripted_consumer import (
    PARTITION,
    TOPIC,
    ScriptedConsumerBroker,
    consumer_of,
    offsets_answer,
    values_of,
)

STORAGE_ERROR, NOT_LEADER, NOT_AVAILABLE, UNKNOWN_MEMBER, LOADING, UNRELEASED = 56, 6, 15, 25, 14, 111
LASTS_MS = 5_000


def reported(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.levelno >= logging.INFO]


async def refused_for_a_while(
    world: World, api_key: int, refusal: Callable[[int, Any], Any], work: Callable[[], Awaitable[Any]]
) -> Any:
    """The API is refused for five seconds from now on; what the work gives in the end."""
    until_ms, usual = world.runtime.now_ms() + LASTS_MS, getattr(world.broker, f"answer_{api_key}")

    def answer(version: int, request: Any) -> Any:
        return (refusal if world.runtime.now_ms() < until_ms else usual)(version, request)

    setattr(world.broker, f"answer_{api_key}", answer)
    return await work()


def expect(caplog: pytest.LogCaptureFixture, what: str, reason: str) -> None:
    """One warning that names both, and a word when it is over."""
    lines = [line for line in reported(caplog) if line[1].startswith(what)]
    assert [level for level, _ in lines] == ["WARNING", "INFO"], reported(caplog)
    assert reason in lines[0][1]
    assert "works again after" in lines[1][1]


def no_offsets(version: int, request: Any) -> list_offsets.ListOffsetsResponse:
    return offsets_answer(request, lambda _: {"error_code": STORAGE_ERROR})


def no_records(version: int, request: fetch_wire.FetchRequest) -> fetch_wire.FetchResponse:
    topics = [
        fetch_wire.FetchTopicResult(
            topic.topic,
            topic.topic_id,
            [
                fetch_wire.FetchPartitionResult(partition.partition, error_code=STORAGE_ERROR)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return fetch_wire.FetchResponse(topics)


def with_records() -> ScriptedConsumerBroker:
    broker = ScriptedConsumerBroker()
    broker.log = [(0, 0, [b"a", b"b"])]
    return broker


def test_offsets_that_an_administrator_asks_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        admin = AdminCore(world.cluster())
        await refused_for_a_while(world, 2, no_offsets, lambda: admin.list_offsets({PARTITION: EARLIEST}))
        await admin.close()

    run(body, with_records())
    expect(caplog, "list offsets of t-0", "KAFKA_STORAGE_ERROR (56)")


def test_offsets_that_a_broker_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        admin = AdminCore(world.cluster())
        nothing = list_offsets.ListOffsetsResponse(topics=[])
        await refused_for_a_while(world, 2, lambda *_: nothing, lambda: admin.list_offsets({PARTITION: EARLIEST}))
        await admin.close()

    run(body, with_records())
    expect(caplog, "list offsets of t-0", "left it out of its answer")


@pytest.mark.parametrize(
    ("api_key", "refusal", "what"),
    [(2, no_offsets, "list offsets of t-0"), (1, no_records, "fetch of t-0")],
    ids=["where to begin", "records"],
)
def test_a_consumer_that_gets_nothing(
    caplog: pytest.LogCaptureFixture, api_key: int, refusal: Callable[[int, Any], Any], what: str
) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        consumer = consumer_of(world)
        await consumer.assign([PARTITION])
        got = await refused_for_a_while(world, api_key, refusal, lambda: values_of(consumer, 2))
        assert got == [b"a", b"b"]
        await consumer.close()

    run(body, with_records())
    expect(caplog, what, "KAFKA_STORAGE_ERROR (56)")


def test_a_range_that_is_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        cluster = world.cluster()

        async def read() -> int:
            return sum(
                [len(piece.columns) async for piece in fetch_range(cluster, PARTITION, 0, 2, FetchSettings(), 30_000)]
            )

        assert await refused_for_a_while(world, 1, no_records, read) == 2
        cluster.close()

    run(body, with_records())
    expect(caplog, "fetch of t-0", "KAFKA_STORAGE_ERROR (56)")


def test_a_broker_that_does_not_answer_fetches(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        consumer = consumer_of(world, request_timeout_ms=1_000)
        await consumer.assign([PARTITION])
        world.broker.scripts[1] += [lambda *_: None] * 2
        assert await values_of(consumer, 2) == [b"a", b"b"]
        await consumer.close()

    run(body, SilentOnce())
    expect(caplog, "fetch from broker 1", "Fetch")


def test_a_fetch_that_the_consumer_itself_cuts_short_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        consumer = consumer_of(world)
        await consumer.assign([PARTITION])
        await values_of(consumer, 2)
        assert await consumer.poll(0) == []  # the next fetch is on its way
        await consumer.close()
        await world.runtime.sleep_ms(1_000)

    run(body, with_records())
    assert reported(caplog) == []


class SilentOnce(ScriptedConsumerBroker):
    """Does not answer the fetches that are scripted with None."""

    def __init__(self) -> None:
        super().__init__()
        self.log = [(0, 0, [b"a", b"b"])]

    def handle(self, api_key: int, version: int, body: memoryview) -> bytes | None:
        if api_key == 1 and self.scripts[1]:
            self.scripts[1].pop(0)
            return None
        return super().handle(api_key, version, body)


def test_a_position_that_cannot_be_checked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def not_leader(version: int, request: Any) -> epochs.OffsetForLeaderEpochResponse:
        topics = [
            epochs.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    epochs.EpochEndOffset(partition=partition.partition, error_code=NOT_LEADER)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return epochs.OffsetForLeaderEpochResponse(topics=topics)

    async def body(world: World) -> None:
        assert isinstance(world.broker, ScriptedConsumerBroker)
        consumer = consumer_of(world)
        await consumer.assign([PARTITION])
        assert await values_of(consumer, 2) == [b"a", b"b"]
        world.broker.leader_epoch = 1
        world.broker.log.append((2, 1, [b"c"]))
        assert await refused_for_a_while(world, 23, not_leader, lambda: values_of(consumer, 1)) == [b"c"]
        await consumer.close()

    run(body, with_records())
    expect(caplog, "leader epochs of positions", "NOT_LEADER_OR_FOLLOWER (6)")


def test_a_group_that_does_not_let_one_join(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        consumer = consumer_of(world, group_id="g", group_protocol="classic")
        await consumer.subscribe([TOPIC])
        unknown_member = join_group.JoinGroupResponse(error_code=UNKNOWN_MEMBER)
        got = await refused_for_a_while(world, 11, lambda *_: unknown_member, lambda: values_of(consumer, 2))
        assert got == [b"a", b"b"]
        await consumer.close()

    run(body, with_records())
    expect(caplog, "group 'g'", "UNKNOWN_MEMBER_ID (25)")


def test_a_topic_whose_partitions_get_no_leader(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        broker = world.broker
        broker.offered[19] = (2, 7)
        response = CreateTopicsResponse(topics=[CreatableTopicResult(name="new", topic_id=topic_id("new"))])
        broker.scripts[19].append(lambda *_: response)
        usual = broker.answer_3

        def leaderless(version: int, request: Any) -> MetadataResponse:
            found: MetadataResponse = usual(version, request)
            for topic in found.topics:
                for partition in topic.partitions:
                    partition.leader_id = -1
            return found

        admin = AdminCore(world.cluster())
        await refused_for_a_while(world, 3, leaderless, lambda: admin.create_topic("new", 1))
        await admin.close()

    run(body, ScriptedBroker())
    expect(caplog, "leaders of topic 'new'", "LEADER_NOT_AVAILABLE (5)")


@pytest.mark.parametrize("code", [NOT_AVAILABLE, LOADING])
def test_a_transaction_that_is_asked_about(caplog: pytest.LogCaptureFixture, code: int) -> None:
    caplog.set_level(logging.INFO)

    def refused(version: int, request: Any) -> describe_transactions.DescribeTransactionsResponse:
        states = [
            describe_transactions.TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in request.transactional_ids
        ]
        return describe_transactions.DescribeTransactionsResponse(transaction_states=states)

    async def body(world: World) -> None:
        admin = AdminCore(world.cluster())
        await refused_for_a_while(world, 65, refused, lambda: admin.describe_transactions(["x"]))
        await admin.close()

    run(body, ScriptedBroker())
    expect(caplog, "DescribeTransactions", f"({code})")


def test_another_members_session_that_has_to_end_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def body(world: World) -> None:
        consumer = consumer_of(world, group_id="g", group_protocol="consumer", group_instance_id="i")
        await consumer.subscribe([TOPIC])
        held = ConsumerGroupHeartbeatResponse(error_code=UNRELEASED)
        got = await refused_for_a_while(world, 68, lambda *_: held, lambda: values_of(consumer, 2))
        assert got == [b"a", b"b"]
        await consumer.close()

    run(body, with_records())
    expect(caplog, "group 'g'", "UNRELEASED_INSTANCE_ID (111)")
