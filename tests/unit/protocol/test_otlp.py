"""Metrics in OpenTelemetry's protocol, as Google's protobuf encodes them, and bytes that are none."""

from __future__ import annotations

import pytest

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.telemetry.otlp import MetricPoint, read_points
from tests.support.otlp_messages import DELTA, TOTAL, Gauge, Sum, metrics_data


def test_gauges_and_sums() -> None:
    data = metrics_data(
        [
            Gauge("g", 2.5),
            Gauge("whole", -7),
            Sum("s", 3, {"node.id": "1"}),
            Sum("up and down", 4.0, monotonic=False),
            Sum("d", 5.0, temporality=DELTA),
        ],
        {"group_id": "g1"},
    )
    own = (("group_id", "g1"),)
    assert list(read_points(data)) == [
        MetricPoint("g", 2.5, own),
        MetricPoint("whole", -7.0, own),
        MetricPoint("s", 3.0, (*own, ("node.id", "1")), is_sum=True),
        MetricPoint("up and down", 4.0, own),
        MetricPoint("d", 5.0, own, is_sum=True, is_delta=True),
    ]


def test_values_of_attributes() -> None:
    data = metrics_data([Gauge("g", 0.0, {"t": "ü", "b": True, "f": False, "i": -3, "d": 0.5, "raw": b"x"})])
    (point,) = read_points(data)
    assert point.attributes == (("t", "ü"), ("b", "true"), ("f", "false"), ("i", "-3"), ("d", "0.5"))


def test_a_resource_behind_its_metrics() -> None:
    """protobuf allows fields in any order."""
    data = metrics_data([Gauge("g", 1.0)], {"a": "b"})
    assert data[2] == 0x0A  # tag and length of all are before it, those of the resource follow
    end = 4 + data[3]
    assert list(read_points(data[:2] + data[end:] + data[2:end])) == [MetricPoint("g", 1.0, (("a", "b"),))]


def test_nothing_is_no_point() -> None:
    assert list(read_points(b"")) == []


def test_every_cut_is_refused_or_a_shorter_message() -> None:
    data = metrics_data([Gauge("g", 1.0, {"a": "b"}), Sum("s", 2.0, temporality=TOTAL)], {"r": "s"})
    for end in range(1, len(data)):
        with pytest.raises(MalformedMessage):
            list(read_points(data[:end]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group begins, which proto3 does not have
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of eleven bytes
        b"\x08\x01",  # a number in the place of the resource's metrics
        b"\x0a\x05\x12\x03\x12\x01\xff",  # a metric that is cut short
        b"\x0a\x07\x12\x05\x12\x03\x0a\x01\xff",  # a name that is not UTF-8
        b"\x0a\x0d\x12\x0b\x12\x09\x2a\x07\x0a\x05\x25\x00\x00\x00\x00",  # a value of four bytes
    ],
)
def test_bytes_that_are_no_metrics(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        list(read_points(data))


def test_a_message_of_too_many_fields() -> None:
    with pytest.raises(MalformedMessage, match="more than 20000 fields"):
        list(read_points(b"\x10\x00" * 20_001))
    assert list(read_points(b"\x10\x00" * 20_000)) == []


def test_many_values_are_not_too_many_fields() -> None:
    metrics = [Gauge(f"m{number}", 1.0, {"topic": "t", "partition": str(number)}) for number in range(3_000)]
    data = metrics_data(metrics)
    assert len(list(read_points(data))) == 3_000
