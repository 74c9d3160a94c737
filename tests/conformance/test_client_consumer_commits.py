"""Commits, lag and iteration of a consumer against both brokers, blocking and asyncio."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import fencepost
from fencepost.client.types import RebalanceListener
from fencepost.errors import ConfigurationError, KafkaError, UsageError
from tests.support.brokers import BrokerUnderTest
from tests.support.consumers import FILLED_MS, fill, poll_until, poll_values

TP = fencepost.TopicPartition


def test_commits_without_waiting(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """In order, with metadata and leader epoch; callbacks come in the polling thread."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 1)
    partition = TP(topic, 0)
    reported: list[tuple[KafkaError | None, int]] = []

    def tell(error: KafkaError | None, positions: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        reported.append((error, positions[partition].offset))

    with fencepost.Consumer(broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        for offset in range(20):
            consumer.commit_async({partition: fencepost.OffsetAndMetadata(offset, f"note {offset}", 0)}, tell)
        poll_until([consumer], lambda: len(reported) == 20)
        assert reported == [(None, offset) for offset in range(20)]
        assert consumer.committed([partition]) == {partition: fencepost.OffsetAndMetadata(19, "note 19", 0)}
        consumer.commit_async({partition: 20}, tell)
        assert len(reported) == 20
    assert reported[20:] == [(None, 20)], "close tells, too"


def test_a_commit_for_a_topic_that_is_not_there_says_so(broker: BrokerUnderTest) -> None:
    with (
        fencepost.Consumer(
            broker.bootstrap_servers, group_id=broker.name("g"), default_api_timeout_ms=2000
        ) as consumer,
        pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        consumer.commit({TP(broker.name("missing"), 0): 1})


def test_lag_falls_to_nothing(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 50)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=20) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.lag((topic, 0)) is None
        for left in (30, 10, 0):
            poll_values(consumer, min(20, left + 10))
            assert consumer.lag((topic, 0)) == left
        assert consumer.metrics()["records_consumed_total"] == 50
        with pytest.raises(UsageError):
            consumer.lag((topic, 1))


def test_beginning_so_long_ago(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """auto_offset_reset=by_duration (KIP-1106): records are a minute old, an hour reaches back to all of them."""
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 5)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([(topic, 0)])
        assert poll_values(consumer, 5) == list(range(5))
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="by_duration:PT1S") as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == 5
    with pytest.raises(ConfigurationError):
        fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="by_duration:yesterday")


def test_iterating(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 5)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found = []
        for record in consumer:
            found.append((record.offset, record.timestamp_ms))
            if len(found) == 5:
                break
        assert found == [(number, FILLED_MS + number) for number in range(5)]


def test_what_a_listener_raises_comes_out_of_poll(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """And the membership goes on."""
    topic = broker.name("t")
    admin.create_topic(topic, 1)
    fill(broker, topic, 3)

    class Angry(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
            raise ZeroDivisionError

    settings = {"group_id": broker.name("g"), "auto_offset_reset": "earliest"}
    with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([topic], Angry())
        with pytest.raises(ZeroDivisionError):
            poll_until([consumer], lambda: False)
        assert poll_values(consumer, 3) == [0, 1, 2]


@pytest.mark.asyncio
async def test_asyncio(broker: BrokerUnderTest) -> None:
    """The same consumer for asyncio: subscribe with a listener of coroutines, iterate, commit."""
    topic, group = broker.name("t"), broker.name("g")
    news: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
            news.append(("assigned", len(partitions)))

        async def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            news.append(("revoked", len(partitions)))

    async with fencepost.AsyncAdmin(broker.bootstrap_servers) as admin:
        await admin.create_topic(topic, 2)
        async with fencepost.AsyncProducer(broker.bootstrap_servers) as producer:
            for number in range(6):
                await producer.send(topic, b"%d" % number, partition=number % 2)
        settings = {"group_id": group, "auto_offset_reset": "earliest"}
        async with fencepost.AsyncConsumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            await consumer.subscribe([topic], Listener())
            found = []
            async for record in consumer:
                found.append(int(record.value or b"-1"))
                if len(found) == 6:
                    break
            assert sorted(found) == list(range(6))
            await consumer.commit()
        assert news == [("assigned", 2), ("revoked", 2)]
        assert {partition.partition: at.offset for partition, at in (await admin.group_offsets(group)).items()} == {
            0: 3,
            1: 3,
        }
