"""HTTP endpoint for Prometheus with the broker's counters and gauges (`pip install fencepost[metrics]`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from fencepost.broker.metrics.counters import COUNTERS, GAUGES, Snapshot
from fencepost.broker.metrics.families import labelled_families
from fencepost.broker.metrics.log_rate_limit import RateLimit
from fencepost.broker.metrics.pushed_families import pushed_families

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, Metric

__all__ = ["serve_metrics"]

MOST_SCRAPES = 8
_SCRAPE_S = 30.0
_PLAIN = {"Content-Type": "text/plain"}
_PAUSES = 10  # snapshots take at most a tenth of the broker's time
_log = logging.getLogger("fencepost.broker.metrics")
_PREFIX = "fencepost_broker_"


class _Collector:
    def __init__(self, look: Callable[[], Snapshot]) -> None:
        from importlib.metadata import version  # slow to import

        self._look = look
        self._version = version("fencepost")

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Return nothing, so that registration does not take a snapshot."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        snapshot = self._look()
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, text, value=snapshot.counters[name])
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(_PREFIX + name, text, value=snapshot.gauges[name])
        yield from labelled_families(snapshot, _PREFIX)
        yield from pushed_families(snapshot.pushing_clients)
        build = GaugeMetricFamily(_PREFIX + "build_info", "1, with the version as label.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build


class _Page:
    """The metrics as text, built for one scrape at a time.

    A snapshot takes time of the broker. A new one is taken only after `_PAUSES` times the duration of the last one;
    until then the last text is returned.
    """

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._registry = CollectorRegistry()
        self._registry.register(_Collector(look))
        ProcessCollector(registry=self._registry)  # descriptors and their limit, memory, CPU, start time
        self._lock = threading.Lock()
        self._texts: dict[str, bytes] = {}  # by content type
        self._next_s = 0.0

    def text(self, accepted: str) -> tuple[str, bytes]:
        """Return content type and text for an Accept header."""
        from prometheus_client.exposition import choose_encoder

        encode, kind = choose_encoder(accepted)
        with self._lock:
            began_s = time.monotonic()
            if began_s >= self._next_s:
                self._texts.clear()
            if kind not in self._texts:
                self._texts[kind] = encode(self._registry)
                ended_s = time.monotonic()
                self._next_s = ended_s + _PAUSES * (ended_s - began_s)
            return kind, self._texts[kind]


def serve_metrics(look: Callable[[], Snapshot], host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve GET /metrics in threads.

    Args:
        look: Returns a snapshot; called in one of these threads at a time.
        host: The address to listen on.
        port: The port; 0 takes a free one.

    Returns:
        The port, and a function that stops the service.

    Raises:
        ImportError: The package prometheus-client is missing.
        OSError: The address is invalid or the port is in use.
    """
    # Imported here because http.server is slow to import.
    from fencepost.arguments import is_loopback
    from fencepost.broker.metrics.bounded_http import BoundedServer, is_own_host

    page, pace = _Page(look), RateLimit()
    is_private = is_loopback(host)

    def answer(method: str, target: str, headers: Mapping[str, str], _: bytes) -> tuple[int, Mapping[str, str], bytes]:
        if method != "GET" or target.partition("?")[0] not in ("/metrics", "/"):
            return 404, _PLAIN, b"GET /metrics\n"
        if is_private and not is_own_host(headers.get("host", "localhost"), frozenset()):
            # Else a web site reads the names of topics and clients through a browser on this machine (DNS rebinding).
            return 421, _PLAIN, b"ask for localhost or an address, or choose another address with --metrics-listen\n"
        try:
            kind, text = page.text(headers.get("accept", ""))
        except Exception:  # noqa: BLE001 - every request needs a response
            _log.exception("the metrics for /metrics could not be collected")
            return 500, _PLAIN, b"the metrics could not be collected; see the log\n"
        return 200, {"Content-Type": kind}, text

    def struck(reason: str) -> None:
        if times := pace.hit(int(time.monotonic() * 1000)):
            _log.warning(
                "the metrics port closes a connection: %s; %d times since the last such message", reason, times
            )

    server = BoundedServer((host, port), answer, most=MOST_SCRAPES, log=_log, struck=struck, most_s=_SCRAPE_S)
    server.start("fencepost-metrics")
    return server.port, server.stop
