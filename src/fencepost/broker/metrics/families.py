"""The table of the metrics with labels: a row has everything about one of them.

Metrics without labels are in `counters`. Times are in seconds and sizes in bytes, as Prometheus recommends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.broker.metrics.counters import LogExtent, Snapshot
from fencepost.broker.metrics.latencies import BUCKETS_MS, Latency
from fencepost.broker.metrics.traffic import TopicTraffic

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


def _by_api(field: str) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: (((api,), count) for api, count in getattr(snapshot, field).items())


def _by_topic(count: Callable[[TopicTraffic], int]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: (((topic,), count(traffic)) for topic, traffic in snapshot.traffic.items())


def _by_partition(number: Callable[[LogExtent], int]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: (((topic, str(index)), number(log)) for (topic, index), log in snapshot.logs.items())


def _topic_errors(snapshot: Snapshot) -> Samples:
    for topic, traffic in snapshot.traffic.items():
        yield (topic, "produce"), traffic.produce_errors
        yield (topic, "fetch"), traffic.fetch_errors


_API, _TOPIC, _PARTITION = ("api",), ("topic",), ("topic", "partition")

FAMILIES: Final[Sequence[Family]] = (
    Family("requests", "Requests by API.", _API, _by_api("requests")),
    Family("straight_requests", "Of these, requests that took the straight path.", _API, _by_api("straight_requests")),
    Family("request_bytes", "Bytes of requests by API.", _API, _by_api("request_bytes")),
    Family("response_bytes", "Bytes of responses by API.", _API, _by_api("response_bytes")),
    Family(
        "response_errors",
        "Error codes in responses by API, one for each object that was refused. Clients handle many of them.",
        ("api", "error"),
        lambda seen: seen.errors.items(),
    ),
    Family(
        "topic_written_records",
        "Records that clients appended. Duplicates and markers do not count.",
        _TOPIC,
        _by_topic(lambda traffic: traffic.written_records),
    ),
    Family(
        "topic_written_bytes",
        "Bytes that clients appended, as stored.",
        _TOPIC,
        _by_topic(lambda traffic: traffic.written_bytes),
    ),
    Family(
        "topic_read_bytes",
        "Bytes of batches in answers to consumers.",
        _TOPIC,
        _by_topic(lambda traffic: traffic.read_bytes),
    ),
    Family("topic_errors", "Partitions that Produce or Fetch refused.", ("topic", "api"), _topic_errors),
    Family(
        "topic_size_bytes",
        "Bytes of the topic's opened logs.",
        _TOPIC,
        lambda seen: (((topic,), size) for topic, size in seen.topic_bytes.items()),
        is_counter=False,
    ),
    Family(
        "partition_size_bytes",
        "Bytes of the log.",
        _PARTITION,
        _by_partition(lambda log: log.size_bytes),
        is_counter=False,
    ),
    Family(
        "partition_start_offset",
        "First offset of the log.",
        _PARTITION,
        _by_partition(lambda log: log.start_offset),
        is_counter=False,
    ),
    Family(
        "partition_end_offset",
        "Offset after the log's end.",
        _PARTITION,
        _by_partition(lambda log: log.end_offset),
        is_counter=False,
    ),
    Family(
        "group_lag",
        "Offsets of the topic that the group has not committed, or as a share group not acknowledged.",
        ("group", "topic"),
        lambda seen: seen.group_lag.items(),
        is_counter=False,
    ),
    Family(
        "stable_lag",
        "Offsets that readers of committed records do not see yet, because a transaction before them is open.",
        _PARTITION,
        lambda seen: (((topic, str(index)), count) for (topic, index), count in seen.stable_lag.items()),
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


def labelled_families(snapshot: Snapshot, prefix: str) -> Iterator[Metric]:
    """Yield the families of both tables."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for row in FAMILIES:
        kind = CounterMetricFamily if row.is_counter else GaugeMetricFamily
        family = kind(prefix + row.name, row.text, labels=row.labels)
        for labels, value in row.samples(snapshot):
            family.add_metric(labels, value)
        yield family
    for each in HISTOGRAMS:
        histogram = HistogramMetricFamily(prefix + each.name, each.text, labels=each.labels)
        for labels, latency in each.samples(snapshot):
            histogram.add_metric(labels, _up_to(latency), latency.sum_ms / 1000)
        yield histogram


def _up_to(latency: Latency) -> list[tuple[str, int]]:
    """Return the cumulative count by bucket, as Prometheus needs it."""
    return list(zip(_BOUNDS, accumulate(latency.counts), strict=True))
