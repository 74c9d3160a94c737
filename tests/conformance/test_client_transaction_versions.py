"""The producer's transactions where transaction.version is 0, 1 and 2: on our broker, and on Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.errors import AbortableError, CommitFailedError, ProducerFencedError, TransactionTimedOutError
from tests.conformance.conftest import SETTINGS
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest
from tests.support.waiting import until

TP = fencepost.TopicPartition
ARMS = [
    pytest.param((arm, version), id=f"{arm}-{version}", marks=[pytest.mark.kafka] if arm == "kafka" else [])
    for arm in ("fencepost", "kafka")
    for version in (0, 1, 2)
]


@pytest.fixture(scope="module", params=ARMS)
def at_version(request: pytest.FixtureRequest) -> Iterator[tuple[BrokerUnderTest, int]]:
    arm, version = request.param
    if arm == "kafka":
        arguments = ("--feature", f"transaction.version={version}")
        with ApacheKafka(format_arguments=arguments) as kafka:
            yield BrokerUnderTest("kafka", kafka), version
    else:
        with fencepost.Broker({**SETTINGS, "transaction.version": version}) as broker:
            yield BrokerUnderTest("fencepost", broker), version


def committed(broker: BrokerUnderTest, topic: str, partitions: int) -> list[bytes]:
    places = [TP(topic, number) for number in range(partitions)]
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        ends = admin.list_offsets(dict.fromkeys(places, -1), isolation=fencepost.Isolation.READ_COMMITTED)
        latest = admin.list_offsets(dict.fromkeys(places, -1))
    assert {one: at.offset for one, at in ends.items()} == {one: at.offset for one, at in latest.items()}, (
        "none is open"
    )
    found = []
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        for one, end in ends.items():
            for fetched in consumer.fetch_range(one.topic, one.partition, 0, end.offset, timeout_ms=60_000):
                found += [value for value in fetched.columns.values() if value is not None]
    return found


def wait_until_over(admin: fencepost.Admin, name: str) -> None:
    over = {"CompleteCommit", "CompleteAbort", "Empty"}
    until(lambda: admin.describe_transactions([name])[0].state in over, within_s=120)


def test_commits_and_aborts(at_version: tuple[BrokerUnderTest, int]) -> None:
    broker, version = at_version
    topic, group, name = broker.name("t"), broker.name("g"), broker.name("x")
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(
            broker.bootstrap_servers, transactional_id=name, transaction_timeout_ms=600_000, linger_ms=0
        ) as producer,
    ):
        assert admin.features().get("transaction.version", 0) == version
        admin.create_topic(topic, 3)
        producer.init_transactions()
        first_epoch = producer.producer_epoch
        for number in range(12):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(topic, b"%d" % number, partition=partition)
            producer.send_offsets_to_transaction({TP(topic, 0): number + 1}, group)
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        grown = producer.producer_epoch - first_epoch
        if version == 2:
            assert grown == 12, "each transaction has an epoch of its own"
        else:
            assert grown <= 4, "only an abort that drops unsent records takes a new one"
        wait_until_over(admin, name)
        assert admin.group_offsets(group)[TP(topic, 0)].offset == 11
    expected = [b"%d" % number for number in range(12) if number % 3 != 2] * 3
    assert sorted(committed(broker, topic, 3)) == sorted(expected)


def test_an_empty_transaction(at_version: tuple[BrokerUnderTest, int]) -> None:
    broker, _ = at_version
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=broker.name("x")) as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.abort_transaction()


def test_a_zombie_is_fenced(at_version: tuple[BrokerUnderTest, int]) -> None:
    broker, _ = at_version
    topic, name = broker.name("t"), broker.name("x")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
        zombie = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, linger_ms=0)
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"zombie")
        zombie.flush()
        with fencepost.Producer(broker.bootstrap_servers, transactional_id=name, linger_ms=0) as owner:
            owner.init_transactions()
            with pytest.raises(ProducerFencedError):
                zombie.commit_transaction()
            with owner.transaction():
                owner.send(topic, b"owner")
        zombie.close(0)
        wait_until_over(admin, name)
    assert committed(broker, topic, 1) == [b"owner"]


def test_after_a_timeout(at_version: tuple[BrokerUnderTest, int]) -> None:
    """The producer goes on (KIP-588). Apache Kafka allows that from version 2 on; below, it takes a new producer."""
    broker, version = at_version
    topic, name = broker.name("t"), broker.name("x")
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 1)
        producer = fencepost.Producer(
            broker.bootstrap_servers, transactional_id=name, transaction_timeout_ms=600, linger_ms=0
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"lost")
        producer.flush()
        wait_until_over(admin, name)
        if broker.is_ours or version == 2:
            with pytest.raises(AbortableError) as raised:
                producer.commit_transaction()
            assert isinstance(raised.value, CommitFailedError)
            assert isinstance(raised.value.__cause__, TransactionTimedOutError)
            producer.abort_transaction()
        else:
            with pytest.raises(ProducerFencedError, match=r"timed out|timeout"):
                producer.commit_transaction()
            producer.close(0)
            producer = fencepost.Producer(broker.bootstrap_servers, transactional_id=name, linger_ms=0)
            producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"kept")
        producer.commit_transaction()
        producer.close()
        wait_until_over(admin, name)
    assert committed(broker, topic, 1) == [b"kept"]
