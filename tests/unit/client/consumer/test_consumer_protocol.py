"""KIP-848 heartbeats against a scripted broker: what they say, when it is said again, and other subscriptions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.group.member import SubscribedTopics
from fencepost.client.types import TopicPartition
from fencepost.errors import GroupFencedError, KafkaError
from fencepost.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ResponseTopicPartitions,
)
from tests.unit.client.scripted import CutConnection, World, run, topic_id
from tests.unit.client.scripted_consumer import PARTITION, TOPIC, ScriptedConsumerBroker, consumer_of, values_of

STALE_MEMBER_EPOCH = 113


def broker_with_a_record(*, partitions: int = 1) -> ScriptedConsumerBroker:
    broker = ScriptedConsumerBroker(partitions=partitions)
    broker.log = [(0, 0, [b"a"])]
    return broker


async def joined(world: World, subscription: dict[str, Any], **settings: Any) -> ConsumerCore:
    """A consumer that has read the record and has acknowledged its assignment."""
    core = consumer_of(world, group_id="g", group_protocol="consumer", **settings)
    await core.subscribe(**subscription)
    assert await values_of(core, 1) == [b"a"]
    await core.poll(1500)
    return core


def test_kip_848_heartbeats_say_only_what_is_new() -> None:
    broker = broker_with_a_record()

    async def body(world: World) -> None:
        core = await joined(world, {"topics": [TOPIC]}, group_remote_assignor="range", client_rack="r")
        await core.poll(3000)
        await core.close()

    run(body, broker)
    first, acknowledgement, *later, last = broker.asked(68)
    assert (first.member_epoch, first.rack_id, first.server_assignor) == (0, "r", "range")
    assert (list(first.subscribed_topic_names), first.topic_partitions) == ([TOPIC], [])
    assert first.rebalance_timeout_ms == 300_000
    assert [(topic.topic_id, list(topic.partitions)) for topic in acknowledgement.topic_partitions] == [
        (topic_id(TOPIC), [0])
    ]
    assert acknowledgement.subscribed_topic_names is None
    assert later
    assert all(heartbeat.topic_partitions is None and heartbeat.rebalance_timeout_ms == -1 for heartbeat in later)
    assert last.member_epoch == -1


@pytest.mark.parametrize("code", [None, 15], ids=["cut", "coordinator not available"])
def test_a_heartbeat_without_its_answer_is_said_again_whole(code: int | None) -> None:
    """KIP-848: an assignment comes with a single answer; another comes to those who say everything."""
    broker = broker_with_a_record(partitions=2)
    parts = ResponseTopicPartitions(topic_id=topic_id(TOPIC), partitions=[0, 1])

    def lost(version: int, request: Any) -> Any:
        if code is None:
            raise CutConnection
        return broker.beat(code)

    def reported(version: int, request: Any) -> Any:
        whole = request.rebalance_timeout_ms != -1 and None not in (
            request.subscribed_topic_names,
            request.topic_partitions,
        )
        return broker.beat(assignment=Assignment(topic_partitions=[parts]) if whole else None)

    async def body(world: World) -> None:
        only = ResponseTopicPartitions(topic_id=topic_id(TOPIC), partitions=[0])
        broker.scripts[68].append(lambda version, request: broker.beat(assignment=Assignment(topic_partitions=[only])))
        broker.member_epoch = 1
        core = await joined(world, {"topics": [TOPIC]})
        assert core.assignment() == [PARTITION]
        broker.scripts[68] += [lost, reported]
        await core.poll(3000)
        assert core.assignment() == [PARTITION, TopicPartition(TOPIC, 1)]
        await core.close()

    run(body, broker)
    assert not broker.scripts[68]


@pytest.mark.parametrize("unanswered", [True, False])
def test_who_has_a_heartbeat_on_its_way_says_everything_from_then_on(unanswered: bool) -> None:
    """It may arrive at any time, and what is assigned with its answer is heard by nobody."""
    broker = broker_with_a_record()

    def lost(version: int, request: Any) -> Any:
        if unanswered:
            raise CutConnection
        return broker.beat(15)

    async def body(world: World) -> None:
        core = await joined(world, {"topics": [TOPIC]})
        broker.scripts[68].append(lost)
        await core.poll(5000)
        await core.close()

    run(body, broker)
    *later, last = broker.asked(68)[2:]
    whole = [None not in (heartbeat.subscribed_topic_names, heartbeat.topic_partitions) for heartbeat in later]
    again = whole.index(True)
    assert len(whole) > again + 3
    assert (any(whole[:again]), set(whole[again + 1 :])) == (False, {unanswered})
    assert last.member_epoch == -1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"pattern": "t.*"}, {"topics": [TOPIC]}, ([TOPIC], "")),
        ({"pattern": "t.*"}, {"pattern": "t"}, (None, "t")),
        ({"topics": [TOPIC]}, {"pattern": "t.*"}, ([], "t.*")),
    ],
    ids=["names for a pattern", "another pattern", "a pattern for names"],
)
def test_a_subscription_takes_the_place_of_the_one_before(
    first: dict[str, Any], second: dict[str, Any], said: tuple[list[str] | None, str]
) -> None:
    """KIP-848: the coordinator keeps what a heartbeat leaves out, so that an expression goes when it is said to."""
    broker = broker_with_a_record()
    asked: list[ConsumerGroupHeartbeatRequest] = []

    async def body(world: World) -> None:
        core = await joined(world, first)
        begun = len(broker.asked(68))
        await core.subscribe(**second)
        await core.poll(1500)
        asked.extend(broker.asked(68)[begun:])
        await core.close()

    run(body, broker)
    changes = [
        (
            None if heartbeat.subscribed_topic_names is None else list(heartbeat.subscribed_topic_names),
            heartbeat.subscribed_topic_regex,
        )
        for heartbeat in asked
    ]
    assert changes[0] == said
    assert len(changes) > 1
    assert all(change == (None, None) for change in changes[1:])


def test_a_subscription_made_while_a_heartbeat_is_on_its_way_is_told() -> None:
    broker = broker_with_a_record()

    async def body(world: World) -> None:
        core = await joined(world, {"pattern": "t.*"})

        def another(version: int, request: Any) -> Any:
            core._group.subscribe(SubscribedTopics.make((), "t"))  # type: ignore[union-attr]
            return broker.beat()

        broker.scripts[68].append(another)
        await core.poll(3000)
        assert not broker.scripts[68]
        await core.close()

    run(body, broker)
    assert [heartbeat.subscribed_topic_regex for heartbeat in broker.asked(68) if heartbeat.subscribed_topic_regex] == [
        "t.*",
        "t",
    ]


@pytest.mark.parametrize(
    ("pattern", "matched_by_broker"),
    [("t.*", True), (re.compile("t.*"), True), (re.compile("T.*", re.IGNORECASE), False)],
)
def test_patterns_are_the_brokers_where_it_understands_them(pattern: Any, matched_by_broker: bool) -> None:
    broker = broker_with_a_record()

    async def body(world: World) -> None:
        core = await joined(world, {"pattern": pattern})
        assert core.subscription() == [TOPIC]
        await core.close()

    run(body, broker)
    first = broker.asked(68)[0]
    assert first.subscribed_topic_regex == ("t.*" if matched_by_broker else None)
    assert list(first.subscribed_topic_names or ()) == ([] if matched_by_broker else [TOPIC])


def test_a_position_is_not_committed_when_its_partition_was_taken_away_meanwhile() -> None:
    """Tried again under the next epoch, it would be taken, and put back what the new owner has committed."""
    broker = broker_with_a_record(partitions=2)
    reported: list[tuple[KafkaError | None, list[TopicPartition]]] = []

    async def body(world: World) -> None:
        core = await joined(world, {"topics": [TOPIC]})
        taken, retained = PARTITION, TopicPartition(TOPIC, 1)
        broker.scripts[8].append(lambda version, request: broker.commit(request, STALE_MEMBER_EPOCH))
        core.commit_async({taken: 1, retained: 1}, callback=lambda error, at: reported.append((error, list(at))))
        await world.runtime.sleep_ms(1)
        only = ResponseTopicPartitions(topic_id=topic_id(TOPIC), partitions=[retained.partition])

        def smaller_assignment(version: int, request: Any) -> Any:
            acknowledged = request.topic_partitions is not None
            broker.member_epoch += acknowledged
            broker.scripts[68] += [] if acknowledged else [smaller_assignment]
            return broker.beat(assignment=Assignment(topic_partitions=[only]))

        broker.scripts[68].append(smaller_assignment)
        await core.poll(10_000)
        assert core.assignment() == [retained]
        await core.poll(5000)
        core.commit_async({retained: 1}, callback=lambda error, at: reported.append((error, list(at))))
        await core.poll(5000)
        assert reported[1] == (None, [retained])
        await core.close()

    run(body, broker)
    [(error, _), _] = reported
    assert isinstance(error, GroupFencedError)
    assert f"{TOPIC}-0" in str(error)
    partitions = [
        [partition.partition_index for partition in request.topics[0].partitions] for request in broker.asked(8)
    ]
    assert partitions == [[0, 1], [1]]
