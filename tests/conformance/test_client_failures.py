"""Records that were not delivered are told to whoever ends the sending, as a user meets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.errors import (
    ItemsFailedError,
    KafkaError,
    ProduceFailedError,
    RecordRejectedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from tests.support.brokers import BrokerUnderTest

SETTINGS: dict[str, Any] = {"allow_auto_create_topics": False, "max_block_ms": 1000}


def test_a_missing_topic_is_told_at_the_end_of_the_block(broker: BrokerUnderTest) -> None:
    with (  # noqa: PT012 (the block is what is tested)
        pytest.raises(ProduceFailedError, match="not delivered: 100") as raised,
        fencepost.Producer(broker.bootstrap_servers, **SETTINGS) as producer,
    ):
        for number in range(100):
            producer.send("missing", b"%d" % number)
    assert raised.value.records == 100
    assert raised.value.__cause__ is not None


def test_it_is_told_by_name_and_soon(broker: BrokerUnderTest) -> None:
    with fencepost.Producer(broker.bootstrap_servers, allow_auto_create_topics=False) as producer:
        error = producer.send("missing", b"v").exception(50)  # max_block_ms is 60 s
    assert error is not None
    assert isinstance(error.__cause__, UnknownTopicOrPartitionError)
    assert "'missing'" in str(error)


def test_and_with_asyncio(broker: BrokerUnderTest) -> None:
    async def main() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers, **SETTINGS) as producer:
            for number in range(100):
                await producer.send("missing", b"%d" % number)

    with pytest.raises(ProduceFailedError, match="not delivered: 100"):
        asyncio.run(main())


def test_a_record_that_is_too_large_for_the_topic(broker: BrokerUnderTest) -> None:
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1, configs={"max.message.bytes": "1000"})
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"x" * 2000)
        with pytest.raises(ProduceFailedError) as raised:
            producer.flush()
        assert isinstance(raised.value.__cause__, RecordRejectedError)
        producer.send(topic, b"x").result(120)


@pytest.mark.parametrize("rows", ["records", "arrow"])
def test_a_topic_with_small_batches_refuses_few(broker: BrokerUnderTest, rows: str) -> None:
    """Check that the producer splits batches before it sends them, once the topic has refused larger ones."""
    topic = broker.name("t")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1, configs={"max.message.bytes": "20000"})
    wanted: list[bytes] = []
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(20):
            values = [b"%d-%d-" % (number, row) + b"x" * 100 for row in range(600)]
            if rows == "arrow":
                producer.send_arrow(topic, pa.table({"value": values}))
            else:
                for value in values:
                    producer.send(topic, value)
            producer.flush()
            wanted += values
        assert 0 < producer.metrics()["batch_split_total"] <= 5  # 64 KiB, two of 32 and perhaps two of 16
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        partition = fencepost.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[bytes | None] = []
        while consumer.position(partition) < len(wanted):
            found += [record.value for record in consumer.poll(1000)]
    assert found == wanted


def test_what_the_block_raises_is_not_masked(broker: BrokerUnderTest) -> None:
    with (  # noqa: PT012 (the block is what is tested)
        pytest.raises(ZeroDivisionError) as raised,
        fencepost.Producer(broker.bootstrap_servers, **SETTINGS) as producer,
    ):
        producer.send("missing", b"v")
        raise ZeroDivisionError
    assert "records not delivered: 1" in "".join(raised.value.__notes__)


def test_a_callback_cannot_wait_for_a_delivery(broker: BrokerUnderTest) -> None:
    topic = broker.name("t")
    refused: list[Exception] = []
    # Nothing leaves before the end of the linger time or a flush, so no record of the callback is delivered meanwhile:
    # the result of a delivered record is known, and a callback may ask for it.
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:

        def reported(error: KafkaError | None, metadata: fencepost.RecordMetadata | None) -> None:
            for wait in (
                producer.send(topic, b"next").result,
                producer.send_arrow(topic, table).result,
                producer.flush,
            ):
                try:
                    wait()
                except UsageError as found:
                    refused.append(found)

        table = pa.table({"value": [b"v"]})
        producer.send(topic, b"first", on_delivery=reported)
        producer.flush()
    assert len(refused) == 3


@pytest.mark.parametrize("call", ["delete_records", "describe_producers", "alter_group_offsets", "create_partitions"])
@pytest.mark.parametrize("exists", [True, False], ids=["partition", "topic"])
def test_a_call_about_a_missing_topic_or_partition_fails_after_the_time_for_news(
    broker: BrokerUnderTest, call: str, exists: bool
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    with fencepost.Admin(broker.bootstrap_servers, topic_metadata_propagation_max_ms=300) as admin:
        if exists:
            admin.create_topic(topic, 1)
        calls: dict[str, Callable[[], object]] = {
            "delete_records": lambda: admin.delete_records({(topic, 7): 0}),
            "describe_producers": lambda: admin.describe_producers([(topic, 7)]),
            "alter_group_offsets": lambda: admin.alter_group_offsets(group, {(topic, 7): 0}),
            "create_partitions": lambda: admin.create_partitions(broker.name("other"), 3),
        }
        with pytest.raises((UnknownTopicOrPartitionError, ItemsFailedError)) as raised:
            calls[call]()
        assert not raised.value.outcome_unknown
        reasons = raised.value.errors.values() if isinstance(raised.value, ItemsFailedError) else [raised.value]
        assert [type(each) for each in reasons] == [UnknownTopicOrPartitionError]


def test_offsets_of_other_partitions_are_set_and_told(broker: BrokerUnderTest) -> None:
    topic, group = broker.name("t"), broker.name("g")
    with fencepost.Admin(broker.bootstrap_servers, topic_metadata_propagation_max_ms=300) as admin:
        admin.create_topic(topic, 1)
        with pytest.raises(ItemsFailedError, match=f"1 of 2 failed: commit {topic}-7 of group") as raised:
            admin.alter_group_offsets(group, {(topic, 0): 3, (topic, 7): 0})
        assert list(raised.value.results) == [(topic, 0)]
        assert type(raised.value.errors[topic, 7]) is UnknownTopicOrPartitionError
        assert {partition: at.offset for partition, at in admin.group_offsets(group).items()} == {(topic, 0): 3}


def test_a_commit_to_a_missing_topic_fails_after_the_time_for_news(broker: BrokerUnderTest) -> None:
    settings: dict[str, Any] = {"group_id": broker.name("g"), "topic_metadata_propagation_max_ms": 300}
    consumer = fencepost.Consumer(broker.bootstrap_servers, **settings)
    with consumer, pytest.raises(UnknownTopicOrPartitionError):
        consumer.commit({(broker.name("missing"), 0): 5})
