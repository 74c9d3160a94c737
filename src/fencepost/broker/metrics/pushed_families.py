"""Metrics that clients pushed, as families for Prometheus.

`org.apache.kafka.producer.record.send.total` becomes `fencepost_client_producer_record_send_total`. Names begin with
another prefix than the broker's own metrics, so that no client can report for the broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.broker.metrics.pushed import PushingClient
from fencepost.protocol.telemetry.otlp import MetricPoint

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["pushed_families"]

_PREFIX: Final = "fencepost_client_"
_STANDARD: Final = "org.apache.kafka."
_TOTAL: Final = "_total"  # Prometheus adds it to the names of counters
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")
_OF_CLIENT: Final = ("client_id", "client_instance_id")


def pushed_families(clients: Sequence[PushingClient]) -> Iterator[Metric]:
    """Yield a family per metric, and one that describes the clients."""
    from prometheus_client.core import Metric

    described = Metric("fencepost_broker_pushing_client", "Clients that push metrics, by their attributes; 1.", "gauge")
    by_name: dict[str, list[tuple[MetricPoint, PushingClient]]] = {}
    for each in clients:
        described.add_sample(described.name, dict(each.client), 1)
        for point in each.points:
            by_name.setdefault(_name(point.name), []).append((point, each))
    if clients:
        yield described
    for name, found in by_name.items():
        is_counter = all(point.is_sum for point, _ in found)
        kind = "counter" if is_counter else "unknown" if any(point.is_sum for point, _ in found) else "gauge"
        family = Metric(name, "Pushed by clients (KIP-714).", kind)
        series = {tuple(sorted(_labels(point, client).items())): point.value for point, client in found}
        for labels, value in series.items():
            family.add_sample(name + _TOTAL if is_counter else name, dict(labels), value)
        yield family


def _name(name: str) -> str:
    """Return the family's name. Without `_total`, as it is the same metric with and without."""
    name = _OTHER.sub("_", name.removeprefix(_STANDARD))
    while name.endswith(_TOTAL):
        name = name.removesuffix(_TOTAL)
    return _PREFIX + name


def _labels(point: MetricPoint, client: PushingClient) -> dict[str, str]:
    """Return the labels of a series. The broker's own names of the client win."""
    pushed = {_label(key): value for key, value in point.attributes}
    return {**pushed, **{name: client.client[name] for name in _OF_CLIENT}}


def _label(key: str) -> str:
    """Return a valid name of a label. Prometheus reserves names that begin with two underscores."""
    label = _OTHER.sub("_", key).lstrip("_") or "attribute"
    return f"_{label}" if label[0].isdigit() else label
