"""The metrics that clients pushed last, in bounded memory, for the metrics endpoint.

A client's series are replaced with each of its pushes. They are shown until it has not pushed for three intervals, and
for a minute at least, so that the values of its last push can still be scraped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from fencepost.protocol.telemetry.otlp import MetricPoint, read_points

__all__ = ["PushedMetrics", "PushedSeries", "PushingClient"]

_MOST_OF_CLIENT: Final = 2_000
_MOST_ATTRIBUTES, _MOST_NAME, _MOST_VALUE = 10, 150, 150
_STEP: Final = 200
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


class PushedSeries:
    """The series of one push, read from an encoded MetricsData in steps, each of some milliseconds.

    Attributes:
        points: The series by name and attributes.
        whole: False if there were values that are not shown: too many, or no totals.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = read_points(data)
        self._read = 0
        self.points: dict[tuple[str, object], MetricPoint] = {}
        self.whole = True

    def step(self) -> bool:
        """Read the next values. Return true if there are more.

        Raises:
            MalformedMessage: The data is no encoded MetricsData.
        """
        points = list(islice(self._rest, _STEP))
        self._read += len(points)
        for point in points:
            if point.is_delta:
                self.whole = False
            else:
                shown = _bounded(point)
                self.points[shown.name, shown.attributes] = shown
        if self._read < _MOST_OF_CLIENT:
            return len(points) == _STEP
        if next(self._rest, None) is not None:
            self.whole = False
        return False

    def cut(self, room: int) -> None:
        """Keep the first `room` series."""
        if len(self.points) > room:
            self.points = dict(islice(self.points.items(), room))
            self.whole = False


class PushedMetrics:
    """Last pushes by client instance, the oldest first."""

    def __init__(self) -> None:
        self._clients: dict[UUID, PushingClient] = {}
        self._series = 0

    def replace(
        self,
        now_ms: int,
        instance_id: UUID,
        client: Mapping[str, str],
        series: PushedSeries,
        interval_ms: int,
        most_series: int,
    ) -> None:
        """Replace the client's series. `most_series`: limit for all clients together, to which these are cut."""
        self._expire(now_ms)
        if instance_id in self._clients:
            self._remove(instance_id)
        series.cut(max(0, most_series - self._series))
        if series.points:
            until_ms = now_ms + max(_INTERVALS * interval_ms, _SHORTEST_MS)
            self._clients[instance_id] = PushingClient(client, tuple(series.points.values()), until_ms)
            self._series += len(series.points)

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
