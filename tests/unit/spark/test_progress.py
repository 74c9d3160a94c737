"""Lag from what Spark 4.3 reports; the samples are its own form, with offsets as JSON or as text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from fencepost.client.types import TopicPartition
from fencepost.errors import UsageError
from fencepost.spark import behind_latest
from fencepost.spark.source import ranges

SOURCE = {
    "description": "PythonMicroBatchStream",
    "startOffset": {"a": {"0": 1}},
    "endOffset": {"a": {"0": 5, "1": 7}},
    "latestOffset": {"a": {"0": 15, "1": 7, "2": 3}},
}
HIGH = {TopicPartition("a", 0): 40, TopicPartition("a", 1): 7, TopicPartition("b", 0): 3}


@pytest.mark.parametrize("as_text", [False, True])
def test_the_lag_is_the_distance_from_the_latest_offset(as_text: bool) -> None:
    source = {
        name: json.dumps(value) if as_text and name.endswith("Offset") else value for name, value in SOURCE.items()
    }
    (behind,) = behind_latest({"sources": [source]})
    assert behind.partitions == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 0, TopicPartition("a", 2): 0}
    assert (behind.max_offsets_behind_latest, behind.min_offsets_behind_latest) == (10, 0)
    assert behind.avg_offsets_behind_latest == pytest.approx(10 / 3)


def test_what_is_held_back_is_told_apart_from_the_lag() -> None:
    reported = ranges.with_high_watermarks({"a": {"0": 15, "1": 7}}, HIGH)
    assert reported == {"a": {"0": 15, "1": 7}, "a@high-watermark:0=40": {}}
    assert ranges.high_watermarks(reported) == {TopicPartition("a", 0): 40}
    assert ranges.from_json(reported) == ranges.from_json({"a": {"0": 15, "1": 7}})
    assert ranges.topic_ids(reported) == {}
    (behind,) = behind_latest({"sources": [{**SOURCE, "latestOffset": reported}]})
    assert behind.partitions == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 0}
    assert behind.held_back == {TopicPartition("a", 0): 25, TopicPartition("a", 1): 0}
    assert behind.max_offsets_held_back == 25
    (behind,) = behind_latest({"sources": [SOURCE]})  # as an older release reported
    assert behind.max_offsets_held_back == 0


def test_progress_objects_and_other_sources() -> None:
    rate = {"description": "RateStream", "endOffset": 5, "latestOffset": 9}
    shards = {"shard-0": {"sequence": "49"}}  # a source whose offsets are objects, too
    other = {"description": "another", "endOffset": shards, "latestOffset": shards}
    progress = SimpleNamespace(json=json.dumps({"sources": [rate, other, SOURCE]}))
    assert [lag.max_offsets_behind_latest for lag in behind_latest(progress)] == [10]
    assert behind_latest(None) == []
    with pytest.raises(UsageError):
        behind_latest({"batchId": 1})
