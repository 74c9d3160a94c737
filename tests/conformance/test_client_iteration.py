"""Iterations of consumers with `next` and `anext`, their time limits, and the ends of partitions, on both brokers."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

import fencepost
from fencepost.errors import ClosedError, UsageError
from tests.support.brokers import BrokerUnderTest

TP = fencepost.TopicPartition
NUMBERS = [b"%d" % number for number in range(10)]


@pytest.fixture
def topic(broker: BrokerUnderTest, admin: fencepost.Admin) -> str:
    name = broker.name("t")
    admin.create_topic(name, 2)
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in NUMBERS:
            producer.send(name, number, partition=0)
        producer.flush()
    return name


def test_next_returns_one_record_after_the_other(broker: BrokerUnderTest, topic: str) -> None:
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP(topic, 0)])
        assert [next(consumer).value for _ in range(3)] == NUMBERS[:3]
        assert consumer.positions()[TP(topic, 0)].offset == 3
        assert [record.value for record in islice(consumer, 2)] == NUMBERS[3:5]
        assert next(consumer).value == NUMBERS[5]
        consumer.seek(TP(topic, 0), 1)
        assert next(consumer).value == NUMBERS[1]
        assert [record.value for record in consumer.poll(10_000)] == NUMBERS[2:]


def test_an_iteration_ends_after_its_time_limit(broker: BrokerUnderTest, topic: str) -> None:
    with fencepost.Consumer(
        broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=1500
    ) as consumer:
        consumer.assign([TP(topic, 0), TP(topic, 1)])
        assert [record.value for record in consumer] == NUMBERS
        with pytest.raises(StopIteration):
            next(consumer)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send(topic, b"more", partition=1).result(120)
        assert next(consumer).value == b"more", "a later call goes on"


@pytest.mark.asyncio
async def test_an_async_iteration_survives_a_time_limit(broker: BrokerUnderTest, topic: str) -> None:
    async with (
        fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        fencepost.AsyncProducer(broker.bootstrap_servers) as producer,
    ):
        await consumer.assign([TP(topic, 0)])
        iteration = aiter(consumer)
        assert [(await anext(iteration)).value for _ in NUMBERS] == NUMBERS
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(iteration), 0.3)
        await (await producer.send(topic, b"more", partition=0))
        assert (await asyncio.wait_for(anext(iteration), 60)).value == b"more"
        waiting = asyncio.create_task(anext(iteration))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises((StopAsyncIteration, ClosedError)):
            await waiting


@pytest.mark.asyncio
async def test_an_async_iteration_that_is_cut_off_loses_and_repeats_nothing(
    broker: BrokerUnderTest, topic: str
) -> None:
    found: list[bytes | None] = []
    async with fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TP(topic, 0)])
        for strike in range(2000):
            try:
                found.append((await asyncio.wait_for(anext(consumer), strike % 7 / 1000)).value)
            except TimeoutError:
                continue
            if len(found) == len(NUMBERS):
                break
    assert found == NUMBERS


def test_beginning_and_end(broker: BrokerUnderTest, topic: str, admin: fencepost.Admin) -> None:
    partitions = [TP(topic, 0), TP(topic, 1)]
    admin.delete_records({partitions[0]: 4})
    with (
        fencepost.Consumer(broker.bootstrap_servers) as committed,
        fencepost.Consumer(broker.bootstrap_servers, isolation_level="read_uncommitted") as every,
        fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=1).result(120)
        assert committed.beginning_offsets(partitions) == {partitions[0]: 4, partitions[1]: 0}
        assert committed.end_offsets(partitions) == {partitions[0]: 10, partitions[1]: 0}
        assert every.end_offsets(partitions) == {partitions[0]: 10, partitions[1]: 1}
        producer.abort_transaction()


def test_partitions_are_added_and_removed(broker: BrokerUnderTest, topic: str) -> None:
    first, second = TP(topic, 0), TP(topic, 1)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([first])
        assert next(consumer).value == NUMBERS[0]
        consumer.incremental_assign([second])
        assert consumer.assignment() == [first, second]
        assert next(consumer).value == NUMBERS[1], "the position stays"
        consumer.incremental_unassign([second])
        assert consumer.assignment() == [first]
        with pytest.raises(UsageError):
            consumer.incremental_unassign([second])
