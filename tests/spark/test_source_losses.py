"""Records that a source's query has to read and that are gone: topics made anew, partitions cut, retention."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fencepost.broker.embedded import Broker
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError, DataLossError
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.reader import (
    StreamReader,
    UnlimitedStreamReader,
)
from tests.spark.source_topics import SCHEMA, Topic, plain, values


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def restarted(start: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the offsets as they come back from a checkpoint."""
    found: dict[str, dict[str, int]] = json.loads(json.dumps(start))
    return found


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern", "assign"])
def test_a_topic_that_was_made_again_while_the_query_was_down_is_a_loss(
    broker: Broker, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    how = {way: json.dumps({topic.name: [0]}) if way == "assign" else topic.name}
    first = topic.stream(**how)
    start = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    planned = topic.stream(**how).initialOffset(), start
    topic.link.io.run(topic.link.admin.delete_topic(topic.name))
    topic.link.io.run(topic.link.admin.create_topic(topic.name, 1))
    topic.write(0, [f"new {number}" for number in range(5)])  # more than were read before: the position is inside
    strict, careless = topic.stream(**how), topic.stream(**how, failOnDataLoss="false")
    with pytest.raises(DataLossError, match="created again"):
        strict.latestOffset(restarted(start), ReadAllAvailable())
    end = careless.latestOffset(restarted(start), ReadAllAvailable())
    assert values(careless, careless.partitions(restarted(start), restarted(end))) == [f"new {n}" for n in range(5)]
    assert careless.latestOffset(restarted(end), ReadAllAvailable()) == end
    assert "created again" in caplog.text
    # A batch that was planned before, and is read now: nothing of it is there any more.
    begin, stop = map(restarted, planned)
    with pytest.raises(DataLossError, match="created again"):
        topic.stream(**how).partitions(begin, stop)
    assert values(careless, topic.stream(**how, failOnDataLoss="false").partitions(begin, stop)) == []


@pytest.mark.parametrize("way", ["subscribePattern", "assign"])
def test_a_topic_that_was_deleted_while_the_query_was_down_is_a_loss_that_may_be_allowed(
    broker: Broker, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    topic, other = Topic(broker, partitions=1), Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    other.write(0, ["c"])
    names = (topic.name, other.name)
    how = {way: json.dumps({name: [0] for name in names}) if way == "assign" else "|".join(names)}
    first = topic.stream(**how)
    begin = first.initialOffset()
    start = first.latestOffset(begin, ReadAllAvailable())
    topic.link.io.run(topic.link.admin.delete_topic(topic.name))
    other.write(0, ["d"])
    strict, careless = topic.stream(**how), topic.stream(**how, failOnDataLoss="false")
    for reader in (strict, careless):
        reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match=f"{topic.name}-0 is gone"):
        strict.latestOffset(restarted(start), ReadAllAvailable())
    end = careless.latestOffset(restarted(start), ReadAllAvailable())
    assert values(careless, careless.partitions(restarted(start), restarted(end))) == ["d"]
    assert careless.latestOffset(restarted(end), ReadAllAvailable()) == end  # Spark compares their text
    assert f"{topic.name}-0 is gone" in caplog.text
    # A batch that was planned before and is read now: what is gone of it is a loss as well.
    with pytest.raises(DataLossError, match=f"{topic.name}-0 is gone"):
        topic.stream(**how).partitions(restarted(begin), restarted(start))
    again = topic.stream(**how, failOnDataLoss="false")
    assert values(again, again.partitions(restarted(begin), restarted(start))) == ["c"]
    if way == "assign":  # a query that begins is told, as before
        with pytest.raises(ConfigurationError, match=f"topics that do not exist: {topic.name}"):
            topic.stream(**how).initialOffset()


@pytest.mark.parametrize(
    ("way", "refusal"),
    [("subscribe", ConfigurationError), ("subscribePattern", DataLossError), ("assign", DataLossError)],
)
def test_a_topic_that_is_deleted_after_it_was_described_is_missing_and_not_waited_for(
    broker: Broker, way: str, refusal: type[Exception]
) -> None:
    """The client repeats ListOffsets until its timeout, because a broker that starts may not know its topics."""
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a"])
    how = {way: json.dumps({topic.name: [0]}) if way == "assign" else topic.name}
    stream = topic.stream(**how, **{"kafka.default.api.timeout.ms": "30000", "fetchOffset.numRetries": "0"})
    start = stream.initialOffset()
    with broker.faults.delay("ListOffsets", 2, topic=topic.name) as late, ThreadPoolExecutor(1) as pool:
        looking = pool.submit(stream.latestOffset, start, ReadAllAvailable())
        late.wait()
        topic.link.io.run(topic.link.admin.delete_topic(topic.name))
        with pytest.raises(refusal, match=f"do not exist: {topic.name}|{topic.name}-0 is gone"):
            looking.result()


def test_a_running_stream_tells_each_loss_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the latest offsets up to a hundred times a second."""
    topic, other = Topic(broker, partitions=2), Topic(broker, partitions=1)
    how = {"subscribePattern": f"{topic.name}|{other.name}", "failOnDataLoss": "false"}
    stream = topic.stream(**how)
    start = stream.initialOffset()
    for times in (1, 2):
        topic.link.io.run(topic.link.admin.delete_topic(topic.name))
        for _ in range(3):
            assert stream.latestOffset(start, ReadAllAvailable()) == start
        assert [caplog.text.count(f"{topic.name}-{number} is gone") for number in (0, 1)] == [times, times]
        topic.link.io.run(topic.link.admin.create_topic(topic.name, 2))
        start = stream.latestOffset(start, ReadAllAvailable())
    assert caplog.text.count("created again") == 2


def test_a_topic_that_is_made_again_between_plan_and_task_is_a_loss(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    stream, batch = topic.stream(), BatchReader(topic.options(), SCHEMA)
    start = stream.initialOffset()
    parts = [*stream.partitions(start, stream.latestOffset(start, ReadAllAvailable())), *batch.partitions()]
    assert len(parts) == 2
    topic.link.io.run(topic.link.admin.delete_topic(topic.name))
    topic.link.io.run(topic.link.admin.create_topic(topic.name, 1))
    topic.write(0, ["c", "d"])
    for part in parts:
        with pytest.raises(DataLossError, match="created again"):
            values(topic.stream(), [part])


def test_offsets_of_older_versions_and_of_sparks_own_source_are_read(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    old = {topic.name: {"0": 1}}
    reader = topic.stream()
    end = reader.latestOffset(old, ReadAllAvailable())
    assert plain(end) == {topic.name: {"0": 2}}
    assert values(reader, reader.partitions(old, end)) == ["b"]
    assert values(reader, reader.partitions(old, plain(end))) == ["b"]
    # And what a checkpoint says can be given as startingOffsets.
    again = StreamReader(topic.options(startingOffsets=json.dumps(end)), SCHEMA)
    assert again.initialOffset() == end


def test_a_topic_that_was_made_again_is_a_loss(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a"])
    readers = [topic.stream(), topic.stream(failOnDataLoss="false")]
    start = readers[1].initialOffset()
    assert readers[0].initialOffset() == start
    topic.link.io.run(topic.link.admin.delete_topic(topic.name))
    topic.link.io.run(topic.link.admin.create_topic(topic.name, 1))
    topic.write(0, ["b"])
    strict, careless = readers
    with pytest.raises(DataLossError, match="created again"):
        strict.latestOffset(start, ReadAllAvailable())
    end = careless.latestOffset(start, ReadAllAvailable())
    assert values(careless, careless.partitions(start, end)) == ["b"]
    assert "created again" in caplog.text


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern", "assign"])
def test_a_partition_that_the_options_no_longer_name_is_not_called_gone(broker: Broker, way: str) -> None:
    left, read = Topic(broker, partitions=1), Topic(broker, partitions=1)
    left.write(0, ["a"])
    read.write(0, ["b"])

    def how(*topics: Topic) -> dict[str, str]:
        names = [topic.name for topic in topics]
        return {
            way: json.dumps({name: [0] for name in names}) if way == "assign" else "|,"[way == "subscribe"].join(names)
        }

    first = read.stream(**how(left, read))
    start = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    with pytest.raises(DataLossError, match=f"{left.name}-0 was read before, and option {way}=.* no longer names it"):
        read.stream(**how(read)).latestOffset(restarted(start), ReadAllAvailable())


@pytest.mark.parametrize("available_now", [False, True])
def test_partitions_that_are_gone_or_shorter_are_a_loss(broker: Broker, available_now: bool) -> None:
    topic = Topic(broker, partitions=1)
    topic.write(0, ["a", "b"])
    for start in ({topic.name: {"0": 5}}, {topic.name: {"0": 0, "1": 7}}):
        for careless in (False, True):
            reader = topic.stream(failOnDataLoss="false" if careless else "true")
            if available_now:
                reader.prepareForTriggerAvailableNow()
            if not careless:
                with pytest.raises(DataLossError):
                    reader.latestOffset(start, ReadAllAvailable())
                continue
            end = reader.latestOffset(start, ReadAllAvailable())
            assert end[topic.name]["0"] == 2
            assert values(reader, reader.partitions(start, end)) == ([] if "1" not in start[topic.name] else ["a", "b"])


def test_what_retention_takes_under_a_running_task_is_loud(broker: Broker) -> None:
    topic = Topic(broker, partitions=1)
    for number in range(6):
        topic.write(0, [str(number)])
    start, end = {topic.name: {"0": 0}}, {topic.name: {"0": 6}}
    strict, careless = topic.stream(), topic.stream(failOnDataLoss="false")
    parts = strict.partitions(start, end)
    topic.link.io.run(topic.admin.delete_records({TopicPartition(topic.name, 0): 4}))
    with pytest.raises(DataLossError, match="offsets 0 to 3"):
        values(strict, parts)
    assert values(careless, parts) == ["4", "5"]


def test_the_reader_for_pyspark_4_1_takes_everything_and_still_notices_losses(broker: Broker) -> None:
    topic = Topic(broker)
    topic.write(0, ["a", "b"])
    options = topic.options(startingOffsets="earliest")
    reader = UnlimitedStreamReader(options, SCHEMA)
    end = reader.latestOffset()
    assert plain(end) == {topic.name: {"0": 2, "1": 0}}
    assert values(reader, reader.partitions(reader.initialOffset(), end)) == ["a", "b"]
    with pytest.raises(DataLossError, match="offsets 2 to 4"):
        reader.partitions({topic.name: {"0": 5, "1": 0}}, end)
    with pytest.raises(DataLossError):
        reader.partitions({topic.name: {"0": 2, "1": 0, "2": 7}}, end)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        with pytest.raises(ConfigurationError, match=rf"{name} needs PySpark 4\.2"):
            UnlimitedStreamReader({**options, name.lower(): "5"}, SCHEMA)
