"""The table of the metrics with labels: a row has everything about one of them.

Metrics without labels are in `counters`. Times are in seconds and sizes in bytes, as Prometheus recommends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.metrics.latencies import BUCKETS_MS, Latency

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["FAMILIES", "HISTOGRAMS", "labelled_families"]

_BOUNDS: Final = (*(str(bound_ms / 1000) for bound_ms in BUCKETS_MS), "+Inf")

Samples = Iterable[tuple[tuple[str, ...], float]]


class Family(NamedTuple):
    """A counter or gauge with labels. `samples` yields label values and number."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Samples]
    is_counter: bool = True


class Histogram(NamedTuple):
    """A histogram of durations. `samples` yields label values and latency."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], Latency]]]


FAMILIES: Final[Sequence[Family]] = (
    Family("requests", "Requests by API.", ("api",), lambda seen: (((api,), n) for api, n in seen.requests.items())),
    Family(
        "straight_requests",
        "Of these, requests that took the straight path, by API.",
        ("api",),
        lambda seen: (((api,), n) for api, n in seen.straight_requests.items()),
    ),
    Family(
        "stable_lag",
        "Offsets that readers of committed records do not see yet, because a transaction before them is open.",
        ("topic", "partition"),
        lambda seen: (((topic, str(index)), n) for (topic, index), n in seen.stable_lag.items()),
        is_counter=False,
    ),
)

HISTOGRAMS: Final[Sequence[Histogram]] = (
    Histogram(
        "request_duration_seconds",
        "From a request to its answer, deliberate waits included.",
        ("api",),
        lambda seen: (((api,), latency) for api, latency in seen.latencies.items()),
    ),
    Histogram(
        "sync_duration_seconds",
        "From the beginning of a sync to its end, of all logs that had something to sync then.",
        (),
        lambda seen: [((), seen.syncs)],
    ),
)


def labelled_families(seen: Snapshot, prefix: str) -> Iterator[Metric]:
    """Yield the families of both tables."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for row in FAMILIES:
        kind = CounterMetricFamily if row.is_counter else GaugeMetricFamily
        family = kind(prefix + row.name, row.text, labels=row.labels)
        for labels, value in row.samples(seen):
            family.add_metric(labels, value)
        yield family
    for each in HISTOGRAMS:
        histogram = HistogramMetricFamily(prefix + each.name, each.text, labels=each.labels)
        for labels, latency in each.samples(seen):
            histogram.add_metric(labels, _up_to(latency), latency.sum_ms / 1000)
        yield histogram


def _up_to(latency: Latency) -> list[tuple[str, int]]:
    """Return the cumulative count by bucket, as Prometheus needs it."""
    return list(zip(_BOUNDS, accumulate(latency.counts), strict=True))
