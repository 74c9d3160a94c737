"""Counters of producers and consumers, and a Prometheus collector for any client's metrics.

Names are those of Kafka's client metrics, in snake_case; times are in ms, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(slots=True)
class ProducerMetrics:
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

    def request_sent(self, size_bytes: int, batches: int, records: int) -> None:
        """Count a Produce request."""
        self.request_total += 1
        self.outgoing_byte_total += size_bytes
        self.outgoing_batch_total += batches
        self.outgoing_record_total += records

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
        found: dict[str, float] = asdict(self)
        answered = self.request_total - self.request_failed_total
        found["request_latency_ms_avg"] = self.request_latency_ms_total / answered if answered else 0.0
        found["batch_size_avg"] = _ratio(self.outgoing_byte_total, self.outgoing_batch_total)
        found["records_per_request_avg"] = _ratio(self.outgoing_record_total, self.request_total)
        return found


def _ratio(total: float, count: float) -> float:
    return total / count if count else 0.0


@dataclass(slots=True)
class ShareConsumerMetrics:
    """Totals since the share consumer was created."""

    polls_total: int = 0
    records_consumed_total: int = 0
    records_expired_total: int = 0  # fetched and not delivered: their locks expired before the next poll
    acknowledgements_send_total: int = 0  # records
    acknowledgements_error_total: int = 0  # records
    share_sessions_total: int = 0
    share_sessions_lost_total: int = 0
    heartbeat_total: int = 0
    heartbeat_failed_total: int = 0

    def snapshot(self) -> dict[str, float]:
        """Return all counters."""
        return asdict(self)


@dataclass(slots=True)
class ConsumerMetrics:
    """Totals since the consumer was created."""

    records_consumed_total: int = 0
    polls_total: int = 0
    fetch_total: int = 0
    fetch_follower_total: int = 0  # of these, from the nearest replica (client_rack) instead of the leader
    fetch_failed_total: int = 0
    fetch_latency_ms_total: int = 0
    fetch_throttle_ms_total: int = 0
    fetch_session_restarts_total: int = 0
    commit_total: int = 0
    commit_failed_total: int = 0
    rebalance_total: int = 0
    partitions_lost_total: int = 0
    heartbeat_total: int = 0
    heartbeat_failed_total: int = 0
    truncations_total: int = 0

    def snapshot(self) -> dict[str, float]:
        """Return all counters and averages."""
        found: dict[str, float] = asdict(self)
        found["fetch_latency_ms_avg"] = self.fetch_latency_ms_total / self.fetch_total if self.fetch_total else 0.0
        return found


class HasMetrics(Protocol):
    """A client with metrics: Producer, Consumer and their asyncio variants."""

    def metrics(self) -> Mapping[str, float]: ...


class PrometheusCollector:
    """A collector for prometheus-client (extra `metrics`): `REGISTRY.register(PrometheusCollector(orders=producer))`.

    Each metric becomes `fencepost_client_<name>` with the label `client`, whose value is the keyword.
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
            for name, value in client.metrics().items():
                if name not in families:
                    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                    families[name] = kind(f"fencepost_client_{name}", name.replace("_", " "), labels=["client"])
                families[name].add_metric([label], value)
        yield from families.values()
