"""Metrics of streaming queries for a meter of the OpenTelemetry API (extra `opentelemetry`).

A query's sink runs in short-lived processes of Spark. Spark reports their numbers to listeners in the driver, where the
application has its OpenTelemetry SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from fencepost import __version__
from fencepost.extras import extra_named
from fencepost.spark.source.progress import behind_latest

with extra_named("opentelemetry", __name__):
    from opentelemetry import metrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["QueryMeter"]

_PREFIX: Final = "fencepost.spark."


class QueryMeter(StreamingQueryListener):
    """A listener for `spark.streams.addListener` that records metrics of streaming queries.

    Each metric is named `fencepost.spark.NAME` and has the attribute `query`: the query's name, or its id without one.

    Metrics of every batch:
        batches_total: Finished batches.
        rows_read_total: Rows from the sources.
        rows_written_total: Rows to the sink, if Spark counts them. It does not count rows of foreachBatch.
        batch_ms: Time of a batch, in ms.
        sink_ms: The part of that time for writing and committing, in ms.
        last_batch: The number of the last batch.

    Metrics of the sources, each of the partition with the most:
        offsets_behind_latest: As in `behind_latest`.
        offsets_held_back: As in `behind_latest`.

    Metrics of queries:
        failures_total: Queries that ended with an error.
    """

    def __init__(self, meter: metrics.Meter | None = None) -> None:
        """Create the instruments. `meter` None: the global meter."""
        source = meter or metrics.get_meter("fencepost", __version__)
        counters = {
            "batches_total": "batches that were done",
            "rows_read_total": "rows that came from the sources",
            "rows_written_total": "rows that went to the sink",
            "failures_total": "queries that ended with an error",
        }
        gauges = {
            "last_batch": "number of the last batch",
            "offsets_behind_latest": "offsets between what was read and what was there",
            "offsets_held_back": "offsets behind an open transaction",
        }
        self._counters = {name: source.create_counter(_PREFIX + name, "", text) for name, text in counters.items()}
        self._gauges = {name: source.create_gauge(_PREFIX + name, "", text) for name, text in gauges.items()}
        self._batch_ms = source.create_histogram(f"{_PREFIX}batch_ms", "ms", "from a batch's begin to its end")
        self._sink_ms = source.create_histogram(f"{_PREFIX}sink_ms", "ms", "writing and committing a batch")
        self._names: dict[str, str] = {}
        """The query's name for each run id, because the event of a query's end has no name."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - PySpark calls it so
        """Remember the query's name, so that a failure before the first batch is counted under it."""
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - PySpark calls it so
        """Record a finished batch and the lag of its sources. Without a batch only the lag is recorded."""
        report = json.loads(event.progress.json)
        query = {"query": report.get("name") or report["id"]}
        self._lag(report, query)
        took_ms = report.get("durationMs", {})
        if "addBatch" not in took_ms:
            return
        written = report.get("sink", {}).get("numOutputRows", -1)
        self._counters["batches_total"].add(1, query)
        self._counters["rows_read_total"].add(report["numInputRows"], query)
        if written >= 0:  # -1: unknown
            self._counters["rows_written_total"].add(written, query)
        self._gauges["last_batch"].set(report["batchId"], query)
        self._batch_ms.record(took_ms["triggerExecution"], query)
        self._sink_ms.record(took_ms["addBatch"], query)

    def _lag(self, report: Mapping[str, Any], query: Mapping[str, str]) -> None:
        sources = behind_latest(report)
        if sources:
            self._gauges["offsets_behind_latest"].set(max(each.max_offsets_behind_latest for each in sources), query)
            self._gauges["offsets_held_back"].set(max(each.max_offsets_held_back for each in sources), query)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - PySpark calls it so
        """Do nothing: an idle query has no new numbers."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - PySpark calls it so
        """Count a failure if the query ended with an error, and forget the query's name."""
        name = self._names.pop(str(event.runId), str(event.id))
        if event.exception is not None:
            self._counters["failures_total"].add(1, {"query": name})
