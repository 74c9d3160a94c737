"""transaction.version 0 and 1, where the version of the request decides. Expected: Kafka 4.4 (K44, K50, K56).

Level 1 answers the new requests as level 2 does. Level 0 has no implicit enlisting; Kafka lets EndTxn v5 through there
and is then stuck, ours refuses it and nothing has changed. Then the producer's transactions on 0, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.errors import (
    AbortableError,
    FencedOrTimedOutError,
    ProducerFencedError,
    TransactionCommitFailedError,
    TransactionTimedOutError,
)
from fencepost.protocol.codes import ErrorCode
from tests.conformance.conftest import ARMS, SETTINGS
from tests.support.brokers import Arm, BrokerUnderTest, HasAddress
from tests.support.markers import wait_for_markers
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_partition, batched, commit_offsets, end_once, write_marker
from tests.support.waiting import until

TP = fencepost.TopicPartition
VERSIONS = [
    pytest.param((arm, version), id=f"{arm}-{version}", marks=[pytest.mark.kafka] if arm == "kafka" else [])
    for arm in ("fencepost", "kafka")
    for version in (0, 1, 2)
]


@pytest.fixture(scope="module")
def kafka_of_version_2(apache_kafka: HasAddress) -> HasAddress:
    return apache_kafka


def at_level(request: pytest.FixtureRequest, arm: Arm, level: int) -> Iterator[BrokerUnderTest]:
    if arm == "fencepost":
        with Broker({**SETTINGS, "transaction.version": level}) as ours:
            yield BrokerUnderTest(arm, ours)
    else:
        yield BrokerUnderTest(arm, request.getfixturevalue(f"kafka_of_version_{level}"))


@pytest.fixture(scope="module", params=ARMS)
def level_1(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    yield from at_level(request, request.param, 1)


@pytest.fixture(scope="module", params=ARMS)
def level_0(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    yield from at_level(request, request.param, 0)


def begun(broker: BrokerUnderTest, client: RawClient, timeout_ms: int = 60_000) -> tuple[str, str, Producer]:
    name = broker.name("txn")
    return client.create_topic(broker.name("t")), name, client.start_producer(name, timeout_ms=timeout_ms)


def finalized(client: RawClient) -> dict[str, int]:
    return {feature.name: feature.max_version_level for feature in client.api_versions().finalized_features}


def test_level_1_is_told_to_clients(level_1: BrokerUnderTest) -> None:
    with level_1.connect() as client:
        assert finalized(client)["transaction.version"] == 1


def test_level_1_enlists_and_raises_epochs_when_asked(level_1: BrokerUnderTest) -> None:
    """Produce v12, TxnOffsetCommit v5 and EndTxn v5 do what they do on level 2."""
    with level_1.connect() as client:
        topic, name, me = begun(level_1, client)
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
        assert commit_offsets(client, name, me, level_1.name("g"), topic) == 0
        ended = client.end_transaction(name, me, commit=True)
        assert (ended.error_code, ended.producer_epoch) == (0, me.epoch + 1)
        client.wait_for_state(name, "CompleteCommit")
        assert client.fetch(topic, committed=True).values == [b"x"]


def test_level_1_serves_the_older_requests(level_1: BrokerUnderTest) -> None:
    with level_1.connect() as client:
        topic, name, me = begun(level_1, client)
        assert add_partition(client, name, me, topic) == 0
        assert batched(client, [(name, me, topic, True)]) == {name: {topic: 0}}
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=11).error_code == 0
        assert client.end_transaction(name, me, commit=True, version=4).error_code == 0
        client.wait_for_state(name, "CompleteCommit")
        assert client.describe_transaction(name).producer_epoch == me.epoch
        assert client.fetch(topic, committed=True).values == [b"x"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_after_a_timeout_on_level_1(level_1: BrokerUnderTest, version: int) -> None:
    """The old pair: Kafka refuses it here, as if it were fenced. Ours exchanges it, once, as on level 2."""
    with level_1.connect() as client:
        topic, name, me = begun(level_1, client, timeout_ms=300)
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
        client.wait_for_state(name, "CompleteAbort")
        for _ in range(2):
            given = client.init_producer_id(name, producer=me, version=version)
            if level_1.is_ours:
                assert (given.error_code, given.producer_epoch) == (0, me.epoch + 1)
            else:
                assert given.error_code == (ErrorCode.PRODUCER_FENCED if version >= 4 else 47)
        anew = client.settled(lambda: client.init_producer_id(name, version=version))
        assert (anew.error_code, anew.producer_epoch) == (0, me.epoch + 2)


def test_level_0_is_told_by_silence(level_0: BrokerUnderTest) -> None:
    with level_0.connect() as client:
        assert "transaction.version" not in finalized(client)


def test_level_0_serves_the_older_requests(level_0: BrokerUnderTest) -> None:
    with level_0.connect() as client:
        topic, name, me = begun(level_0, client)
        assert add_partition(client, name, me, topic) == 0
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=11).error_code == 0
        assert client.end_transaction(name, me, commit=True, version=4).error_code == 0
        client.wait_for_state(name, "CompleteCommit")
        assert client.describe_transaction(name).producer_epoch == me.epoch
        assert client.fetch(topic, committed=True).values == [b"x"]


def test_level_0_refuses_to_enlist_by_itself(level_0: BrokerUnderTest) -> None:
    """Produce v12 and TxnOffsetCommit v5."""
    with level_0.connect() as client:
        topic, name, me = begun(level_0, client)
        answer = client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert client.end_offset(topic) == 0
    with level_0.connect() as client:
        _, name, me = begun(level_0, client)
        assert commit_offsets(client, name, me, level_0.name("g"), topic) == ErrorCode.UNSUPPORTED_VERSION
        assert client.describe_transaction(name).transaction_state == "Empty"


def test_level_0_and_the_new_end(level_0: BrokerUnderTest) -> None:
    """EndTxn v5 (abort) with nothing open: 35 at both. Kafka's id answers 51 from then on; ours goes on."""
    with level_0.connect() as client:
        topic, name, me = begun(level_0, client)
        assert end_once(client, name, me, commit=False).error_code == ErrorCode.UNSUPPORTED_VERSION
        if level_0.is_ours:
            assert add_partition(client, name, me, topic) == 0
            assert client.end_transaction(name, me, commit=False, version=4).error_code == 0
        else:
            for _ in range(3):
                stuck = end_once(client, name, me, commit=False, version=4)
                assert stuck.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_level_0_and_the_new_end_of_an_open_transaction(level_0: BrokerUnderTest) -> None:
    """35 at both; ours has changed nothing and the older EndTxn commits, Kafka's id is stuck with its records open."""
    with level_0.connect() as client:
        topic, name, me = begun(level_0, client)
        assert add_partition(client, name, me, topic) == 0
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0, version=11).error_code == 0
        assert end_once(client, name, me, commit=True).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert client.describe_transaction(name).transaction_state == "Ongoing"
        older = end_once(client, name, me, commit=True, version=4)
        if level_0.is_ours:
            assert older.error_code == 0
            client.wait_for_state(name, "CompleteCommit")
            assert client.fetch(topic, committed=True).values == [b"x"]
        else:
            assert older.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            assert client.init_producer_id(name).error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_marker_of_version_2_on_the_older_levels(level_0: BrokerUnderTest) -> None:
    """It is accepted if no transaction is open."""
    with level_0.connect() as client:
        topic, _name, me = begun(level_0, client)
        assert write_marker(client, topic, me, commit=True, transaction_version=2) == 0


# --- the producer ---


@pytest.fixture(scope="module", params=VERSIONS)
def at_version(request: pytest.FixtureRequest) -> Iterator[tuple[BrokerUnderTest, int]]:
    arm, version = request.param
    for broker in at_level(request, arm, version):
        yield broker, version


def committed(broker: BrokerUnderTest, topic: str, partitions: int) -> list[bytes]:
    topic_partitions = [TP(topic, number) for number in range(partitions)]
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        wait_for_markers(admin, topic_partitions)
        ends = admin.list_offsets(dict.fromkeys(topic_partitions, -1), isolation=fencepost.Isolation.READ_COMMITTED)
        latest = admin.list_offsets(dict.fromkeys(topic_partitions, -1))
    assert {partition: at.offset for partition, at in ends.items()} == {
        partition: at.offset for partition, at in latest.items()
    }, "none is open"
    found = []
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:
        for partition, end in ends.items():
            for fetched in consumer.fetch_range(partition.topic, partition.partition, 0, end.offset, timeout_ms=60_000):
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
    name = broker.name("x")
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.abort_transaction()
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        assert admin.describe_transactions([name])[0].state in ("Empty", "CompleteCommit", "CompleteAbort")


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
            assert isinstance(raised.value, TransactionCommitFailedError)
            assert isinstance(raised.value.__cause__, TransactionTimedOutError)
            producer.abort_transaction()
        else:
            with pytest.raises(FencedOrTimedOutError, match="timed out"):
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
