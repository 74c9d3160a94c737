"""trigger(continuous=...): refused where the checkpoint can be seen; elsewhere Spark goes on and nothing is written."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, TopicPartition
from fencepost.broker.embedded import Broker
from tests.spark.session import session

pytestmark = pytest.mark.spark

PLACE = TopicPartition("out", 0)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = session()
    made.sparkContext.setLogLevel("FATAL")
    yield made
    made.stop()


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
        return admin.list_offsets({PLACE: -1})[PLACE].offset


def test_it_ends_the_query_where_the_checkpoint_can_be_seen(spark: Any, servers: str, tmp_path: Path) -> None:
    for _ in range(2):  # and at every restart
        query = started(spark, servers, checkpointLocation=str(tmp_path / "checkpoint"))
        with pytest.raises(Exception, match=r"cannot be used with trigger\(continuous=\.\.\.\)"):
            query.awaitTermination(120)
        assert not query.isActive
    assert end_of(servers) == 0


def test_nothing_is_written_where_it_cannot_be_seen(spark: Any, servers: str, tmp_path: Path) -> None:
    """The difference that is documented: Spark calls nothing of the sink's that could end such a query."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    query = started(spark, servers)
    try:
        time.sleep(10)
        assert query.isActive
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert end_of(servers) == 0
