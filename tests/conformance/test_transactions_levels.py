"""transaction.version 0 and 1, where the version of the request decides. Expected: Kafka 4.3.1 (K44, K50, K56).

Level 1 answers the new requests as level 2 does. Level 0 has no implicit enlisting; Kafka lets EndTxn v5 through there
and is then stuck, ours refuses it and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import Arm, BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import add_partition, batched, commit_offsets, end_once, write_marker

ARMS = [pytest.param("fencepost", id="fencepost"), pytest.param("kafka", id="kafka", marks=pytest.mark.kafka)]


def at_level(arm: Arm, level: int) -> Iterator[BrokerUnderTest]:
    if arm == "fencepost":
        with Broker({"transaction.version": level, "transaction.two.phase.commit.enable": True}) as ours:
            yield BrokerUnderTest(arm, ours)
    else:
        with ApacheKafka(format_arguments=("--feature", f"transaction.version={level}")) as theirs:
            yield BrokerUnderTest(arm, theirs)


@pytest.fixture(scope="module", params=ARMS)
def level_1(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    yield from at_level(request.param, 1)


@pytest.fixture(scope="module", params=ARMS)
def level_0(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    yield from at_level(request.param, 0)


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
    """Where nothing is open it is taken."""
    with level_0.connect() as client:
        topic, _name, me = begun(level_0, client)
        assert write_marker(client, topic, me, commit=True, transaction_version=2) == 0
