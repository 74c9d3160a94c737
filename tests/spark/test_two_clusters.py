"""One checkpoint used with two clusters: the query says so, and goes on where it was begun."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.cli.main import main

pytestmark = pytest.mark.spark

RECORDS = 20
OUT = TopicPartition("out", 0)


@pytest.fixture
def clusters() -> Iterator[tuple[str, str]]:
    """Bootstrap servers of two, with the same topics and as many records."""
    with Broker() as first, Broker() as second:
        for broker in (first, second):
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topic("in", 1)
                admin.create_topic(OUT.topic, 1)
            add(broker.bootstrap_servers, 0)
        yield first.bootstrap_servers, second.bootstrap_servers


def add(servers: str, first: int) -> None:
    with Producer(servers) as producer:
        for number in range(first, first + RECORDS):
            producer.send("in", str(number).encode())


def run(spark: Any, servers: str, folder: Path, **source: str) -> None:
    where = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("fencepost").options(**where, subscribe="in", startingOffsets="earliest", **source)
    writer = rows.load().select("value").writeStream.format("fencepost").options(**where, topic=OUT.topic)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def values(servers: str) -> Counter[int]:
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([OUT])
        found: Counter[int] = Counter()
        while records := consumer.poll(2000):
            found.update(int(record.value or b"-1") for record in records)
    return found


def test_the_source_refuses_another_clusters_topic(spark: Any, clusters: tuple[str, str], tmp_path: Path) -> None:
    first, second = clusters
    run(spark, first, tmp_path)
    add(second, RECORDS)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="DataLossError: topic in was deleted and created again"):
            run(spark, second, tmp_path)
    assert values(second) == Counter()
    add(first, RECORDS)
    run(spark, first, tmp_path)
    assert values(first) == Counter(range(2 * RECORDS))


def test_the_sink_refuses_a_query_of_another_cluster(
    spark: Any, clusters: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source that may lose data goes on in the other cluster, and the sink does not know the query there."""
    first, second = clusters
    run(spark, first, tmp_path)
    add(second, RECORDS)
    reported = r"UnknownQueryError.*comes with batch 1.*take the plan back there before the start"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=reported):
            run(spark, second, tmp_path, failOnDataLoss="false")
    assert values(second) == Counter()
    add(first, RECORDS)
    # Spark has planned batch 1 with the other cluster's offsets. They do not fit, and are told.
    with pytest.raises(StreamingQueryException, match="DataLossError: topic in was deleted and created again"):
        run(spark, first, tmp_path)
    # The remedy of docs/spark.md.
    assert not (tmp_path / "checkpoint" / "commits" / "1").exists()
    assert replan(second, tmp_path) == 1
    assert "there is no sink" in capsys.readouterr().err
    assert replan(first, tmp_path) == 0
    assert "topic in: its id in the plan is another" in capsys.readouterr().out
    run(spark, first, tmp_path)
    assert values(first) == Counter(range(2 * RECORDS))


def replan(servers: str, folder: Path) -> int:
    """Take the plan back as a person does; return the command's status."""
    checkpoint = folder / "checkpoint"
    sink = json.loads((checkpoint / "metadata").read_text())["id"]
    with pytest.raises(SystemExit) as ended:
        main(["spark", "repair", sink, "--checkpoint", str(checkpoint), "--replan", "--yes", "-b", servers])
    return int(ended.value.code or 0)


def test_a_batch_that_is_too_large_is_planned_again_with_a_limit(
    spark: Any, clusters: tuple[str, str], tmp_path: Path
) -> None:
    """A batch that cannot be written comes again with the same offsets, whatever the options of the source say."""
    servers, _ = clusters
    with Admin(servers) as admin:
        admin.alter_configs(OUT.topic, {"max.message.bytes": "1000"})
    run(spark, servers, tmp_path)
    add(servers, RECORDS)
    with Producer(servers) as producer:
        producer.send("in", b"9" * 2000)
    for limit in ("100", "5"):  # the plan counts, not the option
        with pytest.raises(StreamingQueryException, match="MESSAGE_TOO_LARGE"):
            run(spark, servers, tmp_path, maxOffsetsPerTrigger=limit)
        assert values(servers) == Counter(range(RECORDS))
    assert replan(servers, tmp_path) == 0
    with pytest.raises(StreamingQueryException, match="MESSAGE_TOO_LARGE"):
        run(spark, servers, tmp_path, maxOffsetsPerTrigger="5")
    assert values(servers) == Counter(range(2 * RECORDS))
