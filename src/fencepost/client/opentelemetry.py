"""Traces through records, and clients' numbers, by the OpenTelemetry API (extra `opentelemetry`).

The trace context travels in record headers (W3C: `traceparent`, `tracestate`), or as the global propagator has it.
Spans and attributes have the names of the conventions for messaging. Without an SDK in the application, all of it does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
    """A trace that a record brought along, as a copied one does, makes room."""

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
    """A producer's interceptor: each record gets a span `create TOPIC`, whose context goes along in its headers.

    The span is a child of what is current where `send` is called, and ends there: what becomes of the record is told by
    its own result.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        """`tracer`: another than the global one."""
        self._given = tracer

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record with the context in its headers."""
        tracer = self._given or _tracer()
        attributes = _attributes(record.topic, "create")
        with tracer.start_as_current_span(f"create {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes):
            headers = list(record.headers or ())
            propagate.inject(headers, setter=_SETTER)
        return record._replace(headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Nothing: it does not say whose fate this is."""

    def close(self) -> None:
        """Nothing is held."""


def context_of(record: _Received) -> Context:
    """The context that its producer sent along; the present one where it sent none."""
    return propagate.extract(record.headers, getter=_GETTER)


@contextmanager
def processing(record: _Received, group_id: str | None = None, tracer: Tracer | None = None) -> Iterator[Span]:
    """A span `process TOPIC` around what is done with a record, a child of the context that the record brought along.

    An exception is recorded in it, and raised.
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
    """Lets a meter read clients' `metrics()`: `fencepost.client.NAME`, with the attribute `client` and the labels.

    One for each meter: its instruments are made once. A client is not kept alive by it; one that is gone, or closed and
    has no numbers any more, is left out.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        """`meter`: another than the global one."""
        self._meter = meter or get_meter(_SCOPE, __version__)
        self._clients: dict[str, Callable[[], HasMetrics | None]] = {}
        self._names: set[str] = set()
        self._unread: dict[str, dict[str, list[Observation]]] = {}  # by client and name, of the present collection

    def observe(self, **clients: HasMetrics) -> None:
        """Read these, too, each named by keyword; one of the same name is replaced."""
        for label, client in clients.items():
            self._clients[label] = ref(client)
            self._unread.pop(label, None)
            for name in ({parts_of(key)[0] for key in client.metrics()} | LABELLED) - self._names:
                self._names.add(name)
                is_total = name.endswith("_total")
                make = self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
                make(f"fencepost.client.{name}", [partial(self._read, name)], description=name.replace("_", " "))

    def _read(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        for label, asked in list(self._clients.items()):
            client = asked()
            if client is None:
                continue
            with suppress(KafkaError):
                yield from self._observations(label, client, name)

    def _observations(self, label: str, client: HasMetrics, name: str) -> Sequence[Observation]:
        """Return the values of a metric. A collection asks for each name once: it reads the client at its first."""
        unread = self._unread.get(label)
        if unread is None or name not in unread:
            unread = self._unread[label] = {known: [] for known in self._names}
            for key, value in client.metrics().items():
                known, labels = parts_of(key)
                unread.setdefault(known, []).append(Observation(value, {"client": label, **labels}))
        return unread.pop(name, ())
