"""The metrics of `metrics()` by their names in pushes (KIP-714), which are those of Java's clients.

A metric is not pushed if Java's clients do not have it, or use the name for something else. Averages cover the time
since the last push, maximum values the time since the client was created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client.metrics import Series, parts_of
from fencepost.protocol.telemetry.otlp_writing import DELTA, GAUGE, TOTAL, NumberPoint

__all__ = ["ADMIN", "CONSUMER", "PRODUCER", "SHARE_CONSUMER", "Metric", "Role", "chosen"]

_MS: Final = 1_000


class _Row(NamedTuple):
    """A metric and its name in pushes, without the role's prefix.

    Attributes:
        own: Its name in `metrics()`.
        name: Its name in pushes.
        kind: TOTAL or GAUGE.
        of: For an average: totals. The growth of `own` is divided by the growth of the first, less that of the others.
    """

    own: str
    name: str
    kind: int = TOTAL
    of: tuple[str, ...] = ()


class Role(NamedTuple):
    """A kind of client.

    Attributes:
        prefix: The beginning of its metrics' names.
        rows: Its metrics.
    """

    prefix: str
    rows: Sequence[_Row]


class Metric(NamedTuple):
    """A metric to be pushed."""

    name: str
    kind: int
    points: Sequence[NumberPoint]


_OF_CONNECTIONS: Final = (
    _Row("connection_creation_total", "connection.creation.total"),
    _Row("connection_count", "connection.count", GAUGE),
    _Row("node_request_total", "node.request.total"),
    _Row("node_response_total", "node.response.total"),
    _Row("node_outgoing_byte_total", "node.outgoing.byte.total"),
    _Row("node_incoming_byte_total", "node.incoming.byte.total"),
    _Row("node_request_latency_ms_total", "node.request.latency.avg", GAUGE, ("node_response_total",)),
    _Row("node_request_latency_ms_max", "node.request.latency.max", GAUGE),
)
_ANSWERED: Final = ("request_total", "request_failed_total")

PRODUCER: Final = Role(
    "org.apache.kafka.producer.",
    (
        *_OF_CONNECTIONS,
        _Row("record_send_total", "record.send.total"),
        _Row("record_error_total", "record.error.total"),
        _Row("record_retry_total", "record.retry.total"),
        _Row("batch_split_total", "batch.split.total"),
        _Row("buffer_total_bytes", "buffer.total.bytes", GAUGE),
        _Row("buffer_available_bytes", "buffer.available.bytes", GAUGE),
        _Row("buffer_exhausted_total", "buffer.exhausted.total"),
        _Row("request_latency_ms_total", "request.latency.avg", GAUGE, _ANSWERED),
        _Row("request_latency_ms_max", "request.latency.max", GAUGE),
        _Row("produce_throttle_ms_total", "produce.throttle.time.avg", GAUGE, _ANSWERED),
        _Row("produce_throttle_ms_max", "produce.throttle.time.max", GAUGE),
        _Row("record_queue_time_ms_total", "record.queue.time.avg", GAUGE, ("outgoing_batch_total",)),
        _Row("record_queue_time_ms_max", "record.queue.time.max", GAUGE),
        _Row("outgoing_byte_total", "batch.size.avg", GAUGE, ("outgoing_batch_total",)),
        _Row("outgoing_record_total", "records.per.request.avg", GAUGE, ("request_total",)),
        _Row("topic_record_send_total", "topic.record.send.total"),
        _Row("topic_record_error_total", "topic.record.error.total"),
        _Row("topic_record_retry_total", "topic.record.retry.total"),
        _Row("topic_byte_total", "topic.byte.total"),
    ),
)
CONSUMER: Final = Role(
    "org.apache.kafka.consumer.",
    (
        *_OF_CONNECTIONS,
        _Row("assigned_partitions", "coordinator.assigned.partitions", GAUGE),
        _Row("commit_total", "coordinator.commit.total"),
        _Row("commit_latency_ms_total", "coordinator.commit.latency.avg", GAUGE, ("commit_total",)),
        _Row("commit_latency_ms_max", "coordinator.commit.latency.max", GAUGE),
        _Row("heartbeat_total", "coordinator.heartbeat.total"),
        _Row("rebalance_total", "coordinator.rebalance.total"),
        _Row("fetch_total", "fetch.manager.fetch.total"),
        _Row("fetch_latency_ms_total", "fetch.manager.fetch.latency.avg", GAUGE, ("fetch_total",)),
        _Row("fetch_latency_ms_max", "fetch.manager.fetch.latency.max", GAUGE),
        _Row("fetch_throttle_ms_total", "fetch.manager.fetch.throttle.time.avg", GAUGE, ("fetch_total",)),
        _Row("records_consumed_total", "fetch.manager.records.consumed.total"),
        _Row("records_lag_max", "fetch.manager.records.lag.max", GAUGE),
        _Row("topic_records_consumed_total", "fetch.manager.records.consumed.total"),
        _Row("topic_bytes_consumed_total", "fetch.manager.bytes.consumed.total"),
        _Row("partition_records_lag", "fetch.manager.records.lag", GAUGE),
        _Row("partition_records_lead", "fetch.manager.records.lead", GAUGE),
    ),
)
SHARE_CONSUMER: Final = Role(
    "org.apache.kafka.consumer.",
    (
        *_OF_CONNECTIONS,
        _Row("heartbeat_total", "share.coordinator.heartbeat.total"),
        _Row("rebalance_total", "share.coordinator.rebalance.total"),
        _Row("fetch_total", "share.fetch.manager.fetch.total"),
        _Row("fetch_latency_ms_total", "share.fetch.manager.fetch.latency.avg", GAUGE, ("fetch_total",)),
        _Row("fetch_latency_ms_max", "share.fetch.manager.fetch.latency.max", GAUGE),
        _Row("fetch_throttle_ms_total", "share.fetch.manager.fetch.throttle.time.avg", GAUGE, ("fetch_total",)),
        _Row("fetch_throttle_ms_max", "share.fetch.manager.fetch.throttle.time.max", GAUGE),
        _Row("records_consumed_total", "share.fetch.manager.records.consumed.total"),
        _Row("bytes_consumed_total", "share.fetch.manager.bytes.consumed.total"),
        _Row("acknowledgements_send_total", "share.fetch.manager.acknowledgements.send.total"),
        _Row("acknowledgements_error_total", "share.fetch.manager.acknowledgements.error.total"),
    ),
)
ADMIN: Final = Role("org.apache.kafka.admin.client.", _OF_CONNECTIONS)


def chosen(
    role: Role,
    wants: Callable[[str], bool],
    now: Mapping[str, float],
    before: Mapping[str, float],
    passed_ms: int,
    *,
    is_delta: bool,
) -> Iterator[Metric]:
    """Yield the metrics to push.

    Args:
        role: The kind of client.
        wants: Returns true for the name of a metric that the brokers want.
        now: The client's metrics.
        before: Its metrics at the last push.
        passed_ms: Time since the last push, in ms.
        is_delta: Sums are pushed as their growth.
    """
    by_name: dict[str, list[str]] = {}
    for key in now:
        by_name.setdefault(parts_of(key)[0], []).append(key)
    points_by_name: dict[tuple[str, int], list[NumberPoint]] = {}
    for row in role.rows:
        name = role.prefix + row.name
        if not wants(name):
            continue
        kind = DELTA if is_delta and row.kind == TOTAL else row.kind
        for key in by_name.get(row.own, ()):
            value = _value(row, key, kind, now, before)
            if value is not None:
                points_by_name.setdefault((name, kind), []).append(NumberPoint(value, parts_of(key)[1]))
    created, rate = "connection_creation_total", f"{role.prefix}connection.creation.rate"
    if wants(rate) and passed_ms > 0 and created in now:
        per_s = _growth(created, now, before) * _MS / passed_ms
        points_by_name[rate, GAUGE] = [NumberPoint(per_s, {})]
    for (name, kind), points in points_by_name.items():
        yield Metric(name, kind, points)


def _value(row: _Row, key: str, kind: int, now: Mapping[str, float], before: Mapping[str, float]) -> float | None:
    """Return the value; None for an average without any event."""
    if row.of:
        first, *others = (_growth(_beside(key, name), now, before) for name in row.of)
        count = first - sum(others)
        return _growth(key, now, before) / count if count > 0 else None
    return _growth(key, now, before) if kind == DELTA else now[key]


def _growth(key: str, now: Mapping[str, float], before: Mapping[str, float]) -> float:
    return now.get(key, 0) - before.get(key, 0)


def _beside(key: str, name: str) -> str:
    """Return the key of another metric with the same labels."""
    return name + key[len(key.name) :] if isinstance(key, Series) else name
