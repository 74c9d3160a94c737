"""Batch reads and writes, options, and foreachBatch, in one real Spark session on our broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from fencepost.spark.sink.runner import ClusterClient


@pytest.mark.spark
def test_every_door(spark: Any, tmp_path: Path) -> None:
    from tests.spark.entry_points import read_by_all  # with PySpark

    with Broker({"transaction.two.phase.commit.enable": True, "log.retention.ms": -1}) as broker:
        link = ClusterClient({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("doors-1", "doors_2", "doors-third"):
            link.io.run(link.admin.create_topic(topic, 3))
        arguments = {
            "servers": broker.bootstrap_servers,
            "first": "doors-1",
            "second": "doors_2",
            "third": "doors-third",
            "folder": str(tmp_path),
        }
        seen = read_by_all(spark, arguments)
        left_open = link.io.run(link.admin.list_transactions(states=("Ongoing",)))
        link.close()
    check(seen)
    assert left_open == []


def check(seen: dict[str, object]) -> None:
    # Spark's own Kafka source has these columns, in this order.
    assert seen["columns"] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert seen["rows"] == 1015
    assert seen["one"] == {
        "key": "k0",
        "topic": "doors-1",
        "headers": [["n", "7"]],
        "ms": 1_600_000_000_130,
        "timestampType": 0,
    }
    assert 9 <= int(str(seen["by pattern, split"])) <= 11
    assert seen["assigned"] == 0
    assert 0 < int(str(seen["up to five"])) <= 15
    assert seen["projected"] == ["999"]
    assert seen["copied"] == 1018
    # Three batches of at most 400 offsets, from three partitions: less and less is left, and nothing in the end.
    behind = [count for found in list(seen["behind"]) for count in found]  # type: ignore[call-overload]
    assert len(behind) >= 3
    assert behind == sorted(behind, reverse=True)
    assert behind[0] > 100 and behind[-1] == 0
    assert "a broken row" in str(seen["failed job"])
    assert "sink.id" in str(seen["no name"])
    assert "colour" in str(seen["wrong column"])
    assert "broken" in str(seen["failed frame"])
    assert "second frame of batch 0" in str(seen["one sink twice"])
    assert seen["two sinks"] == ""
    of_a_frame, of_two_sinks = list(seen["rows of a frame, rows of two sinks"])  # type: ignore[call-overload]
    assert of_two_sinks == 2 * of_a_frame > 200
    plain = str(seen["batch write in a batch"])
    assert "exactly_once()" in plain, plain
