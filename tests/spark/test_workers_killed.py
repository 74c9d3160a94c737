"""A streaming batch all of whose Python workers are killed: its readers do not wait for what it left open."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from fencepost import Admin
from fencepost.broker.embedded import Broker

pytestmark = pytest.mark.spark

SCHEMA = "value string"


def killing_workers(
    servers: str, marker: Path, driver: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: once the sink, in a worker beside this one, has begun to write, all workers are killed."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import signal
        import time

        from fencepost import Admin

        for _ in batches:
            pass
        yield pa.record_batch({"value": ["x" * 1000] * 5000})
        yield pa.record_batch({"value": ["x" * 1000] * 5000})
        with Admin(servers) as admin:
            until = time.monotonic() + 60
            while time.monotonic() < until and not admin.list_transactions(states=["Ongoing"]):
                time.sleep(0.05)
            marker.write_text(str(len(admin.list_transactions(states=["Ongoing"]))))

        def children(pid: int) -> list[int]:
            stats = {int(one.parent.name): one.read_text() for one in Path("/proc").glob("[0-9]*/stat")}
            return [child for child, stat in stats.items() if int(stat.rpartition(")")[2].split()[1]) == pid]

        (executor,) = (one for one in children(int(driver.read_text())) if children(one))
        for daemon in children(executor):
            if b"pyspark.worker" in Path(f"/proc/{daemon}/cmdline").read_bytes():
                for worker in children(daemon):
                    if worker != os.getpid():
                        os.kill(worker, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return rows


def test_what_killed_workers_leave_open_is_aborted_when_the_batch_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    with Broker({"transaction.two.phase.commit.enable": True}) as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("out", 1)
        (tmp_path / "driver").write_text(str(os.getpid()))
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("FATAL")
        try:
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load().select("value")
            query = (
                rows.mapInArrow(
                    killing_workers(broker.bootstrap_servers, tmp_path / "open", tmp_path / "driver"), SCHEMA
                )
                .writeStream.format("fencepost")
                .option("kafka.bootstrap.servers", broker.bootstrap_servers)
                .option("topic", "out")
                .option("sink.id", "killed")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            with pytest.raises(Exception, match="worker"):
                query.awaitTermination(120)
        finally:
            spark.stop()
        assert (tmp_path / "open").read_text() == "1"  # when the workers were killed
        assert admin.list_transactions(states=["Ongoing"]) == []
