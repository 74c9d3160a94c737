"""Idempotent producers beyond the common cases. Expected answers: Apache Kafka 4.4 (K70 to K78).

Where ours differs it is to say what Kafka hides (docs/differences-from-kafka.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.records.encoding import encode_batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient
from tests.support.txn_requests import producers
from tests.support.waiting import until

OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def a_producer(client: RawClient) -> Producer:
    given = client.settled(lambda: client.init_producer_id(None))
    assert given.error_code == 0
    return Producer(given.producer_id, given.producer_epoch)


def a_batch(me: Producer, sequence: int, value: bytes = b"x") -> bytes:
    return bytes(
        encode_batch(
            keys=[None],
            values=[value],
            timestamps=1_700_000_000_000,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=sequence,
        )
    )


@pytest.mark.parametrize("version", [3, 5, 8, 9, 11, 12])
def test_a_duplicate_has_the_first_one_s_answer(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """Its offset, and as the append time its timestamp; the log start offset from v5 on."""
    topic, me = client.create_topic(broker.name("t")), a_producer(client)
    client.produce(topic, [b"before"])
    first = client.produce(topic, a_batch(me, 0), version=version)
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (0, 1, -1)
    again = client.produce(topic, a_batch(me, 0), version=version)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 1, 1_700_000_000_000)
    assert again.log_start_offset == (0 if version >= 5 else -1)
    assert client.end_offset(topic) == 2


@pytest.mark.parametrize("version", [3, 7, 8, 10, 12])
def test_what_is_out_of_order(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, me = client.create_topic(broker.name("t")), a_producer(client)

    def code(sequence: int, values: int = 1, epoch: int = me.epoch) -> int:
        who = Producer(me.producer_id, epoch)
        return client.produce(topic, [b"x"] * values, producer=who, sequence=sequence, version=version).error_code

    assert code(0, 2) == 0
    assert code(0, 3) == OUT_OF_ORDER  # begins as the first batch did and is longer
    assert code(1, 2) == OUT_OF_ORDER  # overlaps
    assert code(3) == OUT_OF_ORDER  # a gap
    assert code(5, epoch=me.epoch + 1) == OUT_OF_ORDER
    assert code(0, epoch=me.epoch + 1) == 0
    assert code(2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end_offset(topic) == 3


def test_half_an_identity(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, me = client.create_topic(broker.name("t")), a_producer(client)
    assert client.produce(topic, [b"x"], producer=me, sequence=0).error_code == 0
    no_epoch = client.produce(topic, [b"x"], producer=Producer(me.producer_id, -1), sequence=1)
    assert no_epoch.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, [b"x"], producer=me, sequence=-1).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_in_one_partition_of_a_request(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, me = client.create_topic(broker.name("t")), a_producer(client)
    two = a_batch(me, 0) + a_batch(me, 1)
    assert client.produce(topic, two).error_code == ErrorCode.INVALID_RECORD
    assert client.end_offset(topic) == 0


def test_deleted_records_are_still_known(broker: BrokerUnderTest, client: RawClient) -> None:
    """DeleteRecords to the end: the next batch is taken, a deleted one is a duplicate, a gap a gap."""
    topic, me = client.create_topic(broker.name("t")), a_producer(client)
    for sequence in range(3):
        assert client.produce(topic, [b"x"], producer=me, sequence=sequence).error_code == 0
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000)
    (deleted,) = client.call(request, 2).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (0, 3)
    following = client.produce(topic, [b"x"], producer=me, sequence=3)
    assert (following.error_code, following.base_offset, following.log_start_offset) == (0, 3, 3)
    again = client.produce(topic, [b"x"], producer=me, sequence=2)
    assert (again.error_code, again.base_offset, again.log_start_offset) == (0, 2, 3)
    assert client.produce(topic, [b"x"], producer=me, sequence=5).error_code == OUT_OF_ORDER


EXPIRING: dict[str, str | int | bool] = {
    "producer.id.expiration.ms": 1000,
    "transactional.id.expiration.ms": 1000,
    "transaction.two.phase.commit.enable": False,
}
# How often Kafka looks; ours keeps a deadline for each.
KAFKA_LOOKS: dict[str, str | int | bool] = {
    "producer.id.expiration.check.interval.ms": 200,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param("fencepost", id="fencepost"), pytest.param("kafka", id="kafka", marks=pytest.mark.kafka)],
)
def forgetful(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """A broker that forgets idle producers and transactional ids after a second, and allows no two-phase commit."""
    if request.param == "fencepost":
        with Broker(EXPIRING) as ours:
            yield BrokerUnderTest("fencepost", ours)
    else:
        with ApacheKafka({**EXPIRING, **KAFKA_LOOKS}) as theirs:
            yield BrokerUnderTest("kafka", theirs)


def wait_until_idle(client: RawClient, topic: str, me: Producer, forgets: bool) -> None:
    """Until the partition has forgotten the producer (Kafka); ours keeps its last sequence."""
    if not forgets:
        time.sleep(1.5)
        return
    deadline = time.monotonic() + 120
    while any(state.producer_id == me.producer_id for state in producers(client, topic)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_idle_producer(forgetful: BrokerUnderTest) -> None:
    """Kafka forgets it and takes whatever comes, a repeated batch once more, too. Ours takes exactly the next one."""
    with forgetful.connect() as client:
        topic, me = client.create_topic(forgetful.name("t")), a_producer(client)
        for sequence in range(2):
            assert client.produce(topic, [b"x"], producer=me, sequence=sequence).error_code == 0
        wait_until_idle(client, topic, me, forgets=not forgetful.is_ours)
        if forgetful.is_ours:
            gap = client.produce(topic, [b"x"], producer=me, sequence=7)
            assert gap.error_code == OUT_OF_ORDER
            following = client.produce(topic, [b"x"], producer=me, sequence=2)
            assert (following.error_code, following.base_offset) == (0, 2)
        else:
            again = client.produce(topic, [b"x"], producer=me, sequence=1)
            assert (again.error_code, again.base_offset) == (0, 2)


def test_an_open_transaction_does_not_expire(forgetful: BrokerUnderTest) -> None:
    with forgetful.connect() as client:
        topic, name = client.create_topic(forgetful.name("t")), forgetful.name("txn")
        me = client.start_producer(name)
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
        other = a_producer(client)
        assert client.produce(topic, [b"x"], producer=other, sequence=0).error_code == 0
        wait_until_idle(client, topic, other, forgets=not forgetful.is_ours)
        (known,) = [state for state in producers(client, topic) if state.producer_id == me.producer_id]
        assert known.current_txn_start_offset == 0
        assert client.produce(topic, [b"y"], transactional_id=name, producer=me, sequence=1).error_code == 0
        assert client.end_transaction(name, me, commit=True).error_code == 0


def test_an_idle_transactional_id_is_forgotten(forgetful: BrokerUnderTest) -> None:
    """Afterwards it is unknown: 105 to describe, 49 to EndTxn and Produce; an init begins anew with another pair."""
    with forgetful.connect() as client:
        topic, name = client.create_topic(forgetful.name("t")), forgetful.name("txn")
        me = client.start_producer(name)
        assert client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0).error_code == 0
        assert client.end_transaction(name, me, commit=True).error_code == 0
        deadline = time.monotonic() + 120
        while client.describe_transaction(name).error_code != 105:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert client.end_transaction(name, me, commit=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        following = Producer(me.producer_id, me.epoch + 1)
        late = client.produce(topic, [b"y"], transactional_id=name, producer=following, sequence=0)
        assert late.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        given = client.start_producer(name)
        assert given.epoch == 0
        assert given.producer_id != me.producer_id


def test_two_phase_commit_is_not_allowed(forgetful: BrokerUnderTest) -> None:
    """K12: 53 before anything else is looked at. Keeping alone needs no such right at ours; Kafka: 35."""
    with forgetful.connect() as client:
        name = forgetful.name("txn")
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        for keep in (False, True):
            for timeout_ms in (60_000, 0):
                answer = client.settled(
                    lambda keep=keep, timeout_ms=timeout_ms: client.init_producer_id(  # type: ignore[misc]
                        name, two_phase=True, keep_prepared=keep, timeout_ms=timeout_ms
                    )
                )
                assert answer.error_code == refused
        assert client.init_producer_id("", two_phase=True).error_code == ErrorCode.INVALID_REQUEST
        assert client.describe_transaction(name).error_code == 105
        reply = client.settled(lambda: client.init_producer_id(name, keep_prepared=True))
        assert reply.error_code == (0 if forgetful.is_ours else ErrorCode.UNSUPPORTED_VERSION)


def test_a_producer_that_outlives_its_topic(broker: BrokerUnderTest, client: RawClient) -> None:
    """The new topic takes the sequence that is next, and the batches that are in flight behind it."""
    topic, me = client.create_topic(broker.name("replaced")), a_producer(client)
    assert [client.produce(topic, a_batch(me, number)).error_code for number in range(3)] == [0, 0, 0]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
    assert client.call(deletion, 6).responses[0].error_code == 0
    until(lambda: client.produce(topic, a_batch(me, 3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    client.create_topic(topic)
    reported = [client.produce(topic, a_batch(me, number)) for number in (3, 4, 5, 4, 7)]
    assert [(each.error_code, each.base_offset) for each in reported] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 1),
        (OUT_OF_ORDER, -1),
    ]
