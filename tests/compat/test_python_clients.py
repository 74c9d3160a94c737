"""aiokafka and kafka-python against the embedded broker: what their users do, judged by what they see."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import aiokafka
import kafka
import kafka.admin
import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until

PATIENCE_S = 60.0
VALUES = [str(number).encode() for number in range(300)]
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["never", "commit"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with Broker(fsync=request.param) as broker:
        yield broker.bootstrap_servers


def a_topic(servers: str, partitions: int = 1) -> str:
    name = f"topic-{next(_numbers)}"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(name, partitions)
    return name


def filled(servers: str, partitions: int = 1) -> str:
    """A topic with VALUES, spread over its partitions."""
    topic = a_topic(servers, partitions)
    with fencepost.Producer(servers) as producer:
        for number, value in enumerate(VALUES):
            producer.send(topic, value, partition=number % partitions)
        producer.flush()
    return topic


def committed(servers: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    with RawClient(servers) as client:
        return [
            value
            for partition in range(partitions)
            for value in client.fetch(topic, partition=partition, committed=True).values
        ]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 2 * PATIENCE_S))


# --- aiokafka ---


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_round_trip(servers: str, codec: str | None) -> None:
    topic = a_topic(servers)

    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=codec, enable_idempotence=True
        ) as producer:
            sent = [await producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in VALUES]
            offsets = [(await future).offset for future in sent]
        assert offsets == list(range(len(VALUES)))
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            found = [await consumer.getone() for _ in VALUES]
        assert [record.value for record in found] == VALUES
        assert {(record.key, record.headers) for record in found} == {(b"k", (("h", b"1"),))}

    run(story())


def test_aiokafka_shares_partitions_in_a_group(servers: str) -> None:
    topic, group = a_topic(servers, 4), f"group-{next(_numbers)}"

    async def story() -> None:
        settings = {"bootstrap_servers": servers, "group_id": group, "heartbeat_interval_ms": 200}
        consumers = [aiokafka.AIOKafkaConsumer(topic, **settings) for _ in range(2)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        deadline = time.monotonic() + PATIENCE_S
        while sorted(len(consumer.assignment()) for consumer in consumers) != [2, 2]:
            assert time.monotonic() < deadline
            await asyncio.gather(*(consumer.getmany(timeout_ms=100) for consumer in consumers))
        await consumers.pop().stop()
        while len(consumers[0].assignment()) != 4:
            assert time.monotonic() < deadline
            await consumers[0].getmany(timeout_ms=100)
        await consumers[0].stop()

    run(story())


def test_aiokafka_copies_exactly_once(servers: str) -> None:
    """In transactions of twenty with their offsets, every third of which is aborted and done again."""
    source, target, group = filled(servers, 2), a_topic(servers), f"group-{next(_numbers)}"

    async def story() -> None:
        settings = {"bootstrap_servers": servers, "group_id": group, "enable_auto_commit": False}
        consumer = aiokafka.AIOKafkaConsumer(
            source, auto_offset_reset="earliest", isolation_level="read_committed", **settings
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group)
        async with consumer, producer:
            done = turn = 0
            while done < len(VALUES):
                batches = await consumer.getmany(timeout_ms=1000, max_records=20)
                turn += 1
                await producer.begin_transaction()
                for records in batches.values():
                    for record in records:
                        await producer.send(target, record.value)
                offsets = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                if offsets:
                    await producer.send_offsets_to_transaction(offsets, group)
                if turn % 3:
                    await producer.commit_transaction()
                    done += sum(len(records) for records in batches.values())
                else:
                    await producer.abort_transaction()
                    for partition, records in batches.items():
                        consumer.seek(partition, records[0].offset)

    run(story())
    assert sorted(committed(servers, target), key=lambda value: int(value or b"")) == VALUES


# --- kafka-python ---


@pytest.mark.parametrize("codec", [None, "gzip", "lz4"])
def test_kafka_python_round_trip(servers: str, codec: str | None) -> None:
    topic = a_topic(servers)
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=codec)
    sent = [producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in VALUES]
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(len(VALUES)))
    producer.close()
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    found = list(itertools.islice(consumer, len(VALUES)))
    consumer.close()
    assert [record.value for record in found] == VALUES
    assert {record.key for record in found} == {b"k"}


def test_kafka_python_in_a_group_goes_on_where_it_stopped(servers: str) -> None:
    topic, group = filled(servers), f"group-{next(_numbers)}"
    found = []
    for _ in range(3):
        consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        records = list(itertools.islice(consumer, 100))
        found += [record.value for record in records]
        where = kafka.TopicPartition(topic, 0)
        consumer.commit({where: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)})
        consumer.close()
    assert found == VALUES


def test_kafka_python_transactions(servers: str) -> None:
    topic, group = a_topic(servers), f"group-{next(_numbers)}"
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    producer.init_transactions()
    where = kafka.TopicPartition(topic, 0)
    for turn in range(4):
        producer.begin_transaction()
        producer.send(topic, str(turn).encode()).get(PATIENCE_S)
        producer.send_offsets_to_transaction({where: kafka.OffsetAndMetadata(turn + 1, "", -1)}, group)
        if turn % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    other = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    other.init_transactions()
    producer.begin_transaction()
    with pytest.raises(kafka.errors.KafkaError):
        producer.send(topic, b"zombie").get(PATIENCE_S)
    producer.close(1)
    other.close(1)
    assert committed(servers, topic) == [b"0", b"2"]
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=servers)
    with fencepost.Admin(servers) as ours:
        (offset,) = ours.group_offsets(group).values()
    admin.close()
    assert offset.offset == 3


def test_kafka_python_admin(servers: str) -> None:
    name = f"topic-{next(_numbers)}"
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([kafka.admin.NewTopic(name, 2, 1)])
    until(lambda: name in admin.list_topics())  # it does not wait for brokers to show the topic
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics())
    admin.close()
