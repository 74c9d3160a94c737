"""Write metrics of OpenTelemetry's protocol (OTLP 1.0, opentelemetry/proto/metrics/v1), as clients push them (KIP-714).

Only gauges and growing sums of numbers are written. A whole number is written as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from fencepost.protocol.varint import write_unsigned_varint

__all__ = ["DELTA", "GAUGE", "TOTAL", "NumberPoint", "encode_data", "encode_metric"]

GAUGE, DELTA, TOTAL = 0, 1, 2
"""The kinds of metrics: a value, the growth of a sum since the start time, and a sum since the client's start.

The numbers of the sums are those of AggregationTemporality.
"""
# Tags: the number of the field times eight, and its wire type (1: eight bytes, 2: with a size).
_KEY, _VALUE, _STRING_VALUE = b"\x0a", b"\x12", b"\x0a"
_ATTRIBUTES, _AS_DOUBLE, _AS_INT = b"\x3a", b"\x21", b"\x31"
_NAME, _GAUGE, _SUM = b"\x0a", b"\x2a", b"\x3a"
_FIRST, _SECOND = b"\x0a", b"\x12"
_TIMES: Final = Struct("<BQBQ")  # start_time_unix_nano = 2, time_unix_nano = 3
_DOUBLE, _INT_64 = Struct("<d"), Struct("<q")
_MONOTONIC = b"\x18\x01"


class NumberPoint(NamedTuple):
    """A value of a metric, and its labels."""

    value: float
    labels: Mapping[str, str]


def encode_data(resource: Mapping[str, str], metrics: Iterable[bytes]) -> bytes:
    """Return a MetricsData with the metrics of one client.

    Args:
        resource: Attributes of the client.
        metrics: Results of `encode_metric`.
    """
    attributes = b"".join(_sized(_FIRST, _attribute(*pair)) for pair in resource.items())
    scope = b"".join(_sized(_SECOND, metric) for metric in metrics)
    return _sized(_FIRST, _sized(_FIRST, attributes) + _sized(_SECOND, scope))


def encode_metric(name: str, kind: int, points: Iterable[NumberPoint], start_ns: int, time_ns: int) -> bytes:
    """Return a Metric.

    Args:
        name: Its name.
        kind: GAUGE, DELTA or TOTAL.
        points: Its values, each with other labels.
        start_ns: Begin of the time that the values cover, in ns since 1970.
        time_ns: End of that time.
    """
    times = _TIMES.pack(0x11, start_ns, 0x19, time_ns)
    data = b"".join(_sized(_FIRST, times + _number(point.value) + _labels(point.labels)) for point in points)
    if kind == GAUGE:
        return _sized(_NAME, name.encode()) + _sized(_GAUGE, data)
    return _sized(_NAME, name.encode()) + _sized(_SUM, data + bytes((0x10, kind)) + _MONOTONIC)


def _number(value: float) -> bytes:
    return _AS_INT + _INT_64.pack(value) if isinstance(value, int) else _AS_DOUBLE + _DOUBLE.pack(value)


def _labels(labels: Mapping[str, str]) -> bytes:
    return b"".join(_sized(_ATTRIBUTES, _attribute(*pair)) for pair in labels.items())


def _attribute(key: str, value: str) -> bytes:
    return _sized(_KEY, key.encode()) + _sized(_VALUE, _sized(_STRING_VALUE, value.encode()))


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + write_unsigned_varint(len(data)) + data
