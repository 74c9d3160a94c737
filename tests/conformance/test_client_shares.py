"""The share consumer, blocking and asyncio, against both brokers (KIP-932): who is given what, and what came of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Mapping

import pytest

import fencepost
from fencepost import AcknowledgeType, SharedRecord, TopicPartition
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.errors import (
    ClosedError,
    GroupConfigurationError,
    KafkaError,
    UsageError,
    WakeupError,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.consumers import PATIENCE_S, fill
from tests.support.waiting import until


@pytest.fixture
def topic(broker: BrokerUnderTest) -> str:
    return topic_with(broker, 10)


def topic_with(broker: BrokerUnderTest, count: int, partitions: int = 1) -> str:
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions)
    fill(broker, topic, count, partitions)
    return topic


@pytest.fixture
def group(broker: BrokerUnderTest) -> str:
    return group_with(broker)


def group_with(broker: BrokerUnderTest) -> str:
    """A group that reads from the beginning."""
    group = broker.name("g")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs(group, {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
    return group


def member(broker: BrokerUnderTest, group: str, topic: str, *, explicit: bool = False) -> fencepost.ShareConsumer:
    consumer = fencepost.ShareConsumer(
        broker.bootstrap_servers,
        group_id=group,
        share_acknowledgement_mode="explicit" if explicit else "implicit",
        max_poll_records=50,
        share_acquire_mode="record_limit",
    )
    consumer.subscribe([topic])
    return consumer


def polled(consumer: fencepost.ShareConsumer, seconds: float = PATIENCE_S) -> list[SharedRecord]:
    """The next records."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        records = consumer.poll(500)
        if records:
            return records
    raise AssertionError(f"nothing came: {consumer.state()}")


def values(records: list[SharedRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def nothing_left(broker: BrokerUnderTest, consumer: fencepost.ShareConsumer, topic: str) -> bool:
    """Add a record, and return true if the next poll returns only that: earlier records would come first."""
    fill(broker, topic, 1, first=10)
    return values(polled(consumer)) == [10]


def test_a_poll_accepts_what_the_last_one_gave(broker: BrokerUnderTest, group: str, topic: str) -> None:
    with member(broker, group, topic) as first:
        assert first.acquisition_lock_timeout_ms() is None
        records = polled(first)
        assert values(records) == list(range(10))
        assert {record.delivery_count for record in records} == {1}
        assert first.acquisition_lock_timeout_ms() == 30_000
        assert first.assignment() == [TopicPartition(topic, 0)]
        assert nothing_left(broker, first, topic)
        assert first.commit() == {TopicPartition(topic, 0): None}
        assert first.commit() == {}
    fill(broker, topic, 1, first=11)
    with member(broker, group, topic) as second:
        assert values(polled(second)) == [11]


def test_what_nobody_accepted_comes_again(broker: BrokerUnderTest, group: str, topic: str) -> None:
    with member(broker, group, topic) as first:
        assert values(polled(first)) == list(range(10))
    with member(broker, group, topic) as second:
        records = polled(second)
        assert values(records) == list(range(10))
        assert {record.delivery_count for record in records} == {2}
        assert second.commit() == {TopicPartition(topic, 0): None}
    with member(broker, group, topic) as third:
        assert nothing_left(broker, third, topic)


def test_each_record_is_answered_for(broker: BrokerUnderTest, group: str, topic: str) -> None:
    kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
    with member(broker, group, topic, explicit=True) as consumer:
        records = polled(consumer)
        for record in records[:-1]:
            consumer.acknowledge(record, kinds[record.offset % 3])
        with pytest.raises(UsageError, match=f"1 record .* {topic}-0 offset 9"):
            consumer.poll(0)
        consumer.acknowledge(records[-1])
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        again = polled(consumer)
        assert values(again) == [1, 4, 7]
        assert {record.delivery_count for record in again} == {2}
        for record in again:
            consumer.acknowledge(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert nothing_left(broker, consumer, topic)


def test_what_is_renewed_stays_in_hand(broker: BrokerUnderTest, group: str, topic: str) -> None:
    with member(broker, group, topic, explicit=True) as consumer:
        records = polled(consumer)
        for record in records:
            consumer.acknowledge(record, AcknowledgeType.RENEW if record.offset < 5 else AcknowledgeType.ACCEPT)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert consumer.poll(0) == []
        for record in records[:5]:
            consumer.acknowledge(record)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert nothing_left(broker, consumer, topic)


def test_members_share_a_partition(broker: BrokerUnderTest, group: str) -> None:
    topic = topic_with(broker, 300)
    with member(broker, group, topic) as first, member(broker, group, topic) as second:
        seen = Counter(values(polled(first)))
        seen.update(values(polled(second)))
        assert len(seen) > 50
        while len(seen) < 300:
            seen.update(values(polled(first)))
            seen.update(values(second.poll(100)))
        assert set(seen) == set(range(300))
        assert set(seen.values()) == {1}


def test_the_last_acknowledgement_of_a_record_counts(broker: BrokerUnderTest, group: str, topic: str) -> None:
    """As in the Java client, until the next poll or commit sends it."""
    with member(broker, group, topic, explicit=True) as consumer:
        records = polled(consumer)
        for record in records:
            consumer.acknowledge(record)
        consumer.acknowledge(records[3], AcknowledgeType.RELEASE)
        consumer.acknowledge(records[4], AcknowledgeType.RELEASE)
        consumer.acknowledge(records[4], AcknowledgeType.ACCEPT)
        consumer.acknowledge(records[5], AcknowledgeType.RENEW)
        consumer.acknowledge(records[5], AcknowledgeType.ACCEPT)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        with pytest.raises(UsageError, match="its acknowledgement was sent"):
            consumer.acknowledge(records[4])
        again = polled(consumer)
        assert [(record.offset, record.delivery_count) for record in again] == [(3, 2)]
        consumer.acknowledge(again[0], AcknowledgeType.RELEASE)
        consumer.acknowledge(again[0])
        assert nothing_left(broker, consumer, topic)


def test_the_callback_tells_offsets_in_the_polling_thread(broker: BrokerUnderTest, group: str, topic: str) -> None:
    reported: list[tuple[Mapping[TopicPartition, list[int]], KafkaError | None]] = []

    def tell(offsets: Mapping[TopicPartition, list[int]], error: KafkaError | None) -> None:
        assert threading.current_thread() is threading.main_thread()
        reported.append((offsets, error))

    with member(broker, group, topic) as consumer:
        consumer.set_acknowledgement_callback(tell)
        polled(consumer)
        consumer.commit_async()
        until(lambda: bool(consumer.poll(100) or reported))
    assert reported == [({TopicPartition(topic, 0): list(range(10))}, None)]


def test_wrong_use(broker: BrokerUnderTest, group: str, topic: str) -> None:
    with fencepost.ShareConsumer(broker.bootstrap_servers, group_id=group) as consumer:
        with pytest.raises(UsageError, match="subscribe first"):
            consumer.poll(0)
        assert consumer.commit() == {}
        consumer.subscribe([topic])
        records = polled(consumer)
        with pytest.raises(UsageError, match="explicit"):
            consumer.acknowledge(records[0])
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(10_000)
        consumer.unsubscribe()
        assert consumer.subscription() == []
        with pytest.raises(UsageError, match="subscribe first"):
            consumer.poll(0)
    with pytest.raises(ClosedError):
        consumer.poll(0)


def test_a_group_of_another_kind(broker: BrokerUnderTest, group: str, topic: str) -> None:
    with fencepost.Consumer(broker.bootstrap_servers, group_id=group, group_protocol="consumer") as other:
        other.subscribe([topic])
        until(lambda: bool(other.poll(100) or other.assignment()))
        with member(broker, group, topic) as consumer, pytest.raises((GroupConfigurationError, KafkaError)):
            polled(consumer)


def test_asyncio(broker: BrokerUnderTest, group: str, topic: str) -> None:
    async def main() -> None:
        async with fencepost.AsyncShareConsumer(broker.bootstrap_servers, group_id=group) as consumer:
            await consumer.subscribe([topic])
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            records: list[SharedRecord] = []
            while not records:
                records = await consumer.poll(500)
            assert values(records) == list(range(10))
            assert await consumer.commit() == {TopicPartition(topic, 0): None}

    asyncio.run(main())
