"""A producer under an identity that was handed in: what it sends, where to, and what it raises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from fencepost.client.producer.adopted import AdoptedProducer
from fencepost.client.producer.partitioner import partition_for_key
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError, KafkaError, KafkaTimeoutError, RecordRejectedError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import add_sequence, parse_header
from fencepost.protocol.records.decoding import decode_batches
from tests.unit.client.scripted import ScriptedBroker, World, run, topic_id

NAME = "fencepost-sink/s/00"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def adopted(world: World, transactional_id: str | None = NAME, **settings: Any) -> AdoptedProducer:
    config = ProducerConfig.make(
        {"bootstrap_servers": "broker:9092", "linger_ms": 0, "transactional_id": transactional_id, **settings}
    )
    return AdoptedProducer(world.cluster(), config, 77, 3)


def sent(broker: ScriptedBroker) -> list[Any]:
    """Return the batches that the producer sent, in order, as (topic, partition, batch)."""
    names = {topic_id(name): name for name in ("t", "x", "y")}
    return [
        (partition.topic or names[partition.topic_id], partition.partition, bytes(partition.records))
        for request in broker.asked(0)
        for partition in request.partitions
    ]


def rows_of(broker: ScriptedBroker) -> list[tuple[str, int, bytes | None, bytes | None]]:
    found = []
    for topic, partition, batch in sent(broker):
        columns = decode_batches(batch)
        found += [(topic, partition, columns.key(row), columns.value(row)) for row in range(len(columns))]
    return found


def written(
    *chunks: pa.RecordBatch, topic: str | None = "t", partitions: int = 1, name: str | None = NAME, **settings: Any
) -> ScriptedBroker:
    async def main(world: World) -> None:
        producer = adopted(world, name, **settings)
        for chunk in chunks:
            await producer.send(topic, chunk)
        await producer.flush()
        producer.stop()

    return run(main, ScriptedBroker(partitions=partitions))


@pytest.mark.parametrize("name", [NAME, None])
def test_batches_carry_the_identity_and_sequences_without_a_gap(name: str | None) -> None:
    chunks = [
        pa.record_batch({"key": ["k"] * 100, "value": [f"value {n}" for n in range(start, start + 100)]})
        for start in (0, 100, 200)
    ]
    broker = written(*chunks, partitions=3, name=name, max_request_size=600)
    batches = sent(broker)
    assert len(batches) > 3
    following = 0
    for _, partition, batch in batches:
        header = parse_header(batch)
        assert len(batch) <= 600
        assert partition == partition_for_key(b"k", 3)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (77, 3, name is not None)
        assert header.base_sequence == following
        following = add_sequence(header.base_sequence, header.record_count)
    assert [value for *_, value in rows_of(broker)] == [b"value %d" % n for n in range(300)]
    assert {request.transactional_id for request in broker.asked(0)} == {name}
    # Nobody here opens, enlists or ends anything.
    assert [broker.asked(key) for key in (22, 24, 25, 26)] == [[], [], [], []]


def test_keys_go_where_kafkas_producer_would_send_them() -> None:
    keys = [None if n % 10 == 0 else f"key-{n % 37}" for n in range(400)]
    found = rows_of(written(pa.record_batch({"key": keys, "value": [b"%d" % n for n in range(400)]}), partitions=5))
    assert Counter(value for *_, value in found) == Counter(b"%d" % n for n in range(400))
    assert len({partition for _, partition, key, _ in found if key is None}) == 1
    for _, partition, key, _ in found:
        assert key is None or partition == partition_for_key(key, 5)
    for wanted in range(5):  # within a partition the rows keep their order
        numbers = [int(value or b"") for _, partition, _, value in found if partition == wanted]
        assert numbers == sorted(numbers)


def test_keys_go_where_librdkafka_would_send_them() -> None:
    # CRC-32 of the key, modulo: 0xcbf43926 is the check value of "123456789". An empty key counts as none.
    chunk = pa.record_batch({"key": ["123456789", "", None, "123456789"], "value": [b"0", b"1", b"2", b"3"]})
    found = {
        value: partition
        for _, partition, _, value in rows_of(written(chunk, partitions=5, partitioner="consistent_random"))
    }
    assert found[b"0"] == found[b"3"] == 0xCBF43926 % 5
    assert found[b"1"] == found[b"2"]


def test_keys_may_be_ignored() -> None:
    chunk = pa.record_batch({"key": [f"k{n}" for n in range(50)], "value": [b"v"] * 50})
    assert (
        len({partition for _, partition, *_ in rows_of(written(chunk, partitions=5, partitioner_ignore_keys=True))})
        == 1
    )


def test_a_named_partition_wins() -> None:
    chunk = pa.record_batch({"value": ["a", "b", "c"], "partition": pa.array([2, None, 0], pa.int32())})
    found = {value: partition for _, partition, _, value in rows_of(written(chunk, partitions=3))}
    assert (found[b"a"], found[b"c"]) == (2, 0)
    assert len(found) == 3


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_named_partition_has_to_exist(wrong: int) -> None:
    chunk = pa.record_batch({"value": ["a", "b"], "partition": pa.array([wrong, None], pa.int32())})
    with pytest.raises(RecordRejectedError, match=f"partition {wrong} of 't', which has 2"):
        written(chunk, partitions=2)


def test_the_topic_column_counts_when_there_is_no_topic() -> None:
    chunk = pa.record_batch({"value": ["a", "b", "c"], "topic": ["x", "y", "x"]})
    found = rows_of(written(chunk, topic=None))
    assert sorted((topic, value) for topic, _, _, value in found) == [("x", b"a"), ("x", b"c"), ("y", b"b")]
    with pytest.raises(ConfigurationError, match="nulls"):
        written(pa.record_batch({"value": ["a"], "topic": pa.array([None], pa.string())}), topic=None)


def test_timestamps_and_headers_are_kept() -> None:
    when = pa.array([1_600_000_000_123_000, None], pa.timestamp("us", tz="UTC"))
    headers = pa.array([[{"key": "h", "value": b"1"}], None], HEADERS)
    ((_, _, batch),) = sent(written(pa.record_batch({"value": ["a", "b"], "timestamp": when, "headers": headers})))
    columns = decode_batches(batch)
    assert columns.timestamps[0] == 1_600_000_000_123
    assert [columns.headers(0), columns.headers(1)] == [[("h", b"1")], []]


@pytest.mark.parametrize(
    ("code", "words"),
    [(ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"), (ErrorCode.INVALID_TXN_STATE, "INVALID_TXN_STATE")],
)
def test_the_first_refusal_ends_it(code: ErrorCode, words: str) -> None:
    broker = ScriptedBroker(partitions=2)
    broker.refuse_produce(code)
    reported: list[KafkaError] = []

    async def main(world: World) -> None:
        producer = adopted(world)
        chunk = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 0], pa.int32())})
        await producer.send("t", chunk)
        with pytest.raises(KafkaError, match=words) as first:
            await producer.flush()
        reported.append(first.value)
        requests = len(broker.asked(0))
        with pytest.raises(KafkaError) as second:
            await producer.send("t", chunk)
        assert second.value is first.value
        producer.stop()
        assert len(broker.asked(0)) == requests

    run(main, broker)
    assert reported[0].code == code


def test_what_the_broker_refuses_is_named_when_time_runs_out() -> None:
    broker = ScriptedBroker()
    broker.refuse_produce(ErrorCode.KAFKA_STORAGE_ERROR, times=10_000)

    async def main(world: World) -> None:
        producer = adopted(world, delivery_timeout_ms=1_500)
        await producer.send("t", pa.record_batch({"value": ["a"]}))
        with pytest.raises(KafkaTimeoutError, match="KAFKA_STORAGE_ERROR"):
            await producer.flush()
        producer.stop()

    run(main, broker)
    assert len(broker.asked(0)) > 1


def test_too_much_on_the_way_is_waited_for() -> None:
    chunk = pa.record_batch({"value": ["x" * 100] * 100})
    broker = written(*[chunk] * 20, buffer_memory=20_000, max_request_size=5_000)
    assert len(rows_of(broker)) == 2_000
