"""The source's readers on our broker, called as PySpark calls them, without a JVM."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.broker.embedded import Broker
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError, DataLossError
from fencepost.protocol.columns import encode_batch
from fencepost.spark import wire
from fencepost.spark.runner import Link
from fencepost.spark.source import BatchReader, StreamReader, source_schema

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(HEADER))])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Topic:
    """A topic that is written with raw batches."""

    def __init__(self, broker: Broker, partitions: int = 2, **configs: str) -> None:
        self.name = f"in-{uuid.uuid4().hex[:8]}"
        self.servers = broker.bootstrap_servers
        self.link = Link({"bootstrap.servers": self.servers})
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.link.io.run(self.link.admin.create_topic(self.name, partitions, configs=settings))

    def write(self, partition: int, values: list[str], at_ms: int = 1_600_000_000_000, **stamp: Any) -> None:
        transactional_id = stamp.pop("transactional_id", None)
        batch = encode_batch(
            keys=[b"k"] * len(values),
            values=[value.encode() for value in values],
            timestamps=[at_ms + number for number in range(len(values))],
            **stamp,
        )
        cluster = self.link.admin.cluster
        deadline_ms = cluster.runtime.now_ms() + 20_000
        sent = wire.produce_batch(cluster, transactional_id, self.name, partition, batch, deadline_ms)
        assert self.link.io.run(sent) == 0

    def write_transaction(self, partition: int, values: list[str], commit: bool | None) -> None:
        """`commit` None: it stays open."""
        name = f"t-{uuid.uuid4().hex}"
        owner = self.link.io.run(self.link.admin.init_producer_id(name))
        stamp = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch, "base_sequence": 0}
        self.write(partition, values, transactional=True, transactional_id=name, **stamp)
        if commit is not None:
            ended = self.link.admin.end_transaction(name, owner.producer_id, owner.producer_epoch, commit, version=5)
            assert self.link.io.run(ended).error_code == 0

    def options(self, **more: str) -> dict[str, str]:
        lowered = {key.lower(): value for key, value in more.items()}
        if not {"subscribe", "assign", "subscribepattern"} & lowered.keys():
            lowered["subscribe"] = self.name
        return {"kafka.bootstrap.servers": self.servers, **lowered}

    def stream(self, **more: str) -> StreamReader:
        return StreamReader(self.options(startingOffsets="earliest", **more), SCHEMA)


def values(reader: StreamReader | BatchReader, partitions: Any) -> list[str]:
    """Every value, after the trip that PySpark sends reader and partitions on."""
    reader = pickle.loads(pickle.dumps(reader))
    read = [batch for part in partitions for batch in reader.read(pickle.loads(pickle.dumps(part)))]
    return [value.decode() for batch in read for value in batch.column("value").to_pylist()]


def test_a_stream_reads_what_is_committed_and_stops_at_the_last_stable_offset(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, ["a", "b"])
    topic.write_transaction(0, ["aborted"], commit=False)
    topic.write_transaction(0, ["c"], commit=True)
    topic.write_transaction(0, ["open"], commit=None)
    topic.write(0, ["behind the open one"])
    topic.write(1, ["d"])
    reader = topic.stream()
    start = reader.initialOffset()
    assert start == {topic.name: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    # a, b, the aborted record, its marker, c, its marker: six offsets are stable.
    assert end == {topic.name: {"0": 6, "1": 1}}
    assert values(reader, reader.partitions(start, end)) == ["a", "b", "c", "d"]
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert values(reader, reader.partitions(end, end)) == []
    uncommitted = topic.stream(**{"kafka.isolation.level": "read_uncommitted"})
    far = uncommitted.latestOffset(start, ReadAllAvailable())
    assert far == {topic.name: {"0": 8, "1": 1}}
    assert values(uncommitted, uncommitted.partitions(start, far)) == [
        *("a", "b", "aborted", "c", "open", "behind the open one"),
        "d",
    ]


def test_limits_and_splits_cover_everything_once(broker: Broker) -> None:
    topic = Topic(broker)
    for number in range(20):
        topic.write(number % 2, [f"{number} {row}" for row in range(37)])
    reader = topic.stream(maxOffsetsPerTrigger="100", minPartitions="7")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(100)
    at, found, batches = reader.initialOffset(), [], 0
    while (end := reader.latestOffset(at, limit)) != at:
        parts = reader.partitions(at, end)
        assert 6 <= len(parts) <= 8
        assert pickle.dumps(parts) == pickle.dumps(topic.stream(minPartitions="7").partitions(at, end))
        found += values(reader, parts)
        at, batches = end, batches + 1
    assert batches == 8
    assert sorted(found) == sorted(f"{number} {row}" for number in range(20) for row in range(37))
    assert reader.reportLatestOffset() == at


def test_available_now_ends_where_the_topic_ended_at_its_start(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, ["a"])
    reader = topic.stream()
    reader.prepareForTriggerAvailableNow()
    topic.write(0, ["too late"])
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == {topic.name: {"0": 1, "1": 0}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_new_partition_is_read_from_its_beginning(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    reader = topic.stream()
    start = reader.initialOffset()
    topic.link.io.run(topic.link.admin.create_partitions(topic.name, 2))
    topic.write(1, ["new"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {topic.name: {"0": 0, "1": 1}}
    assert values(reader, reader.partitions(start, end)) == ["new"]


def test_lost_data_is_an_error_unless_it_may_be_lost(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["gone"])
    topic.write(0, ["there"])
    reader = topic.stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    topic.link.io.run(topic.link.admin.delete_records({TopicPartition(topic.name, 0): 1}))
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        reader.partitions(start, end)
    careless = topic.stream(failOnDataLoss="false")
    assert values(careless, careless.partitions(start, end)) == ["there"]


def test_columns_are_exactly_those_of_sparks_source(broker: Broker) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    topic = Topic(broker, partitions=1)
    topic.write(0, ["a"], at_ms=1_600_000_000_123, headers=[[("h", b"1"), ("n", None)]])
    reader = BatchReader(topic.options(includeHeaders="true"), WITH_HEADERS)
    (part,) = reader.partitions()
    (batch,) = list(reader.read(part))
    assert batch.schema.equals(to_arrow_schema(WITH_HEADERS, timezone="UTC"))
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == 1_600_000_000.123
    assert row == {
        "key": b"k",
        "value": b"a",
        "topic": topic.name,
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
    }
    assert source_schema({}).count(",") == 6
    assert source_schema({"includeheaders": "true"}).count(",") == 8


def test_the_broker_may_set_the_timestamps(broker: Broker) -> None:
    topic = Topic(broker, partitions=1, message_timestamp_type="LogAppendTime")
    topic.write(0, ["a", "b"], at_ms=1000)
    reader = BatchReader(topic.options(), SCHEMA)
    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert batch.column("timestampType").to_pylist() == [1, 1]
    assert batch.column("timestamp")[0].as_py().year > 2020


def test_a_batch_reads_between_its_offsets_or_times(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, ["a", "b", "c"], at_ms=5000)
    topic.write(1, ["d"], at_ms=9000)

    def read(**more: str) -> list[str]:
        reader = BatchReader(topic.options(**more), SCHEMA)
        return values(reader, reader.partitions())

    assert read() == ["a", "b", "c", "d"]
    assert read(startingOffsets=json.dumps({topic.name: {"0": 1, "1": -2}})) == ["b", "c", "d"]
    assert read(endingOffsets=json.dumps({topic.name: {"0": 2, "1": 0}})) == ["a", "b"]
    assert read(startingTimestamp="5002") == ["c", "d"]
    assert read(endingTimestamp="5001") == ["a"]
    assert read(assign=json.dumps({topic.name: [1]})) == ["d"]
    assert read(subscribePattern=f"{topic.name[:-1]}.") == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"assign": "{}"},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"subscribe": "no-such-topic"},
        {"minPartitions": "none"},
        {"maxOffsetsPerTrigger": "0"},
        {"failOnDataLoss": "maybe"},
        {"kafka.isolation.level": "serializable"},
        {"kafka.group.id": "g"},
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest", "startingTimestamp": "5"},
    ],
)
def test_wrong_options_are_refused(broker: Broker, wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        BatchReader(Topic(broker).options(**wrong), SCHEMA).partitions()


def test_a_stream_has_no_end(broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="batch"):
        Topic(broker).stream(endingOffsets="latest")
