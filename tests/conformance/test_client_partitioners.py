"""Keys land where other people's clients put them: librdkafka is asked for the expected partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import aiokafka.partitioner
import kafka
import pyarrow as pa
import pytest
from confluent_kafka import Producer as Confluent

import fencepost
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError, ProduceFailedError

PARTITIONS = 7
KEYS = [b"key-%d" % number for number in range(100)] + [b"\xff\x00", b"k" * 300]
NO_KEYS = [None, b""]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", PARTITIONS)
        yield broker.bootstrap_servers


def librdkafkas(servers: str, partitioner: str, keys: Sequence[bytes | None] = KEYS) -> list[int]:
    chosen: dict[bytes | None, int] = {}
    producer = Confluent({"bootstrap.servers": servers, "partitioner": partitioner})

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        chosen[keys[int(message.value())]] = message.partition()

    for number, key in enumerate(keys):
        producer.produce("t", b"%d" % number, key=key, on_delivery=delivered)
    assert producer.flush(120) == 0
    return [chosen[key] for key in keys]


@pytest.mark.parametrize(
    "partitioner", ["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"]
)
def test_keys_go_where_librdkafka_sends_them(servers: str, partitioner: str) -> None:
    expected = librdkafkas(servers, partitioner)
    assert len(set(expected)) == PARTITIONS
    with fencepost.Producer(servers, partitioner=partitioner) as producer:
        sent = [producer.send("t", b"v", key=key) for key in KEYS]
        assert [future.result(120).partition for future in sent] == expected
        table = pa.table({"key": pa.array(KEYS, pa.binary()), "value": pa.array([b"v"] * len(KEYS), pa.binary())})
        appended = producer.send_arrow("t", table).result(120)
    counted = {partition: expected.count(partition) for partition in range(PARTITIONS)}
    assert {run.partition: run.records for run in appended} == counted


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
def test_records_without_keys_go_where_librdkafka_sends_them(servers: str, partitioner: str) -> None:
    expected = librdkafkas(servers, partitioner, NO_KEYS)
    with fencepost.Producer(servers, partitioner=partitioner) as producer:
        sent = [producer.send("t", b"v", key=key) for key in NO_KEYS]
        assert [future.result(120).partition for future in sent] == expected
        sent = [producer.send("t", b"v", key=key) for key in (*NO_KEYS, KEYS[0])]  # some without, in one batch
        assert [future.result(120).partition for future in sent[:2]] == expected
        (alone,) = producer.send_arrow("t", pa.table({"value": pa.array([b"v"], pa.binary())})).result(120)
        assert alone.partition == expected[0]
        table = pa.table({"key": pa.array([None], pa.binary()), "value": pa.array([b"v"], pa.binary())})
        (null,) = producer.send_arrow("t", table).result(120)
        assert null.partition == expected[0]


def test_random_ignores_keys(servers: str) -> None:
    with fencepost.Producer(servers, partitioner="random") as producer:
        sent = [producer.send("t", b"v", key=key) for key in KEYS]
        assert len({future.result(120).partition for future in sent}) == 1, "one sticky partition for so few bytes"


def test_partitioners_of_other_clients() -> None:
    def of_kafka_python(key: bytes, all_partitions: list[int], available: list[int]) -> int:
        return available[0]

    with pytest.raises(ConfigurationError, match="topic, key, value, number of partitions"):
        fencepost.Producer("x:1", partitioner=of_kafka_python)  # type: ignore[arg-type]
    for default in (aiokafka.partitioner.DefaultPartitioner(), kafka.KafkaProducer.DEFAULT_CONFIG["partitioner"]):
        assert ProducerConfig.make({"bootstrap_servers": "x:1", "partitioner": default}).partitioner == "murmur2_random"


def test_a_function_may_choose(servers: str) -> None:
    asked = []

    def by_value(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        asked.append((topic, key, value, partitions))
        return int(value) if value is not None and value.isdigit() else None

    with fencepost.Producer(servers, partitioner=by_value) as producer:
        sent = [producer.send("t", b"3"), producer.send("t", b"5", key=b"k"), producer.send("t", b"5", partition=1)]
        assert [future.result(120).partition for future in sent] == [3, 5, 1]
        assert asked == [("t", None, b"3", PARTITIONS), ("t", b"k", b"5", PARTITIONS)]
        assert producer.send("t", b"any").result(120).partition in range(PARTITIONS)
        with pytest.raises(ProduceFailedError, match="partition 99"):
            producer.send("t", b"99").result(120)
        with pytest.raises(ProduceFailedError, match="column 'partition'"):
            producer.send_arrow("t", pa.table({"value": [b"v"]})).result(120)


def test_a_function_that_fails_rejects_the_record(servers: str) -> None:
    def broken(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        raise LookupError("nowhere")

    with (
        fencepost.Producer(servers, partitioner=broken) as producer,
        pytest.raises(ProduceFailedError, match="nowhere"),
    ):
        producer.send("t", b"v").result(120)


def test_keys_may_be_ignored(servers: str) -> None:
    with fencepost.Producer(servers, partitioner_ignore_keys=True) as producer:
        sent = [producer.send("t", b"v", key=key) for key in KEYS]
        assert len({future.result(120).partition for future in sent}) == 1, "one sticky partition for so few bytes"


def test_an_unknown_partitioner() -> None:
    with pytest.raises(ConfigurationError, match="consistent_random"):
        fencepost.Producer("x:1", partitioner="fnv2a")
