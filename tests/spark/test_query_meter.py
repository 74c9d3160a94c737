"""Numbers of queries by OpenTelemetry: what a meter is told while one copies, fails and stands behind its source."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fencepost import Admin, Producer
from fencepost.broker.embedded import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Numbers:
    """Values of the meter by name and query. The value of a histogram is its count."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def now(self) -> dict[tuple[str, str], float]:
        data = self._reader.get_metrics_data()
        return {
            (metric.name.removeprefix("fencepost.spark."), str(dict(point.attributes or {})["query"])): (
                point.count if hasattr(point, "count") else point.value
            )
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    def until(self, name: str, query: str) -> dict[str, float]:
        """Those of a query, once there is that one: Spark tells listeners a little later."""
        deadline = time.monotonic() + 120
        while (name, query) not in (found := self.now()):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return {name: value for (name, of), value in found.items() if of == query}


def test_a_query_and_one_that_fails(spark: Any, tmp_path: Path) -> None:
    from fencepost.spark.opentelemetry import QueryMeter

    reader = InMemoryMetricReader()
    meter = QueryMeter(MeterProvider([reader]).get_meter("test"))
    numbers = Numbers(reader)
    with Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("in", 1)
            admin.create_topic("out", 1)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("in", b"%d" % number)
        where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        source = {**where, "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
        read = spark.readStream.format("fencepost").options(**source).load().select("value")

        def run(name: str, **sink: str) -> None:
            writer = read.writeStream.format("fencepost").queryName(name).options(**where, **sink)
            writer = writer.option("sink.id", name).option("checkpointLocation", str(tmp_path / name))
            writer.trigger(availableNow=True).start().awaitTermination()

        spark.streams.addListener(meter)
        try:
            run("copy", topic="out")
            with pytest.raises(Exception, match="nowhere"):
                run("lost", topic="nowhere/at/all")
            failed = numbers.until("failures_total", "lost")
            done = numbers.until("last_batch", "copy")
        finally:
            spark.streams.removeListener(meter)
    assert done == {
        "batches_total": 2,
        "rows_read_total": 10,
        "rows_written_total": 10,
        "last_batch": 1,
        "batch_ms": 2,
        "sink_ms": 2,
        "offsets_behind_latest": 0,
        "offsets_held_back": 0,
    }
    assert failed == {"failures_total": 1}
