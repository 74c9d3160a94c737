"""Counters of producers and consumers, and a Prometheus collector for any client's metrics.

Names are those of Kafka's client metrics, in snake_case; times are in ms, sizes in bytes. A metric of one topic,
partition or broker has a `Series` as its key, whose text is that of Prometheus: `topic_record_send_total{topic="t"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from fencepost.client.types import TopicPartition
from fencepost.values import MutableValue, field_names

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MOST_SERIES: Final = 1_000
OTHERS: Final = "(others)"
_TOPIC: Final = ("topic", "topic")  # the prefix of the names, and the label


class Series(str):
    """The key of a metric with labels: `name{label="value"}`, of which it also has the parts."""

    __slots__ = ("labels", "name")
    name: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, labels: Mapping[str, str], values: Mapping[str, float]) -> dict[str, float]:
        """Return the values by name with their keys, all with the same labels."""
        text = ",".join(f"{label}={_quoted(value)}" for label, value in labels.items())
        found: dict[str, float] = {}
        for name, value in values.items():
            key = cls(f"{name}{{{text}}}")
            key.name, key.labels = name, labels
            found[key] = value
        return found


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def parts_of(key: str) -> tuple[str, Mapping[str, str]]:
    """Return a metric's name and labels."""
    return (key.name, key.labels) if isinstance(key, Series) else (key, {})


class TopicSends(MutableValue):
    """Records and bytes that a producer sent to one topic (Java: producer-topic-metrics)."""

    record_send_total: int = 0  # acknowledged records
    record_error_total: int = 0
    record_retry_total: int = 0
    byte_total: int = 0  # of batches as they are sent, retries included


class TopicReads(MutableValue):
    """Records and bytes that a consumer read from one topic (Java: consumer-fetch-manager-metrics)."""

    records_consumed_total: int = 0
    bytes_consumed_total: int = 0  # of fetched batches as they are stored


class NodeTraffic(MutableValue):
    """Requests to one broker, of all kinds (Java: producer-node-metrics, consumer-node-metrics)."""

    request_total: int = 0
    response_total: int = 0
    outgoing_byte_total: int = 0
    incoming_byte_total: int = 0
    request_latency_ms_total: int = 0
    request_latency_ms_max: int = 0

    def requested(self, size_bytes: int) -> None:
        """Count a request."""
        self.request_total += 1
        self.outgoing_byte_total += size_bytes

    def answered(self, latency_ms: int, size_bytes: int) -> None:
        """Count a response. The latency includes the time for which the broker holds a request, such as a fetch."""
        self.response_total += 1
        self.incoming_byte_total += size_bytes
        self.request_latency_ms_total += latency_ms
        self.request_latency_ms_max = max(self.request_latency_ms_max, latency_ms)


C = TypeVar("C", bound=TopicSends | TopicReads | NodeTraffic)
K = TypeVar("K", bound=Hashable)


class CountersByLabel(Generic[K, C]):
    """Counters by topic or broker: of the first `MOST_SERIES` each its own, of all others together one."""

    def __init__(self, kind: type[C], prefix: str, label: str) -> None:
        self._kind = kind
        self._names = {name: f"{prefix}_{name}" for name in field_names(kind)}
        self._label = label
        self._counters: dict[K, C] = {}
        self._others: C | None = None

    def of(self, key: K) -> C:
        """Return the counters to add to."""
        found = self._counters.get(key)
        if found is not None:
            return found
        if len(self._counters) < MOST_SERIES:
            return self._counters.setdefault(key, self._kind())
        self._others = self._others or self._kind()
        return self._others

    def series(self, label_of: Callable[[K], str | None] = str) -> dict[str, float]:
        """Return the values. Keys to which `label_of` gives no label are left out. Any thread may call it."""
        found = [(label_of(key), counters) for key, counters in list(self._counters.items())]
        if self._others is not None:
            found.append((OTHERS, self._others))
        series: dict[str, float] = {}
        for label, counters in found:
            if label is not None:
                values = {name: getattr(counters, own) for own, name in self._names.items()}
                series |= Series.of({self._label: label}, values)
        return series


def lags(found: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, float]:
    """Return the series of partitions with their lag and lead, of the first `MOST_SERIES` in order."""
    series: dict[str, float] = {}
    for partition in sorted(found)[:MOST_SERIES]:
        labels = {"topic": partition.topic, "partition": str(partition.partition)}
        lag, lead = found[partition]
        series |= Series.of(labels, {"partition_records_lag": lag, "partition_records_lead": lead})
    return series


LABELLED: Final = frozenset(
    {
        "partition_records_lag",
        "partition_records_lead",
        *(f"topic_{name}" for kind in (TopicSends, TopicReads) for name in field_names(kind)),
        *(f"node_{name}" for name in field_names(NodeTraffic)),
    }
)
"""The names of all metrics with labels."""


class ProducerMetrics(MutableValue):
    """Totals since the producer was created, and maximum values."""

    record_send_total: int = 0  # acknowledged records
    record_error_total: int = 0  # records that were not delivered
    record_retry_total: int = 0
    batch_split_total: int = 0
    request_total: int = 0
    request_failed_total: int = 0  # without a response
    request_latency_ms_total: int = 0
    request_latency_ms_max: int = 0
    outgoing_byte_total: int = 0
    outgoing_batch_total: int = 0
    outgoing_record_total: int = 0  # retries included
    record_queue_time_ms_total: int = 0  # from the creation of a batch to its request, retries included
    record_queue_time_ms_max: int = 0
    produce_throttle_ms_total: int = 0
    produce_throttle_ms_max: int = 0
    buffer_exhausted_total: int = 0  # send() gave up waiting for buffer space
    transaction_begin_total: int = 0
    transaction_commit_total: int = 0
    transaction_abort_total: int = 0
    transaction_timed_out_total: int = 0  # aborted by the coordinator after their timeout
    producer_fenced_total: int = 0  # another producer took over the transactional id
    data_loss_total: int = 0  # errors that mean that acknowledged records are missing
    data_loss_explained_total: int = 0  # the same errors with nothing missing (retention, a new topic)
    topics: CountersByLabel[str, TopicSends]

    @classmethod
    def start(cls) -> ProducerMetrics:
        """Return metrics that have counted nothing yet."""
        return cls(topics=CountersByLabel(TopicSends, *_TOPIC))

    def delivered(self, topic: str, records: int) -> None:
        """Count acknowledged records."""
        self.record_send_total += records
        self.topics.of(topic).record_send_total += records

    def failed(self, topic: str, records: int) -> None:
        """Count records that were not delivered."""
        self.record_error_total += records
        self.topics.of(topic).record_error_total += records

    def retried(self, topic: str, records: int) -> None:
        """Count records that are sent again."""
        self.record_retry_total += records
        self.topics.of(topic).record_retry_total += records

    def request_sent(self, size_bytes: int, batches: int, records: int) -> None:
        """Count a Produce request."""
        self.request_total += 1
        self.outgoing_byte_total += size_bytes
        self.outgoing_batch_total += batches
        self.outgoing_record_total += records

    def queued(self, queue_time_ms: int) -> None:
        """Count the time that a batch spent in the buffer before its request."""
        self.record_queue_time_ms_total += queue_time_ms
        self.record_queue_time_ms_max = max(self.record_queue_time_ms_max, queue_time_ms)

    def sequence_refused(self, lost: bool) -> None:
        """Count a batch rejected for its sequence; with `lost` acknowledged records are missing."""
        if lost:
            self.data_loss_total += 1
        else:
            self.data_loss_explained_total += 1

    def request_done(self, latency_ms: int) -> None:
        """Count a response."""
        self.request_latency_ms_total += latency_ms
        self.request_latency_ms_max = max(self.request_latency_ms_max, latency_ms)

    def throttled(self, throttle_ms: int) -> None:
        """Count a throttle time of the broker in ms (0: none)."""
        self.produce_throttle_ms_total += throttle_ms
        self.produce_throttle_ms_max = max(self.produce_throttle_ms_max, throttle_ms)

    def snapshot(self) -> dict[str, float]:
        """Return all counters and averages."""
        found = _numbers(self)
        answered = self.request_total - self.request_failed_total
        found["request_latency_ms_avg"] = self.request_latency_ms_total / answered if answered else 0.0
        found["batch_size_avg"] = _ratio(self.outgoing_byte_total, self.outgoing_batch_total)
        found["record_queue_time_ms_avg"] = _ratio(self.record_queue_time_ms_total, self.outgoing_batch_total)
        found["records_per_request_avg"] = _ratio(self.outgoing_record_total, self.request_total)
        return found | self.topics.series()


def _numbers(metrics: MutableValue) -> dict[str, float]:
    """Return the fields that are numbers."""
    values = {name: getattr(metrics, name) for name in field_names(type(metrics))}
    return {name: value for name, value in values.items() if isinstance(value, int)}


def _ratio(total: float, count: float) -> float:
    return total / count if count else 0.0


class ShareConsumerMetrics(MutableValue):
    """Totals since the share consumer was created."""

    polls_total: int = 0
    records_consumed_total: int = 0
    records_expired_total: int = 0  # fetched and not delivered: their locks expired before the next poll
    acknowledgements_send_total: int = 0  # records
    acknowledgements_error_total: int = 0  # records
    share_sessions_total: int = 0
    share_sessions_lost_total: int = 0
    fetch_total: int = 0
    fetch_latency_ms_total: int = 0
    fetch_latency_ms_max: int = 0
    fetch_throttle_ms_total: int = 0
    fetch_throttle_ms_max: int = 0
    bytes_consumed_total: int = 0  # of fetched batches as they are stored
    rebalance_total: int = 0  # changes of the assignment
    heartbeat_total: int = 0
    heartbeat_failed_total: int = 0

    def fetched(self, latency_ms: int, throttle_ms: int) -> None:
        """Count a response to a fetch. The latency includes the time for which the broker waits for records."""
        self.fetch_total += 1
        self.fetch_latency_ms_total += latency_ms
        self.fetch_latency_ms_max = max(self.fetch_latency_ms_max, latency_ms)
        self.fetch_throttle_ms_total += throttle_ms
        self.fetch_throttle_ms_max = max(self.fetch_throttle_ms_max, throttle_ms)

    def snapshot(self) -> dict[str, float]:
        """Return all counters and the average latency."""
        return _numbers(self) | {"fetch_latency_ms_avg": _ratio(self.fetch_latency_ms_total, self.fetch_total)}


class ConsumerMetrics(MutableValue):
    """Totals since the consumer was created."""

    records_consumed_total: int = 0
    polls_total: int = 0
    fetch_total: int = 0
    fetch_follower_total: int = 0  # of these, from the nearest replica (client_rack) instead of the leader
    fetch_failed_total: int = 0
    fetch_latency_ms_total: int = 0
    fetch_latency_ms_max: int = 0
    fetch_throttle_ms_total: int = 0
    fetch_session_restarts_total: int = 0
    commit_total: int = 0
    commit_latency_ms_total: int = 0
    commit_latency_ms_max: int = 0
    commit_failed_total: int = 0
    rebalance_total: int = 0
    partitions_lost_total: int = 0
    heartbeat_total: int = 0
    heartbeat_failed_total: int = 0
    truncations_total: int = 0
    topics: CountersByLabel[str, TopicReads]

    @classmethod
    def start(cls) -> ConsumerMetrics:
        """Return metrics that have counted nothing yet."""
        return cls(topics=CountersByLabel(TopicReads, *_TOPIC))

    def fetched(self, latency_ms: int) -> None:
        """Count a response to a fetch. The latency includes the time for which the broker waits for records."""
        self.fetch_total += 1
        self.fetch_latency_ms_total += latency_ms
        self.fetch_latency_ms_max = max(self.fetch_latency_ms_max, latency_ms)

    def committed(self, latency_ms: int) -> None:
        """Count a commit of offsets."""
        self.commit_total += 1
        self.commit_latency_ms_total += latency_ms
        self.commit_latency_ms_max = max(self.commit_latency_ms_max, latency_ms)

    def consumed(self, records: Mapping[str, int]) -> None:
        """Count the records of a poll, by topic."""
        for topic, count in records.items():
            self.records_consumed_total += count
            self.topics.of(topic).records_consumed_total += count

    def taken_back(self, records: Mapping[str, int]) -> None:
        """Count off records, by topic, that the application did not get: the next poll returns them."""
        if records:
            self.consumed({topic: -count for topic, count in records.items()})

    def snapshot(self) -> dict[str, float]:
        """Return all counters and averages."""
        found = _numbers(self)
        found["fetch_latency_ms_avg"] = _ratio(self.fetch_latency_ms_total, self.fetch_total)
        found["commit_latency_ms_avg"] = _ratio(self.commit_latency_ms_total, self.commit_total)
        return found | self.topics.series()


class HasMetrics(Protocol):
    """A client with metrics: Producer, Consumer and their asyncio variants."""

    def metrics(self) -> Mapping[str, float]: ...


class PrometheusCollector:
    """A collector for prometheus-client (extra `metrics`): `REGISTRY.register(PrometheusCollector(orders=producer))`.

    Each metric becomes `fencepost_client_<name>` with the label `client`, whose value is the keyword, and its own.
    """

    def __init__(self, **clients: HasMetrics) -> None:
        self._clients = clients

    def describe(self) -> Iterable[Metric]:
        """Return nothing: a client's metrics are known only when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family per name, with a sample for each client that has it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for label, client in self._clients.items():
            for key, value in client.metrics().items():
                name, labels = parts_of(key)
                if name not in families:
                    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                    own = ["client", *labels]
                    families[name] = kind(f"fencepost_client_{name}", name.replace("_", " "), labels=own)
                families[name].add_metric([label, *labels.values()], value)
        yield from families.values()
