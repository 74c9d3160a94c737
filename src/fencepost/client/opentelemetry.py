"""Traces of records, and clients' metrics, through the OpenTelemetry API (extra `opentelemetry`).

The trace context is sent in record headers: W3C's `traceparent` and `tracestate`, or those of the global propagator.
Names of spans and attributes follow the semantic conventions for messaging. Without an SDK in the application, these
classes have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final
from weakref import ref

from fencepost import __version__
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.metrics import LABELLED, HasMetrics, parts_of
from fencepost.client.records import Record, SharedRecord
from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError
from fencepost.extras import extra_named
from fencepost.protocol.records.headers import Header

with extra_named("opentelemetry", __name__):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Span, SpanKind, Tracer

__all__ = ["ClientMeter", "TraceSends", "context_of", "processing"]

_SCOPE: Final = "fencepost"
_Received = Record | SharedRecord


class _HeaderSetter(Setter[list[Header]]):
    """Sets a header, and replaces one that a copied record already has."""

    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier[:] = [*(header for header in carrier if header[0] != key), (key, value.encode())]


class _HeaderGetter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [value.decode("ascii", "replace") for name, value in carrier if name == key and value is not None]
        return found[-1:] or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


_SETTER: Final = _HeaderSetter()
_GETTER: Final = _HeaderGetter()


def _tracer() -> Tracer:
    return trace.get_tracer(_SCOPE, __version__)


def _attributes(topic: str, operation: str) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


class TraceSends:
    """A producer's interceptor. It creates a span `create TOPIC` for each record, and sends its context in the headers.

    The span is a child of the current span in `send`, and ends there. The record's delivery reports its result.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        """Create the interceptor. `tracer` replaces the global tracer."""
        self._given = tracer

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record with the context in its headers."""
        tracer = self._given or _tracer()
        attributes = _attributes(record.topic, "create")
        with tracer.start_as_current_span(f"create {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes):
            headers = list(record.headers or ())
            propagate.inject(headers, setter=_SETTER)
        return record._replace(headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Do nothing, because the arguments do not identify the record's span."""

    def close(self) -> None:
        """Do nothing, because the interceptor has no resources."""


def context_of(record: _Received) -> Context:
    """Return the context that the record's producer sent, or the current one if there is none."""
    return propagate.extract(record.headers, getter=_GETTER)


@contextmanager
def processing(record: _Received, group_id: str | None = None, tracer: Tracer | None = None) -> Iterator[Span]:
    """Run the block in a span `process TOPIC`, a child of the context in the record's headers.

    The span records an exception of the block, which is raised again.

    Args:
        record: The record that the block processes.
        group_id: The consumer group, for an attribute.
        tracer: Replaces the global tracer.
    """
    attributes = {
        **_attributes(record.topic, "process"),
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    with (tracer or _tracer()).start_as_current_span(
        f"process {record.topic}", context_of(record), kind=SpanKind.CONSUMER, attributes=attributes
    ) as span:
        yield span


class ClientMeter:
    """Reports clients' `metrics()` to a meter as `fencepost.client.NAME`, with the attribute `client` and the labels.

    Create one object for each meter, because it creates the instruments. It does not keep clients alive, and leaves out
    those that were collected.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        """Create an object without clients. `meter` replaces the global meter."""
        self._meter = meter or get_meter(_SCOPE, __version__)
        self._clients: dict[str, Callable[[], HasMetrics | None]] = {}
        self._names: set[str] = set()
        # Values of the current collection that are not reported yet, by client and name.
        self._unread: dict[str, dict[str, list[Observation]]] = {}

    def observe(self, **clients: HasMetrics) -> None:
        """Add clients, each named by its keyword. A client replaces an earlier one of the same name."""
        for label, client in clients.items():
            self._clients[label] = ref(client)
            self._unread.pop(label, None)
            for name in ({parts_of(key)[0] for key in client.metrics()} | LABELLED) - self._names:
                self._names.add(name)
                is_total = name.endswith("_total")
                make = self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
                make(f"fencepost.client.{name}", [partial(self._read, name)], description=name.replace("_", " "))

    def _read(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        for label, reference in list(self._clients.items()):
            client = reference()
            if client is None:
                continue
            yield from self._observations(label, client, name)

    def _observations(self, label: str, client: HasMetrics, name: str) -> Sequence[Observation]:
        """Return the values of a metric. The first metric of a collection reads the client for all."""
        unread = self._unread.get(label)
        if unread is None or name not in unread:
            unread = self._unread[label] = {known: [] for known in self._names}
            for key, value in client.metrics().items():
                known, labels = parts_of(key)
                unread.setdefault(known, []).append(Observation(value, {"client": label, **labels}))
        return unread.pop(name, ())
