"""The broker's counters over HTTP, for Prometheus (`pip install fencepost[metrics]`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fencepost.broker.metrics import COUNTERS, Metrics

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily

__all__ = ["serve_metrics"]


class _Collector:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily

        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"fencepost_broker_{name}", text, value=self._metrics.values[name])


def serve_metrics(metrics: Metrics, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Answer GET /metrics in a thread of its own; returns the port (0 takes a free one) and what ends it.

    Raises ImportError without the package, OSError when the port is taken."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    server, thread = start_http_server(port, host, registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, end
