"""The source's readers on our broker, called as PySpark calls them, without a JVM."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import (
    BinaryType,
    StructField,
    StructType,
)

from fencepost.broker.embedded import Broker
from fencepost.client.admin.core import AdminCore
from fencepost.client.group import committed_offsets as group_offsets
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.errors import ConfigurationError, DataLossError
from fencepost.spark.sink.runner import ClusterClient
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.columns import RANGE_SCHEMA, source_schema
from fencepost.spark.source.ranges import Range
from fencepost.spark.source.reader import StreamReader
from fencepost.spark.source.shared import RangePartition
from tests.spark.source_topics import SCHEMA, WITH_HEADERS, Topic, offsets, plain, values


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


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
    assert plain(start) == {topic.name: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    # a, b, the aborted record, its marker, c, its marker: six offsets are stable.
    assert plain(end) == {topic.name: {"0": 6, "1": 1}}
    assert values(reader, reader.partitions(start, end)) == ["a", "b", "c", "d"]
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert values(reader, reader.partitions(end, end)) == []
    uncommitted = topic.stream(**{"kafka.isolation.level": "read_uncommitted"})
    far = uncommitted.latestOffset(start, ReadAllAvailable())
    assert plain(far) == {topic.name: {"0": 8, "1": 1}}
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
    assert plain(end) == {topic.name: {"0": 1, "1": 0}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_new_partition_is_read_from_its_beginning(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    reader = topic.stream()
    start = reader.initialOffset()
    topic.link.io.run(topic.link.admin.create_partitions(topic.name, 2))
    topic.write(1, ["new"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {topic.name: {"0": 0, "1": 1}}
    assert values(reader, reader.partitions(start, end)) == ["new"]


def test_lost_data_is_an_error_unless_it_may_be_lost(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["gone"])
    topic.write(0, ["there"])
    reader = topic.stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    topic.link.io.run(topic.admin.delete_records({TopicPartition(topic.name, 0): 1}))
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
    assert source_schema({}) == SCHEMA
    assert source_schema({"includeheaders": "true"}) == WITH_HEADERS


def test_only_the_columns_that_are_asked_for_are_read_in_that_order(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a"], headers=[[("h", b"1")]])
    options = topic.options(columns="Value, offset,headers", includeHeaders="false")
    schema = source_schema(options)
    reader = BatchReader(options, schema)
    (batch,) = (batch for part in reader.partitions() for batch in reader.read(part))
    assert [tuple(row.items()) for row in batch.to_pylist()] == [
        (("value", b"a"), ("offset", 0), ("headers", [{"key": "h", "value": b"1"}]))
    ]


@pytest.mark.parametrize(
    ("columns", "why"),
    [("key,valeu", "there is no column 'valeu', only key, value, topic"), ("key,KEY", "twice"), ("", "no column ''")],
)
def test_columns_that_are_not_there_are_refused(columns: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"columns='{columns}': .*{why}"):
        source_schema({"columns": columns})


def test_a_column_that_the_source_does_not_have_is_refused_in_a_schema_of_the_users(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a"])
    reader = BatchReader(topic.options(), StructType([StructField("valeu", BinaryType())]))
    with pytest.raises(ConfigurationError, match="no column 'valeu'"):
        [batch for part in reader.partitions() for batch in reader.read(part)]


NOTHING = RangePartition(Range("", 0, 0, 0))


NOTHING.value = None  # as Spark asks where nothing was planned


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"startingOffsets": '{"NAME":{"0":1,"1":0}}'},
        {"startingOffsets": '{"NAME":{"0":1,"1":0}}', "endingOffsets": '{"NAME":{"0":-1,"1":-1}}'},
        {"startingTimestamp": "4000000000000", "startingOffsetsByTimestampStrategy": "latest"},
        {"subscribePattern": "no-topic-has-this-name-.*"},
    ],
    ids=str,
)
def test_nothing_to_read_is_no_error(broker: Broker, wanted: dict[str, str]) -> None:
    topic = Topic(broker)
    if wanted:
        topic.write(0, ["a"])
    options = topic.options(**{name: text.replace("NAME", topic.name) for name, text in wanted.items()})
    for schema in (SCHEMA, RANGE_SCHEMA):
        reader = BatchReader(options, schema)
        assert reader.partitions() == []
        assert list(reader.read(NOTHING)) == []


def test_a_stream_without_partitions_waits_for_some(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribepattern": f"{name}-.*"}
    reader = StreamReader(options, SCHEMA)
    start = reader.initialOffset()
    assert start == reader.latestOffset(start, ReadAllAvailable()) == {}
    assert reader.partitions(start, start) == []
    assert f"'{name}-.*' matches no topic so far: nothing is read" in caplog.text
    link = ClusterClient({"bootstrap.servers": broker.bootstrap_servers})
    link.io.run(AdminCore(link.admin.cluster).create_topic(f"{name}-1", 1))
    topic = Topic(broker)
    topic.name = f"{name}-1"
    topic.write(0, ["a"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values(reader, reader.partitions(start, end)) == ["a"]


@pytest.mark.parametrize(
    ("way", "wanted", "message"),
    [
        ("assign", '{"no-such-topic":[0]}', "option assign names topics that do not exist: no-such-topic"),
        ("assign", '{"NAME":[0,7]}', "option assign names partitions that do not exist: NAME-7"),
        ("subscribe", "NAME,no-such-topic", "option subscribe names topics that do not exist: no-such-topic"),
    ],
)
def test_what_is_named_and_missing_is_an_error(broker: Broker, way: str, wanted: str, message: str) -> None:
    topic = Topic(broker)
    options = {"kafka.bootstrap.servers": topic.servers, way: wanted.replace("NAME", topic.name)}
    why = message.replace("NAME", topic.name)
    with pytest.raises(ConfigurationError, match=why):
        BatchReader(options, SCHEMA).partitions()
    with pytest.raises(ConfigurationError, match=why):
        StreamReader(options, SCHEMA).initialOffset()


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
    assert read(subscribePattern=topic.name[2:-1]) == ["a", "b", "c", "d"]  # found within the name, as Spark's own does
    assert read(subscribePattern=f"^{topic.name[1:]}|{topic.name[:-1]}$") == []


def test_an_end_that_is_not_there_is_told_at_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A task would wait for it as long as kafkaConsumer.pollTimeoutMs allows, two minutes unless set."""
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    beyond = offsets(topic, 9)
    with pytest.raises(DataLossError, match=f"{topic.name}-0 ends at offset 2, and offsets up to 8 were to be read"):
        BatchReader(topic.options(endingOffsets=beyond), SCHEMA).partitions()
    reader = BatchReader(topic.options(endingOffsets=beyond, failOnDataLoss="false"), SCHEMA)
    assert values(reader, reader.partitions()) == ["a", "b"]
    assert "ends at offset 2" in caplog.text

    # A batch that an earlier run has planned, of a topic that had more.
    start, end = {topic.name: {"0": 1}}, {topic.name: {"0": 9}}
    with pytest.raises(DataLossError, match="ends at offset 2"):
        topic.stream().partitions(start, end)
    stream = topic.stream(failOnDataLoss="false")
    assert values(stream, stream.partitions(start, end)) == ["b"]


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
        {"startingOffsets": "latest"},
        {"startingTimestamp": "soon"},
        {"startingTimestamp": '{"a":{"0":5}}'},
        {"startingOffsetsByTimestamp": '{"a":{"0":-5}}'},
        {"startingOffsetsByTimestamp": "5"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"endingOffsets": "earliest"},
        {"subscribePattern": "("},
        {"maxTriggerDelay": "soon"},
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        {"commitOffsets": "true"},
        {"kafka.no.such.setting": "1"},
    ],
)
def test_wrong_options_are_refused(broker: Broker, wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        BatchReader(Topic(broker).options(**wrong), SCHEMA).partitions()


def test_timestamps_come_before_offsets_and_each_partition_may_have_its_own(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, ["a", "b", "c"], at_ms=5000)
    topic.write(1, ["d", "e"], at_ms=9000)

    def read(**more: str) -> list[str]:
        reader = BatchReader(topic.options(**more), SCHEMA)
        return values(reader, reader.partitions())

    # The order of preference in Spark's documentation: one timestamp, a timestamp each, offsets.
    later = offsets(topic, 5002, 9001)
    assert read(startingOffsetsByTimestamp=later, startingOffsets="earliest") == ["c", "e"]
    assert read(startingTimestamp="5001", startingOffsetsByTimestamp=later) == ["b", "c", "d", "e"]
    assert read(endingOffsetsByTimestamp=offsets(topic, 5001, 9001), endingOffsets="latest") == ["a", "d"]
    assert read(endingOffsetsByTimestamp=offsets(topic, 5001, 99_000)) == ["a", "d", "e"]
    with pytest.raises(ConfigurationError, match=f"{topic.name}-0 has no record at or after 6000"):
        read(startingTimestamp="6000")
    assert read(startingTimestamp="6000", startingOffsetsByTimestampStrategy="latest") == ["d", "e"]
    with pytest.raises(ConfigurationError, match="missing"):
        read(startingOffsetsByTimestamp=json.dumps({topic.name: {"0": 1}}))
    with pytest.raises(ConfigurationError, match="startingOffsets is 2, endingOffsets is 1"):
        read(startingOffsets=offsets(topic, 2, 0), endingOffsets=offsets(topic, 1, 0))


def test_the_four_places_of_a_gap(broker: Broker) -> None:
    """A batch without a record; its first, its last, and a middle offset that is no record (apache/spark#22042)."""
    topic = Topic(broker, partitions=1)
    topic.write_transaction(0, ["aborted"], commit=False)  # 0, marker 1
    topic.write(0, ["a"])  # 2
    topic.write_transaction(0, ["b"], commit=True)  # 3, marker 4
    topic.write(0, ["c"])  # 5
    reader = topic.stream()

    def read(start: int, end: int) -> list[str]:
        begin, stop = {topic.name: {"0": start}}, {topic.name: {"0": end}}
        return values(reader, reader.partitions(begin, stop))

    assert read(0, 2) == []
    assert read(1, 3) == ["a"]
    assert read(4, 5) == []
    assert read(3, 5) == ["b"]
    assert read(2, 6) == ["a", "b", "c"]
    whole = [read(start, end) for start in range(7) for end in range(start, 7)]
    assert [len(found) for found in whole[:7]] == [0, 0, 0, 1, 2, 2, 3]


def test_a_compacted_topic_is_read_over_its_gaps() -> None:
    with Broker({"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": "0.0"}) as broker:
        topic = Topic(broker, partitions=1, cleanup_policy="compact", segment_bytes="20000")
        for number in range(40):
            topic.write(0, [f"{number} {row}" + "x" * 50 for row in range(20)])  # all of one key
        reader = topic.stream()
        start, end = {topic.name: {"0": 0}}, {topic.name: {"0": 800}}
        until = time.monotonic() + 120
        found = values(reader, reader.partitions(start, end))
        while len(found) == 800 and time.monotonic() < until:
            time.sleep(0.05)
            found = values(reader, reader.partitions(start, end))
        assert 1 <= len(found) < 800, "nothing was compacted"
        assert found[-1].startswith("39 19")
        # Cut anywhere, also inside the gaps: the same rows, each once.
        parts = topic.stream(maxRecordsPerPartition="37").partitions(start, end)
        assert len(parts) == 22
        again = values(reader, parts)
        assert len(again) == len(set(again)) <= len(found)
        assert again[-1] == found[-1]


def test_a_batch_waits_for_enough_but_not_for_ever(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("fencepost.spark.source.reader.time.monotonic", lambda: now_s)
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    reader = topic.stream(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4", maxTriggerDelay="10m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    assert topic.stream(minOffsetsPerTrigger="3").getDefaultReadLimit() == ReadMinRows(3)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert plain(first) == {topic.name: {"0": 2}}  # a new run begins at once
    topic.write(0, ["c", "d"])
    assert reader.latestOffset(first, limit) == first
    now_s += 599
    assert reader.latestOffset(first, limit) == first
    topic.write(0, ["e", "f", "g"])
    second = reader.latestOffset(first, limit)
    assert plain(second) == {topic.name: {"0": 6}}  # enough, and no more than four
    assert reader.latestOffset(second, limit) == second
    now_s += 600
    assert plain(reader.latestOffset(second, limit)) == {topic.name: {"0": 7}}
    topic.write(0, ["h"])
    assert plain(reader.latestOffset({topic.name: {"0": 7}}, ReadAllAvailable())) == {topic.name: {"0": 8}}
    available = topic.stream(minOffsetsPerTrigger="100")
    available.prepareForTriggerAvailableNow()
    seven = {topic.name: {"0": 7}}
    assert plain(available.latestOffset(seven, ReadMinRows(100))) == {topic.name: {"0": 8}}


def test_a_task_reads_at_most_so_many_records(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, [str(number) for number in range(10)])
    topic.write(1, ["x"])
    reader = topic.stream(maxRecordsPerPartition="4")
    parts = reader.partitions(reader.initialOffset(), {topic.name: {"0": 10, "1": 1}})
    assert [tuple(part.value)[1:4] for part in parts] == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 1)]
    assert values(reader, parts) == [*(str(number) for number in range(10)), "x"]


def test_finished_offsets_are_shown_to_a_group(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b", "c"])
    group = f"lag-of-{topic.name}"
    shown = {"commitOffsets": "true", "kafka.group.id": group}
    reader = topic.stream(**shown)

    def committed() -> dict[TopicPartition, int]:
        found = topic.link.io.run(topic.admin.group_offsets(group))
        return {partition: at.offset for partition, at in found.items()}

    topic.stream(**{"kafka.group.id": group}).commit({topic.name: {"0": 1}})
    assert committed() == {}  # only on request
    reader.commit({topic.name: {"0": 2}})
    assert committed() == {TopicPartition(topic.name, 0): 2}
    reader.latestOffset({topic.name: {"0": 3}}, ReadAllAvailable())  # a batch begins where the last one ended
    assert committed() == {TopicPartition(topic.name, 0): 3}
    monkeypatch.setattr("fencepost.spark.source.reader.COMMIT_PATIENCE_MS", 500)
    reader.commit({"no-such-topic": {"0": 2}})
    assert f"the offsets were not committed to group '{group}'" in caplog.text


def test_new_topics_that_fit_the_pattern_are_found_while_running(broker: Broker) -> None:
    first = Topic(broker, partitions=1)
    first.write(0, ["a"])
    reader = first.stream(subscribePattern=f"{first.name}.*")
    start = reader.initialOffset()
    second = Topic(broker, partitions=1)
    name = f"{first.name}-more"
    second.link.io.run(second.link.admin.create_topic(name, 1))
    second.name = name
    second.write(0, ["b"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {first.name: {"0": 1}, name: {"0": 1}}
    assert values(reader, reader.partitions(start, end)) == ["a", "b"]


def read_up(reader: StreamReader, start: Any) -> tuple[list[str], Any]:
    """Read the stream until it stands still. Return the sorted values and the last offset."""
    found: list[str] = []
    while (end := reader.latestOffset(start, ReadMaxRows(3))) != start:
        found += values(reader, reader.partitions(start, end))
        start = end
    return sorted(found), start


@pytest.mark.parametrize(
    ("option", "end"),
    [
        ("endingOffsets", '{"NAME":{"0":4,"1":9}}'),
        ("endingTimestamp", "1004"),
        ("endingOffsetsByTimestamp", '{"NAME":{"0":1004,"1":2000}}'),
    ],
)
def test_a_stream_may_have_an_end(broker: Broker, option: str, end: str) -> None:
    topic = Topic(broker)
    topic.write(0, [f"a{number}" for number in range(3)], at_ms=1000)
    reader = topic.stream(**{option: end.replace("NAME", topic.name)})
    found, at = read_up(reader, reader.initialOffset())
    assert found == ["a0", "a1", "a2"]
    topic.write(0, [f"a{number}" for number in range(3, 9)], at_ms=1003)
    topic.write(1, ["b0", "b1"], at_ms=1000)
    # As after a restart, and with a partition that nobody has named.
    topic.link.io.run(topic.admin.create_partitions(topic.name, 3))
    topic.write(2, ["c0"], at_ms=1000)
    reader = topic.stream(**{option: end.replace("NAME", topic.name)})
    found, at = read_up(reader, at)
    late = ["c0"] if option == "endingTimestamp" else []
    assert found == ["a3", "b0", "b1", *late]
    reader.prepareForTriggerAvailableNow()
    assert read_up(reader, at)[0] == []


@pytest.mark.parametrize(
    ("end", "why"),
    [("latest", "has to be the same after a restart"), ('{"NAME":{"0":-1,"1":1}}', "-1 and -2 are no ends")],
)
def test_an_end_that_a_restart_would_move_is_refused(broker: Broker, end: str, why: str) -> None:
    topic = Topic(broker)
    with pytest.raises(ConfigurationError, match=why):
        topic.stream(endingOffsets=end.replace("NAME", topic.name))
    with pytest.raises(ConfigurationError, match=f"missing {topic.name}-1"):
        topic.stream(endingOffsets=f'{{"{topic.name}":{{"0":1}}}}').initialOffset()


def test_a_query_may_begin_where_a_group_stands(broker: Broker) -> None:
    topic, group = Topic(broker), f"group-{uuid.uuid4().hex[:8]}"
    for partition in (0, 1):
        topic.write(partition, [f"{partition}-{number}" for number in range(4)])
    position = {TopicPartition(topic.name, 0): OffsetAndMetadata(3)}
    cluster = topic.link.admin.cluster
    topic.link.io.run(group_offsets.commit(cluster, GroupMetadata(group), position, cluster.runtime.now_ms() + 20_000))
    options = {"kafka.group.id": group}

    def start(word: str) -> Any:
        reader = StreamReader(topic.options(startingOffsets=word, **options), SCHEMA)
        return plain(reader.initialOffset())

    assert start("committed-or-earliest") == {topic.name: {"0": 3, "1": 0}}
    assert start("Committed-or-latest") == {topic.name: {"0": 3, "1": 4}}
    with pytest.raises(ConfigurationError, match=f"group '{group}' has committed no offset for {topic.name}-1"):
        start("committed")
    with pytest.raises(ConfigurationError, match=r"needs kafka\.group\.id"):
        BatchReader(topic.options(startingOffsets="committed"), SCHEMA)
    reader = BatchReader(topic.options(startingOffsets="committed-or-earliest", **options), SCHEMA)
    assert sorted(values(reader, reader.partitions())) == ["0-3", "1-0", "1-1", "1-2", "1-3"]
