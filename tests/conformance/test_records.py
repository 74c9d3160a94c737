"""Produce and Fetch, idempotence, and both isolation levels. Expected answers: Apache Kafka 4.4 as observed."""

from __future__ import annotations

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.encoding import encode_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Producer, RawClient


def a_producer(client: RawClient) -> Producer:
    given = client.init_producer_id(None)
    assert given.error_code == 0
    return Producer(given.producer_id, given.producer_epoch)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_fetched(broker: BrokerUnderTest, client: RawClient, compression: str) -> None:
    topic = client.create_topic(broker.name("plain"))
    values = [f"value {number}".encode() * 20 for number in range(50)]
    batch = encode_batch(keys=[b"k"] * 50, values=values, timestamps=1_700_000_000_000, compression=compression)
    first = client.produce(topic, bytes(batch))
    second = client.produce(topic, bytes(batch))
    assert (first.error_code, first.base_offset, first.log_append_time_ms, first.log_start_offset) == (0, 0, -1, 0)
    assert (second.error_code, second.base_offset) == (0, 50)
    fetched = client.fetch(topic)
    assert fetched.values == values + values
    assert fetched.offsets == list(range(100))
    assert (fetched.result.high_watermark, fetched.result.last_stable_offset) == (100, 100)
    assert client.fetch(topic, 70).offsets == list(range(70, 100))


def test_a_fetch_beyond_the_end(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("end"))
    client.produce(topic, [b"a"])
    assert client.fetch(topic, 1).result.error_code == 0
    assert client.fetch(topic, 1).values == []
    assert client.fetch(topic, 2).result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_unknown_topic(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("nowhere")
    assert client.produce(name, [b"a"]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch(name).result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_bad_crc(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("crc"))
    batch = encode_batch(keys=[None], values=[b"sound"], timestamps=1)
    batch[-1] ^= 1
    assert client.produce(topic, bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert client.end_offset(topic) == 0


def test_duplicates_gaps_and_old_epochs(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("idempotent"))
    me = a_producer(client)
    for number in range(3):
        answer = client.produce(topic, [b"x", b"y"], producer=me, sequence=2 * number)
        assert (answer.error_code, answer.base_offset) == (0, 2 * number)
    duplicate = client.produce(topic, [b"x", b"y"], producer=me, sequence=2)
    assert (duplicate.error_code, duplicate.base_offset) == (0, 2)
    gap = client.produce(topic, [b"x"], producer=me, sequence=8)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    overlap = client.produce(topic, [b"x", b"y"], producer=me, sequence=5)
    assert overlap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = Producer(me.producer_id, me.epoch + 1)
    assert client.produce(topic, [b"x"], producer=newer, sequence=5).error_code == 45
    assert client.produce(topic, [b"x"], producer=newer, sequence=0).error_code == 0
    old = client.produce(topic, [b"x"], producer=me, sequence=6)
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end_offset(topic) == 7


def test_sequences_wrap_to_zero(broker: BrokerUnderTest, client: RawClient) -> None:
    """From 2**31 - 1 to 0, never to a negative number (some clients get this wrong).

    An unknown producer's first batch has to start at 0 at ours, so there the setting that restores Kafka's rule is on.
    """
    if not broker.is_ours:
        wraps(broker, client)
        return
    with Broker({"producer.state.check": "kafka"}) as lenient, RawClient(lenient.bootstrap_servers) as connected:
        wraps(broker, connected)


def wraps(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("wrap"))
    me = a_producer(client)
    assert client.produce(topic, [b"a", b"b"], producer=me, sequence=2**31 - 2).error_code == 0
    assert client.produce(topic, [b"c"], producer=me, sequence=0).error_code == 0
    assert client.produce(topic, [b"d"], producer=me, sequence=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.fetch(topic).values == [b"a", b"b", b"c"]


def test_a_duplicate_older_than_five_batches(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka: 45. Ours: 46, which every client takes for what it is, a success (KIP-360's missing half)."""
    topic = client.create_topic(broker.name("old"))
    me = a_producer(client)
    for number in range(7):
        assert client.produce(topic, [b"x"], producer=me, sequence=number).error_code == 0
    expected = ErrorCode.DUPLICATE_SEQUENCE_NUMBER if broker.is_ours else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, [b"x"], producer=me, sequence=0).error_code == expected
    assert client.end_offset(topic) == 7


def test_an_unknown_producer_in_mid_sequence(broker: BrokerUnderTest, client: RawClient) -> None:
    """Kafka accepts any first sequence, which hides loss; ours says UNKNOWN_PRODUCER_ID with the log start offset."""
    topic = client.create_topic(broker.name("unknown"))
    me = a_producer(client)
    answer = client.produce(topic, [b"x"], producer=me, sequence=7)
    if broker.is_ours:
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)
        assert client.end_offset(topic) == 0
    else:
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_transactional_id_without_a_transactional_batch(broker: BrokerUnderTest, client: RawClient) -> None:
    """K53: a plain append, and the transaction stays Empty."""
    topic = client.create_topic(broker.name("plain"))
    name = broker.name("txn")
    me = client.start_producer(name)
    batch = encode_batch(
        keys=[None], values=[b"x"], timestamps=1, producer_id=me.producer_id, producer_epoch=me.epoch, base_sequence=0
    )
    assert client.produce(topic, bytes(batch), transactional_id=name).error_code == 0
    assert client.describe_transaction(name).transaction_state == "Empty"
    assert client.fetch(topic, committed=True).values == [b"x"]
