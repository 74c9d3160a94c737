"""A topic that stands still for somebody's open transaction, as the source's users hear of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fencepost.broker.embedded import Broker
from fencepost.client.types import TopicPartition
from fencepost.spark import behind_latest
from fencepost.spark.source.batch import BatchReader
from fencepost.spark.source.reader import StreamReader, UnlimitedStreamReader
from tests.spark.source_topics import SCHEMA, Topic, plain


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def progress(reader: StreamReader, end: dict[str, dict[str, int]]) -> dict[str, Any]:
    """As Spark reports them: both as text."""
    latest = reader.reportLatestOffset()
    return {"sources": [{"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}]}


@pytest.mark.parametrize("reader_of", [StreamReader, UnlimitedStreamReader])
def test_a_topic_that_stands_still_for_somebodys_transaction_is_told_by_name(
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    reader_of: type[StreamReader],
) -> None:
    now_s = 1000.0
    topic = Topic(broker)
    topic.write(0, ["a"])
    topic.write_transaction(0, ["open"], commit=None)
    topic.write(0, ["b", "c"])
    (holder,) = topic.open_ids()
    reader = reader_of(topic.options(startingOffsets="earliest"), SCHEMA)
    # In that module only: the embedded broker has its timers.
    monkeypatch.setattr("fencepost.spark.source.reader.time", SimpleNamespace(monotonic=lambda: now_s))
    partition, other = TopicPartition(topic.name, 0), TopicPartition(topic.name, 1)

    def look() -> dict[str, dict[str, int]]:
        if isinstance(reader, UnlimitedStreamReader):
            return reader.latestOffset()
        return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    with caplog.at_level("INFO", "fencepost.spark"):
        end = look()
        assert plain(end) == {topic.name: {"0": 1, "1": 0}}
        if reader_of is StreamReader:
            (behind,) = behind_latest(progress(reader, end))
            assert behind.partitions == {partition: 0, other: 0}
            assert behind.held_back == {partition: 3, other: 0}
            assert "1 offsets behind, 3 more are held back" in caplog.text
        now_s += 59
        assert look() == end
        assert "wait for" not in caplog.text
        for waited in (1, 2):
            now_s = 1000.0 + 60 * waited
            look()
            look()
            words = (
                f"{topic.name}-0: its committed records have ended at offset 1 for {waited} min; 3 offsets behind it"
            )
            reported = [record.getMessage() for record in caplog.records if record.getMessage().startswith(words)]
            assert len(reported) == 1
            assert f"wait for transaction {holder!r} (producer " in reported[0]
        topic.end(holder)
        look()
        assert f"{topic.name}-0: what its readers waited for has ended" in caplog.text
    if reader_of is StreamReader:
        (behind,) = behind_latest(progress(reader, end))
        assert (behind.max_offsets_behind_latest, behind.max_offsets_held_back) == (4, 0)


@pytest.mark.parametrize("way", ["availableNow", "batch"])
def test_a_read_that_ends_says_what_it_leaves_out_for_an_old_transaction(
    broker: Broker, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    topic = Topic(broker)
    topic.write_transaction(0, ["open"], commit=None)

    def read(**options: str) -> set[str]:
        """The levels at which what was left out is told."""
        caplog.clear()
        if way == "batch":
            BatchReader(topic.options(**options), SCHEMA).partitions()
        else:
            topic.stream(**options).prepareForTriggerAvailableNow()
        words = f"{topic.name}-0: 1 offset is not read, from offset 0 on: it waits for transaction"
        return {record.levelname for record in caplog.records if record.getMessage().startswith(words)}

    with caplog.at_level("INFO", "fencepost.spark"):
        assert read() == {"INFO"}
        assert read(heldBackWarning="0s") == {"WARNING"}
        topic.end(*topic.open_ids())
        assert read() == set()
        assert "are not read" not in caplog.text


def test_what_is_held_back_in_many_partitions_is_named_too(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.spark.source.shared.MOST_LOGGED", 1)
    topic = Topic(broker, partitions=3)
    for partition in range(3):
        topic.write_transaction(partition, ["open"], commit=None)
    with caplog.at_level("INFO", "fencepost.spark"):
        topic.stream().prepareForTriggerAvailableNow()
    assert f"2 more partitions are held back by open transactions: {topic.name}-1, {topic.name}-2" in caplog.text
    topic.end(*topic.open_ids())
