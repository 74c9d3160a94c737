"""The broker's counters and gauges over HTTP, for Prometheus (`pip install fencepost[metrics]`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from fencepost.broker.metrics.counters import COUNTERS, GAUGES, Snapshot
from fencepost.broker.metrics.latencies import BUCKETS_MS, Latency

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

__all__ = ["serve_metrics"]

_PREFIX = "fencepost_broker_"
_BOUNDS = (*map(str, BUCKETS_MS), "+Inf")


def _up_to(latency: Latency) -> list[tuple[str, int]]:
    """By bound, those within it, as Prometheus counts."""
    return list(zip(_BOUNDS, accumulate(latency.counts), strict=True))


class _Collector:
    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Nothing: so that registering asks for no numbers."""
        return iter(())

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        seen = self._look()
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, text, value=seen.counters[name])
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(_PREFIX + name, text, value=seen.gauges[name])
        requests = CounterMetricFamily(_PREFIX + "requests", "Requests by API.", labels=["api"])
        for api, count in seen.requests.items():
            requests.add_metric([api], count)
        yield requests
        text = "From a request to its answer, in ms, what it waited for on purpose included."
        latencies = HistogramMetricFamily(_PREFIX + "request_ms", text, labels=["api"])
        for api, latency in seen.latencies.items():
            latencies.add_metric([api], _up_to(latency), latency.sum_ms)
        yield latencies
        text = "From the beginning of a sync to its end, in ms: of all logs that had something to sync then."
        yield HistogramMetricFamily(_PREFIX + "sync_ms", text, _up_to(seen.syncs), seen.syncs.sum_ms)
        text = "Offsets that readers of committed records do not see yet, because a transaction before them is open."
        lags = GaugeMetricFamily(_PREFIX + "stable_lag", text, labels=["topic", "partition"])
        for (topic, partition), lag in seen.stable_lag.items():
            lags.add_metric([topic, str(partition)], lag)
        yield lags


def serve_metrics(look: Callable[[], Snapshot], host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Answer GET /metrics in a thread of its own; returns the port (0 takes a free one) and what ends it.

    `look` is called in that thread, once for each answer. Raises ImportError without the package, OSError when the port
    is taken."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(look))
    server, thread = start_http_server(port, host, registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, end
