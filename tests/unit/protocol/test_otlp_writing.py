"""Metrics that our clients push, as Google's protobuf reads them."""

from __future__ import annotations

from fencepost.protocol.telemetry.otlp_writing import DELTA, GAUGE, TOTAL, NumberPoint, encode_data, encode_metric
from tests.support.otlp_messages import parsed

LONG = "x" * 300  # its size takes two bytes


def test_gauges_and_sums_are_what_protobuf_reads() -> None:
    metrics = [
        encode_metric("g", GAUGE, [NumberPoint(2.5, {}), NumberPoint(-7, {"node_id": "1", "topic": LONG})], 1, 2),
        encode_metric("total", TOTAL, [NumberPoint(2**40, {})], 3, 4),
        encode_metric("ü", DELTA, [NumberPoint(0, {}), NumberPoint(0.0, {})], 2**62, 2**62 + 1),
    ]
    data = parsed(encode_data({"group_id": "g1", "client_rack": ""}, metrics))
    (resource,) = data.resource_metrics
    assert {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes} == {
        "group_id": "g1",
        "client_rack": "",
    }
    assert {attribute.value.WhichOneof("value") for attribute in resource.resource.attributes} == {"string_value"}
    (scope,) = resource.scope_metrics
    gauge, total, delta = scope.metrics
    assert [gauge.name, total.name, delta.name] == ["g", "total", "ü"]
    assert [each.WhichOneof("data") for each in scope.metrics] == ["gauge", "sum", "sum"]
    assert [(point.as_double, point.as_int) for point in gauge.gauge.data_points] == [(2.5, 0), (0.0, -7)]
    assert {attribute.key: attribute.value.string_value for attribute in gauge.gauge.data_points[1].attributes} == {
        "node_id": "1",
        "topic": LONG,
    }
    assert [each.sum.aggregation_temporality for each in (total, delta)] == [2, 1]
    assert [each.sum.is_monotonic for each in (total, delta)] == [True, True]
    assert [point.as_int for point in total.sum.data_points] == [2**40]
    assert [point.WhichOneof("value") for point in delta.sum.data_points] == ["as_int", "as_double"]
    times = [(point.start_time_unix_nano, point.time_unix_nano) for point in delta.sum.data_points]
    assert times == [(2**62, 2**62 + 1)] * 2
    assert (gauge.gauge.data_points[0].start_time_unix_nano, gauge.gauge.data_points[0].time_unix_nano) == (1, 2)


def test_no_metrics_are_a_resource_without_any() -> None:
    (resource,) = parsed(encode_data({}, [])).resource_metrics
    assert [list(scope.metrics) for scope in resource.scope_metrics] == [[]]
