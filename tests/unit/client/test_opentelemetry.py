"""Traces go along with records from producer to consumer, and a meter reads what clients count."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Tracer

import fencepost
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.opentelemetry import ClientMeter, TraceSends, context_of, processing
from fencepost.client.records import Record
from fencepost.client.types import TimestampType


class Spans:
    """A tracer whose spans can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("test")

    def by_name(self) -> dict[str, ReadableSpan]:
        """Those that ended."""
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def received(headers: list[tuple[str, bytes | None]]) -> Record:
    return Record("orders", 0, 7, 0, None, b"book", headers, TimestampType.CREATE_TIME)


def test_a_trace_goes_along_with_a_record(broker: fencepost.Broker) -> None:
    spans = Spans()
    tracing = TraceSends(spans.tracer)
    with (
        fencepost.Producer(broker.bootstrap_servers, interceptors=[tracing]) as producer,
        spans.tracer.start_as_current_span("checkout"),
    ):
        producer.send("orders", b"book", headers=[("shop", b"7")]).result(10)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 0)])
        [record] = consumer.poll(20_000)
    assert [name for name, _ in record.headers] == ["shop", "traceparent"]
    with pytest.raises(ZeroDivisionError), processing(record, "billing", spans.tracer):
        raise ZeroDivisionError
    found = spans.by_name()
    outer, create, process = (found[name] for name in ("checkout", "create orders", "process orders"))
    assert outer.context is not None
    assert create.context is not None
    assert process.parent is not None
    assert create.parent == outer.context
    assert (process.parent.trace_id, process.parent.span_id) == (create.context.trace_id, create.context.span_id)
    assert (create.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [event.name for event in process.events] == ["exception"]
    assert process.attributes == {
        "messaging.system": "kafka",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
    }


def test_a_record_that_is_passed_on_gets_a_span_of_its_own() -> None:
    """With the headers of the record that it was made of, it would look like that one's twin."""
    spans = Spans()
    tracing = TraceSends(spans.tracer)
    first = tracing.on_send(OutgoingRecord("orders", b"book"))
    record = received(list(first.headers or ()))
    with processing(record, tracer=spans.tracer):
        second = tracing.on_send(OutgoingRecord("copies", b"book", headers=record.headers))
    assert [name for name, _ in second.headers or ()] == ["traceparent"]
    assert second.headers != first.headers
    found = spans.by_name()
    assert found["create copies"].parent == found["process orders"].context


@pytest.mark.parametrize(
    "headers", [[], [("traceparent", None)], [("traceparent", b"\xff\x00")], [("traceparent", b"00-0-0-00")]]
)
def test_a_record_without_a_usable_trace_begins_one(headers: list[tuple[str, bytes | None]]) -> None:
    spans = Spans()
    assert not trace.get_current_span(context_of(received(headers))).get_span_context().is_valid
    with processing(received(headers), tracer=spans.tracer):
        pass
    assert spans.by_name()["process orders"].parent is None


def test_without_an_sdk_a_record_goes_out_as_it_is() -> None:
    record = OutgoingRecord("orders", b"book", headers=[("shop", b"7")])
    assert TraceSends().on_send(record) == record


def test_a_meter_reads_what_clients_count(broker: fencepost.Broker) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")

    def numbers() -> dict[tuple[str, object], float]:
        data = reader.get_metrics_data()
        return {
            (metric.name, dict(point.attributes or {})["client"]): point.value  # type: ignore[union-attr]
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    first, second = (fencepost.Producer(broker.bootstrap_servers) for _ in range(2))
    clients = ClientMeter(meter)
    clients.observe(first=first)
    clients.observe(second=second)
    for _ in range(3):
        first.send("measured", b"v").result(10)
    found = numbers()
    assert found["fencepost.client.record_send_total", "first"] == 3
    assert found["fencepost.client.record_send_total", "second"] == 0
    assert found["fencepost.client.batch_size_avg", "first"] > 0
    first.close()
    second.close()
    del first
    gc.collect()
    assert {label for _, label in numbers()} == {"second"}
