"""The metrics that clients pushed last, in bounded memory, for the metrics endpoint.

A client's series are replaced with each of its pushes. They are shown until it has not pushed for three intervals, and
for a minute at least, so that the values of its last push can still be scraped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from fencepost.protocol.telemetry.otlp import MetricPoint, read_points

__all__ = ["PushedMetrics", "PushingClient"]

_MOST_OF_CLIENT: Final = 2_000
_MOST_ATTRIBUTES, _MOST_NAME, _MOST_VALUE = 10, 150, 150
_INTERVALS, _SHORTEST_MS = 3, 60_000


@dataclass(frozen=True, slots=True)
class PushingClient:
    """A client's last push. It is never changed, so that other threads may read it.

    Attributes:
        client: The client's attributes, by the names of `match`.
        points: The metrics, each with different attributes or another name.
        until_ms: End of the time in which they are shown.
    """

    client: Mapping[str, str]
    points: tuple[MetricPoint, ...]
    until_ms: int


class PushedMetrics:
    """Last pushes by client instance, the oldest first."""

    def __init__(self) -> None:
        self._clients: dict[UUID, PushingClient] = {}
        self._series = 0

    def take(
        self,
        now_ms: int,
        instance_id: UUID,
        client: Mapping[str, str],
        data: bytes | memoryview,
        interval_ms: int,
        most_series: int,
    ) -> bool:
        """Replace the client's series by those in `data`. `most_series`: limit for all clients together.

        Return true if all values are shown; those beyond a limit and those that are no totals are not.

        Raises:
            MalformedMessage: `data` is no encoded MetricsData. The former series remain.
        """
        self._expire(now_ms)
        former = self._clients.get(instance_id)
        room = most_series - self._series + (0 if former is None else len(former.points))
        series: dict[tuple[str, object], MetricPoint] = {}
        whole = True
        for number, point in enumerate(read_points(data)):
            if number >= _MOST_OF_CLIENT:
                whole = False
                break
            shown = _bounded(point)
            key = (shown.name, shown.attributes)
            if point.is_delta or (key not in series and len(series) >= room):
                whole = False
            else:
                series[key] = shown
        if former is not None:
            self._remove(instance_id)
        if series:
            until_ms = now_ms + max(_INTERVALS * interval_ms, _SHORTEST_MS)
            self._clients[instance_id] = PushingClient(client, tuple(series.values()), until_ms)
            self._series += len(series)
        return whole

    def clients(self, now_ms: int) -> tuple[PushingClient, ...]:
        """Return the clients whose metrics are shown now."""
        self._expire(now_ms)
        return tuple(self._clients.values())

    def _expire(self, now_ms: int) -> None:
        for instance_id in [key for key, each in self._clients.items() if each.until_ms <= now_ms]:
            self._remove(instance_id)

    def _remove(self, instance_id: UUID) -> None:
        self._series -= len(self._clients.pop(instance_id).points)


def _bounded(point: MetricPoint) -> MetricPoint:
    """Cut names and values to a length that can be stored for every series."""
    return point._replace(name=point.name[:_MOST_NAME], attributes=tuple(_attributes(point)))


def _attributes(point: MetricPoint) -> Iterator[tuple[str, str]]:
    return ((key[:_MOST_NAME], value[:_MOST_VALUE]) for key, value in point.attributes[:_MOST_ATTRIBUTES])
