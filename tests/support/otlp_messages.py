"""MetricsData of OpenTelemetry's protocol, by Google's protobuf and the numbers of the published schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["DELTA", "TOTAL", "Gauge", "Sum", "metrics_data", "parsed"]

DELTA, TOTAL = 1, 2

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BOOL, _INT64, _DOUBLE = _FIELD.TYPE_STRING, _FIELD.TYPE_BOOL, _FIELD.TYPE_INT64, _FIELD.TYPE_DOUBLE
_FIXED64, _SFIXED64, _ENUM = _FIELD.TYPE_FIXED64, _FIELD.TYPE_SFIXED64, _FIELD.TYPE_INT32
# message -> field -> (number, type or message, repeated); opentelemetry/proto/{metrics,common,resource}/v1
_SCHEMA: Final[Mapping[str, Mapping[str, tuple[int, int | str, bool]]]] = {
    "AnyValue": {
        "string_value": (1, _STRING, False),
        "bool_value": (2, _BOOL, False),
        "int_value": (3, _INT64, False),
        "double_value": (4, _DOUBLE, False),
        "bytes_value": (7, _FIELD.TYPE_BYTES, False),
    },
    "KeyValue": {"key": (1, _STRING, False), "value": (2, "AnyValue", False)},
    "NumberDataPoint": {
        "attributes": (7, "KeyValue", True),
        "start_time_unix_nano": (2, _FIXED64, False),
        "time_unix_nano": (3, _FIXED64, False),
        "as_double": (4, _DOUBLE, False),
        "as_int": (6, _SFIXED64, False),
    },
    "Gauge": {"data_points": (1, "NumberDataPoint", True)},
    "Sum": {
        "data_points": (1, "NumberDataPoint", True),
        "aggregation_temporality": (2, _ENUM, False),
        "is_monotonic": (3, _BOOL, False),
    },
    "Histogram": {"aggregation_temporality": (2, _ENUM, False)},
    "Metric": {
        "name": (1, _STRING, False),
        "description": (2, _STRING, False),
        "unit": (3, _STRING, False),
        "gauge": (5, "Gauge", False),
        "sum": (7, "Sum", False),
        "histogram": (9, "Histogram", False),
    },
    "ScopeMetrics": {"metrics": (2, "Metric", True), "schema_url": (3, _STRING, False)},
    "Resource": {"attributes": (1, "KeyValue", True)},
    "ResourceMetrics": {"resource": (1, "Resource", False), "scope_metrics": (2, "ScopeMetrics", True)},
    "MetricsData": {"resource_metrics": (1, "ResourceMetrics", True)},
}
# Messages with one value of several types: its name, and how the names of these fields begin. It is encoded even if 0.
_ONE_OF: Final = {
    "AnyValue": ("value", ("string", "bool", "int", "double", "bytes")),
    "NumberDataPoint": ("value", ("as_",)),
    "Metric": ("data", ("gauge", "sum", "histogram")),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="otlp_of_tests.proto", package="otlp", syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        if name in _ONE_OF:
            message.oneof_decl.add(name=_ONE_OF[name][0])
        for key, (number, kind, repeated) in fields.items():
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            added = message.field.add(name=key, number=number, label=label)
            added.type = _FIELD.TYPE_MESSAGE if isinstance(kind, str) else kind  # type: ignore[assignment]
            if name in _ONE_OF and key.startswith(_ONE_OF[name][1]):
                added.oneof_index = 0
            if isinstance(kind, str):
                added.type_name = f".otlp.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"otlp.{name}")) for name in _SCHEMA}


_CLASSES: Final = _classes()


@dataclass(frozen=True)
class Gauge:
    """A gauge with one point."""

    name: str
    value: float
    attributes: Mapping[str, str | bool | int | float | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Sum(Gauge):
    """A sum with one point."""

    temporality: int = TOTAL
    monotonic: bool = True


def metrics_data(metrics: Sequence[Gauge], resource: Mapping[str, str] | None = None) -> bytes:
    """Encode the metrics of one resource. Whole numbers are encoded as such."""
    data = _CLASSES["MetricsData"]()
    of_resource = data.resource_metrics.add()
    of_resource.resource.attributes.extend(_attributes(resource or {}))
    scope = of_resource.scope_metrics.add(schema_url="unused")
    for each in metrics:
        metric = scope.metrics.add(name=each.name, description="unused", unit="1")
        into = metric.sum if isinstance(each, Sum) else metric.gauge
        if isinstance(each, Sum):
            into.aggregation_temporality, into.is_monotonic = each.temporality, each.monotonic
        point = into.data_points.add(start_time_unix_nano=1, time_unix_nano=2, attributes=_attributes(each.attributes))
        if isinstance(each.value, int):
            point.as_int = each.value
        else:
            point.as_double = each.value
    scope.metrics.add(name="unused").histogram.aggregation_temporality = TOTAL
    return bytes(data.SerializeToString())


def parsed(data: bytes) -> Any:
    """Read a MetricsData."""
    message = _CLASSES["MetricsData"]()
    message.ParseFromString(data)
    return message


def _attributes(attributes: Mapping[str, str | bool | int | float | bytes]) -> list[Any]:
    found = []
    for key, value in attributes.items():
        attribute = _CLASSES["KeyValue"](key=key)
        kind = {str: "string", bool: "bool", int: "int", float: "double", bytes: "bytes"}[type(value)]
        setattr(attribute.value, f"{kind}_value", value)
        found.append(attribute)
    return found
