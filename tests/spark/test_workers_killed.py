"""Spark's Python workers come and go, or are all killed in a batch: nothing of theirs stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from fencepost import Admin, Consumer, Producer, TopicPartition
from fencepost.broker.embedded import Broker
from fencepost.client.types import Isolation
from fencepost.spark import arrow_pipeline
from fencepost.spark.sink import names
from tests.spark.session_here import SparkHere

pytestmark = pytest.mark.spark

SLOTS = 2
RECORDS, IN_A_BATCH = 30, 10
# The sink sends half a megabyte at a time, and Spark passes a row on when it has the next: both tasks have sent some of
# their rows before they have read the last.
VALUE_BYTES = 300_000
KILLED_BATCH = 1
PARTITION = TopicPartition("out", 0)
BATCHES = 8
PATIENCE_S = 600  # on a busy machine


@pytest.fixture(scope="module")
def spark(spark_here: SparkHere) -> Any:
    single_rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
    return spark_here.session(f"local[{SLOTS}]", {"spark.python.worker.reuse": "false", **single_rows})


@pytest.fixture
def servers(spark: Any) -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("in", SLOTS)
            admin.create_topic(PARTITION.topic, 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send("in", str(number).encode(), partition=number % SLOTS)
        yield broker.bootstrap_servers
        for query in spark.streams.active:  # of a test that has failed
            query.stop()


def killing(servers: str, armed: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; in one batch, while `armed` is there, all Python workers are killed in mid-work."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        for record_batch in batches:
            values = [value.ljust(VALUE_BYTES) for value in record_batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        if batch != str(KILLED_BATCH) or not armed.exists():
            return
        with Admin(servers) as admin:
            while sum(len(transaction.partitions) > 0 for transaction in open_ones(admin)) < SLOTS:
                time.sleep(0.05)
        armed.unlink(missing_ok=True)
        daemon = os.getppid()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == daemon and int(stat.parent.name) != os.getpid():
                os.kill(int(stat.parent.name), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return rows


def open_ones(admin: Admin) -> list[Any]:
    return admin.describe_transactions(
        [listing.transactional_id for listing in admin.list_transactions(states=["Ongoing"])]
    )


def started(spark: Any, servers: str, folder: Path) -> Any:
    source = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
    read = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(IN_A_BATCH)).load()
    rows = read.select("value").mapInArrow(killing(servers, folder / "armed"), "value binary")
    writer = rows.writeStream.format("fencepost").option("kafka.bootstrap.servers", servers).option("topic", "out")
    writer = writer.option("sink.id", "workers").option("require.guarantee", "durable")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def written(servers: str) -> Counter[int]:
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([PARTITION])
        found: Counter[int] = Counter()
        while records := consumer.poll(2000):
            found.update(int(record.value or b"-1") for record in records)
    return found


def task_ids(servers: str) -> set[str]:
    """Of all sinks, as the coordinator knows them."""
    with Admin(servers) as admin:
        listed = [listing.transactional_id for listing in admin.list_transactions()]
    return {transactional_id for transactional_id in listed if isinstance(names.parse(transactional_id), names.TaskId)}


def test_transactions_of_killed_workers_end_with_their_batch(spark: Any, servers: str, tmp_path: Path) -> None:
    (tmp_path / "armed").touch()
    query = started(spark, servers, tmp_path)
    with pytest.raises(StreamingQueryException) as reported:
        query.awaitTermination(PATIENCE_S)
    assert not (tmp_path / "armed").exists(), f"ended before its workers were killed: {reported.value}"
    with Admin(servers) as admin:
        assert open_ones(admin) == []
        committed, end = (
            admin.list_offsets({PARTITION: -1}, isolation=how)[PARTITION].offset
            for how in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
        )
    assert committed == end  # nothing hides what others write
    done = KILLED_BATCH * IN_A_BATCH
    assert sum(written(servers).values()) == done
    assert end > done + KILLED_BATCH * SLOTS + SLOTS, "the killed tasks had sent nothing"

    assert started(spark, servers, tmp_path).awaitTermination(PATIENCE_S)
    assert written(servers) == Counter(range(RECORDS))
    # The first batch's ids, which the last batch uses again, the killed tasks', and those of the batch repeated.
    assert len(task_ids(servers)) == 3 * SLOTS


def test_ids_of_workers_that_ended_are_used_again(spark: Any, servers: str, tmp_path: Path) -> None:
    """No worker runs a second task, and a batch's ids are free when the next one is decided."""
    with Admin(servers) as admin:
        admin.create_topic("ones", 1)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(BATCHES):
            producer.send("ones", str(number).encode())
    at = {"kafka.bootstrap.servers": servers}
    source = {**at, "subscribe": "ones", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    sink = {**at, "topic": "out", "sink.id": "ones", "checkpointLocation": str(tmp_path / "checkpoint")}
    pipeline = arrow_pipeline(spark, source=source, transform=lambda rows: rows.select(["value"]), sink=sink)
    query = pipeline.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert query.lastProgress is not None and query.lastProgress["batchId"] == BATCHES - 1
    assert written(servers) == Counter(range(BATCHES))
    assert len(task_ids(servers)) == 2
