"""`arrow_pipeline`: records go from topic to topic in Arrow, in queries that Spark plans, repeats and checkpoints."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.errors import ConfigurationError
from fencepost.spark import arrow_batch, arrow_pipeline, worker_garbage

pytestmark = pytest.mark.spark

RECORDS = 3000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a topic `numbers`: RECORDS records in two partitions, each with a header."""
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("numbers", 2)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send("numbers", b"%d" % number, key=b"%d" % (number % 7), headers=[("n", b"%d" % number)])
        yield broker.bootstrap_servers


class Pipeline:
    """Topics, options of source and sink, and checkpoint of a pipeline."""

    def __init__(self, servers: str, folder: Path, *topics: str) -> None:
        self.servers = servers
        self.source = {"kafka.bootstrap.servers": servers, "subscribe": "numbers", "startingOffsets": "earliest"}
        self.sink = {
            "kafka.bootstrap.servers": servers,
            "topic": topics[0],
            "sink.id": topics[0],
            "checkpointLocation": str(folder / "checkpoint"),
        }
        with fencepost.Admin(servers) as admin:
            for topic in topics:
                admin.create_topic(topic, 2)

    def found(self, topic: str) -> list[fencepost.ConsumedRecord]:
        """Return the committed records of the topic."""
        with fencepost.Consumer(
            self.servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([(topic, 0), (topic, 1)])
            records: list[fencepost.ConsumedRecord] = []
            while more := consumer.poll(2000):
                records += more
            return records


def run(writer: Any) -> Any:
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(500)
    assert not query.isActive
    return query


def test_filtered_mapped_and_routed(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "even", "odd")
    pipeline.source |= {"includeHeaders": "true", "maxOffsetsPerTrigger": "1000"}
    del pipeline.sink["topic"]

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        numbers = rows["value"].cast(pa.string()).cast(pa.int64())
        rows = rows.filter(pc.less(numbers, 2000))
        numbers = numbers.filter(pc.less(numbers, 2000))
        is_odd = pc.equal(pc.bit_wise_and(numbers, 1), 1)
        return pa.record_batch(
            {
                "topic": pc.if_else(is_odd, "odd", "even"),
                "key": rows["key"],
                "value": pc.multiply(numbers, 10).cast(pa.string()),
                "headers": rows["headers"],
                "timestamp": rows["timestamp"],
            }
        )

    writer = arrow_pipeline(spark, source=pipeline.source, transform=transform, sink=pipeline.sink)
    query = run(writer)
    # 1714 and 1286 offsets: 571 and 428 of them in each of three batches, as Spark's own connector shares 1000; then 3.
    assert sum(1 for progress in query.recentProgress if progress["numInputRows"]) == 4
    written = {"even": pipeline.found("even"), "odd": pipeline.found("odd")}
    for topic, rest in (("even", 0), ("odd", 1)):
        numbers = range(rest, 2000, 2)
        wanted = Counter((b"%d" % (n % 7), b"%d" % (10 * n), (("n", b"%d" % n),)) for n in numbers)
        assert Counter((each.key, each.value, tuple(each.headers)) for each in written[topic]) == wanted
    read = {each.value: each.timestamp_ms for each in pipeline.found("numbers")}
    assert all(each.timestamp_ms == read[each.headers[0][1]] for each in written["even"])
    run(writer)  # from its checkpoint: there is nothing new
    assert pipeline.found("even") == written["even"]


def test_what_a_transform_may_return(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "pieces")

    def transform(rows: pa.RecordBatch) -> Any:
        plain = rows.select(["value"])
        if not rows.num_rows:
            return pa.Table.from_batches([plain])
        if rows["partition"][0].as_py() == 1:
            return None
        return (plain.slice(start, 100) for start in range(0, rows.num_rows, 100))

    run(arrow_pipeline(spark, source=pipeline.source, transform=transform, sink=pipeline.sink))
    wanted = Counter(each.value for each in pipeline.found("numbers") if each.partition == 0)
    assert Counter(each.value for each in pipeline.found("pieces")) == wanted
    assert 0 < wanted.total() < RECORDS


def test_a_transform_that_fails_writes_nothing(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "failing")
    broken = tmp_path / "broken"
    broken.touch()

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.num_rows and rows["partition"][0].as_py() == 1 and broken.exists():
            raise ValueError("no number is like this one")
        return rows.select(["key", "value"])

    writer = arrow_pipeline(spark, source=pipeline.source, transform=transform, sink=pipeline.sink)
    with pytest.raises(Exception, match="no number is like this one"):
        run(writer)
    assert pipeline.found("failing") == []
    broken.unlink()
    run(writer)
    assert Counter(each.value for each in pipeline.found("failing")) == Counter(b"%d" % n for n in range(RECORDS))


def test_other_columns_than_it_said(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "others")

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(["key", "value"] if not rows.num_rows else ["value"])

    with pytest.raises(Exception, match="the transform made the columns value binary, and of a batch without rows key"):
        run(arrow_pipeline(spark, source=pipeline.source, transform=transform, sink=pipeline.sink))
    assert pipeline.found("others") == []


def test_two_pipelines_keep_their_transforms(spark: Any, servers: str, tmp_path: Path) -> None:
    pipelines = [Pipeline(servers, tmp_path / name, name) for name in ("first", "second")]

    def constant(value: bytes) -> Any:
        return lambda rows: pa.record_batch({"value": pa.array([value] * rows.num_rows, pa.binary())})

    writers = [
        arrow_pipeline(spark, source=pipeline.source, transform=constant(value), sink=pipeline.sink)
        for pipeline, value in zip(pipelines, (b"1", b"2"), strict=True)
    ]
    for writer in writers:
        run(writer)
    assert [{each.value for each in pipeline.found(pipeline.sink["topic"])} for pipeline in pipelines] == [
        {b"1"},
        {b"2"},
    ]


def spared(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Replace each record by the number of modules that the worker's garbage collections skip."""
    return pa.record_batch({"value": pa.array([b"%d" % worker_garbage.imports.spared] * rows.num_rows, pa.binary())})


def test_workers_collect_no_imports(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "collected")
    pipeline.source["maxOffsetsPerTrigger"] = "500"
    run(arrow_pipeline(spark, source=pipeline.source, transform=spared, sink=pipeline.sink))
    found = [int(record.value or b"0") for record in pipeline.found("collected")]
    assert len(found) == RECORDS
    assert min(found) > 500
    assert worker_garbage.imports.spared == 0  # a driver's objects are its own affair


def test_as_a_batch_write(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "batch")
    pipeline.source |= {"minPartitions": "5"}
    del pipeline.sink["checkpointLocation"]
    writer = arrow_batch(
        spark, source=pipeline.source, transform=lambda rows: rows.select(["value"]), sink=pipeline.sink
    )
    writer.save()
    assert Counter(each.value for each in pipeline.found("batch")) == Counter(b"%d" % n for n in range(RECORDS))


def guarded(lock: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
    with lock:
        return rows.select(["value"])


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (lambda rows: rows, "column 'offset' is not one of"),
        (lambda rows: rows.select(["key"]), "there is no column 'value'"),
        (lambda rows: pa.record_batch({"value": pa.array([], pa.int64())}), "column 'value' is int64"),
        (lambda rows: None, "returned no batch for a batch without rows"),
        (lambda rows: 7, "the transform returned a int: a RecordBatch, a Table"),
        (lambda rows: [7], "an iterable with a int"),
        (partial(guarded, threading.Lock()), "sent to Spark's Python workers: .*lock"),
    ],
)
def test_what_is_refused_at_once(spark: Any, servers: str, tmp_path: Path, transform: Any, why: str) -> None:
    pipeline = Pipeline(servers, tmp_path, f"refused-{abs(hash(why))}")
    with pytest.raises(ConfigurationError, match=why):
        arrow_pipeline(spark, source=pipeline.source, transform=transform, sink=pipeline.sink)


def test_options_of_the_source_are_refused_at_once(spark: Any, servers: str, tmp_path: Path) -> None:
    pipeline = Pipeline(servers, tmp_path, "never")
    with pytest.raises(ConfigurationError, match="exactly one of the options subscribe"):
        arrow_pipeline(
            spark,
            source={"kafka.bootstrap.servers": servers},
            transform=lambda rows: rows.select(["value"]),
            sink=pipeline.sink,
        )
