"""A topic that grew after its metadata came: records for the new partitions are delivered, others are refused soon."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fencepost
from fencepost.errors import FailureType, ProduceFailedError, RecordRejectedError

WAIT_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


@pytest.fixture
def topic(broker: fencepost.Broker) -> str:
    """Of one partition."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(name, 1)
    return name


def grow(broker: fencepost.Broker, topic: str, partitions: int) -> None:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_partitions(topic, partitions)


def test_a_new_partition_is_found(broker: fencepost.Broker, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v").result(WAIT_S)
        grow(broker, topic, 4)
        assert producer.send(topic, b"v", partition=3).result(WAIT_S).partition == 3


def test_a_new_partition_is_found_in_a_transaction(broker: fencepost.Broker, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"v")
        grow(broker, topic, 6)
        with producer.transaction():
            producer.send(topic, b"a", partition=0)
            sent = producer.send(topic, b"b", partition=5)
        assert sent.result(WAIT_S).partition == 5


def test_a_new_partition_is_found_for_arrow_rows(broker: fencepost.Broker, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"v").result(WAIT_S)
        grow(broker, topic, 4)
        rows = pa.table({"value": [b"a", b"b"], "partition": pa.array([None, 3], pa.int32())})
        assert 3 in {each.partition for each in producer.send_arrow(topic, rows).result(WAIT_S)}


def test_a_new_partition_is_found_in_asyncio(broker: fencepost.Broker, topic: str) -> None:
    async def main() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers) as producer:
            await (await producer.send(topic, b"v"))
            await asyncio.to_thread(grow, broker, topic, 3)
            assert (await (await producer.send(topic, b"v", partition=2))).partition == 2

    asyncio.run(main())


def test_partitions_are_told_as_they_are_now(broker: fencepost.Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with fencepost.Producer(servers) as producer, fencepost.Consumer(servers) as consumer:
        assert producer.partitions_for(topic) == consumer.partitions_for(topic) == [0]
        grow(broker, topic, 3)
        assert producer.partitions_for(topic) == consumer.partitions_for(topic) == [0, 1, 2]


def test_a_partition_that_is_not_there_is_refused_in_time(broker: fencepost.Broker, topic: str) -> None:
    """And the records beside it are delivered, in their order."""
    with fencepost.Producer(broker.bootstrap_servers, topic_metadata_propagation_max_ms=300) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0 if number % 2 else 7) for number in range(6)]
        for number, each in enumerate(sent):
            failed = each.exception(WAIT_S)
            if number % 2:
                assert each.result().offset == number // 2
            else:
                assert isinstance(failed, ProduceFailedError)
                assert failed.failure_type is FailureType.MESSAGE_REJECTED
                assert isinstance(failed.__cause__, RecordRejectedError)
                assert "partition 7" in str(failed)


def test_partitions_that_come_one_after_the_other_keep_the_order(broker: fencepost.Broker, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers, batch_size=1) as producer:
        producer.send(topic, b"0", partition=0).result(WAIT_S)
        for partitions in (2, 3, 4):
            grow(broker, topic, partitions)
            sent = [producer.send(topic, b"v", partition=number % partitions) for number in range(2 * partitions)]
            assert [each.result(WAIT_S).partition for each in sent] == [*range(partitions), *range(partitions)]
