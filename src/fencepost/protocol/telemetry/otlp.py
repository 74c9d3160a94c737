"""Metrics of OpenTelemetry's protocol (OTLP 1.0, opentelemetry/proto/metrics/v1): what clients push (KIP-714).

Only gauges and sums are read: clients of Kafka push no other metrics. Other fields and metrics are skipped. The number
of fields between two points is bounded, because each two bytes of a forged message can be a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import read_unsigned_varlong

__all__ = ["MetricPoint", "read_points"]

_MOST_FIELDS: Final = 20_000
_FIELDS_OF_POINT: Final = 100
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_DOUBLE, _INT_64 = Struct("<d"), Struct("<q")
_DELTA: Final = 1

Attributes = tuple[tuple[str, str], ...]
_Field = tuple[int, int, "int | memoryview"]  # number, wire type, value


class MetricPoint(NamedTuple):
    """The value of one metric for one set of attributes.

    Attributes:
        name: The metric's name, `org.apache.kafka.producer.record.send.total` for example.
        value: The value.
        attributes: Those of the resource, then those of the point.
        is_sum: The value only grows, from the start of the client on.
        is_delta: The value is the growth since the previous push. A sum is then not total.
    """

    name: str
    value: float
    attributes: Attributes
    is_sum: bool = False
    is_delta: bool = False


def read_points(data: bytes | memoryview) -> Iterator[MetricPoint]:
    """Yield the points of an encoded MetricsData.

    Raises:
        MalformedMessage: The bytes are not such a message, or have too many fields. Points before that were yielded.
    """
    reader = _Reader()
    for number, kind, value in reader.fields(memoryview(data)):
        if number == 1:
            for point in reader.resource_metrics(_part(kind, value)):
                yield point
                reader.fields_left += _FIELDS_OF_POINT


class _Reader:
    """Reads messages of one push, up to `fields_left` fields."""

    def __init__(self) -> None:
        self.fields_left = _MOST_FIELDS

    def fields(self, data: memoryview) -> Iterator[_Field]:
        at, end = 0, len(data)
        while at < end:
            self.fields_left -= 1
            if self.fields_left < 0:
                raise MalformedMessage(f"metrics of more than {_MOST_FIELDS} fields without a value")
            tag, at = read_unsigned_varlong(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = read_unsigned_varlong(data, at)
                yield number, kind, value
                continue
            if kind == _BYTES:
                size, at = read_unsigned_varlong(data, at)
            elif kind in (_FIXED_64, _FIXED_32):
                size = 8 if kind == _FIXED_64 else 4
            else:
                raise MalformedMessage(f"metrics with a field of wire type {kind}")
            if size > end - at:
                raise MalformedMessage("metrics cut short")
            yield number, kind, data[at : at + size]
            at += size

    def resource_metrics(self, data: memoryview) -> Iterator[MetricPoint]:
        own: Attributes = ()
        scopes = []
        for number, kind, value in self.fields(data):
            if number == 1:  # the resource, which may come behind its metrics
                own += self._attributes(_part(kind, value), 1)
            elif number == 2:
                scopes.append(_part(kind, value))
        for scope in scopes:
            for number, kind, value in self.fields(scope):
                if number == 2:
                    yield from self._metric(_part(kind, value), own)

    def _metric(self, data: memoryview, own: Attributes) -> Iterator[MetricPoint]:
        name, found = "", []
        for number, kind, value in self.fields(data):
            if number == 1:
                name = _text(kind, value)
            elif number in (5, 7):
                found.append((number == 7, _part(kind, value)))
        for is_sum, part in found:
            yield from self._number_points(name, part, is_sum, own)

    def _number_points(self, name: str, data: memoryview, is_sum: bool, own: Attributes) -> Iterator[MetricPoint]:
        is_delta = is_monotonic = False
        points = []
        for number, kind, value in self.fields(data):
            if number == 1:
                points.append(_part(kind, value))
            elif is_sum and number == 2:
                is_delta = value == _DELTA
            elif is_sum and number == 3:
                is_monotonic = value == 1
        for part in points:
            yield self._point(name, part, own)._replace(is_sum=is_monotonic, is_delta=is_delta)

    def _point(self, name: str, data: memoryview, own: Attributes) -> MetricPoint:
        value = 0.0
        attributes = own
        for number, kind, part in self.fields(data):
            if number == 4:
                (value,) = _DOUBLE.unpack(_part(kind, part, _FIXED_64))
            elif number == 6:
                (whole,) = _INT_64.unpack(_part(kind, part, _FIXED_64))
                value = float(whole)
            elif number == 7:
                attributes += self._attribute(_part(kind, part))
        return MetricPoint(name, value, attributes)

    def _attributes(self, data: memoryview, wanted: int) -> Attributes:
        found: Attributes = ()
        for number, kind, value in self.fields(data):
            if number == wanted:
                found += self._attribute(_part(kind, value))
        return found

    def _attribute(self, data: memoryview) -> Attributes:
        """Return the key and the value as text. An attribute with a list or bytes as its value is skipped."""
        key, text = "", None
        for number, kind, value in self.fields(data):
            if number == 1:
                key = _text(kind, value)
            elif number == 2:
                text = self._any_value(_part(kind, value))
        return () if text is None else ((key, text),)

    def _any_value(self, data: memoryview) -> str | None:
        text = None
        for number, kind, value in self.fields(data):
            if number == 1:
                text = _text(kind, value)
            elif number == 2:
                text = "true" if value == 1 else "false"
            elif number == 3 and isinstance(value, int):
                text = str(value - (1 << 64) if value >> 63 else value)
            elif number == 4:
                text = str(_DOUBLE.unpack(_part(kind, value, _FIXED_64))[0])
        return text


def _part(kind: int, value: int | memoryview, expected: int = _BYTES) -> memoryview:
    if kind != expected or isinstance(value, int):
        raise MalformedMessage(f"metrics with a field of wire type {kind} instead of {expected}")
    return value


def _text(kind: int, value: int | memoryview) -> str:
    try:
        return str(_part(kind, value), "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMessage("metrics with a text that is not UTF-8") from error
