"""trigger(continuous=...): refused where the checkpoint can be seen; elsewhere nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from fencepost import Admin, TopicPartition
from fencepost.broker.embedded import Broker

pytestmark = pytest.mark.spark

PARTITION = TopicPartition("out", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("out", 1)
        yield broker.bootstrap_servers


def started(spark: Any, servers: str, **options: str) -> Any:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writer = rows.writeStream.format("fencepost").option("kafka.bootstrap.servers", servers).option("topic", "out")
    return writer.option("sink.id", "continuous").options(**options).trigger(continuous="1 second").start()


def end_of(servers: str) -> int:
    with Admin(servers) as admin:
        return admin.list_offsets({PARTITION: -1})[PARTITION].offset


def test_it_ends_the_query_where_the_checkpoint_can_be_seen(spark: Any, servers: str, tmp_path: Path) -> None:
    for _ in range(2):  # and at every restart
        query = started(spark, servers, checkpointLocation=str(tmp_path / "checkpoint"))
        with pytest.raises(Exception, match=r"cannot be used with trigger\(continuous=\.\.\.\)"):
            query.awaitTermination(500)
        assert not query.isActive
    assert end_of(servers) == 0


def test_spark_ends_it_when_too_many_epochs_wait_to_be_committed(spark: Any, servers: str, tmp_path: Path) -> None:
    """The difference that is documented: Spark only logs that the sink refuses an epoch, and waits for its commit."""
    settings = {
        "spark.sql.streaming.checkpointLocation": str(tmp_path),  # which the sink cannot see
        "spark.sql.streaming.continuous.epochBacklogQueueSize": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        query = started(spark, servers)
        with pytest.raises(StreamingQueryException, match="queue has exceeded its maximum"):
            query.awaitTermination(500)
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert end_of(servers) == 0
