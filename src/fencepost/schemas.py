"""Records as objects: keys and values through the serializers of a schema registry (Confluent's wire format).

An encoder is called with (object, context) and gives bytes, a decoder with (bytes, context) and gives an object. Those
of confluent-kafka do that for Avro, JSON Schema and Protobuf (extra `schemas`); they ask their registry over HTTP when
they first meet a schema, and remember it. `docs/client.md` shows both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.client.blocking import Producer
from fencepost.client.blocking.producer import Delivery
from fencepost.client.outages import is_outage
from fencepost.client.records import Record, SharedRecord
from fencepost.errors import ConfigurationError, RegistryUnavailableError, SerializationError

__all__ = ["Context", "Decode", "Decoded", "Decoder", "Encode", "Encoder"]

C = TypeVar("C")

KEY, VALUE = "key", "value"
Encode = Callable[[Any, Any], bytes | None]
Decode = Callable[[bytes, Any], Any]
"""Both are given a Context behind what they encode or decode."""


class Context(NamedTuple):
    """What an encoder or decoder is told: the topic, which part of a record it is ("key" or "value"), the headers."""

    topic: str
    field: str
    headers: Sequence[tuple[str, bytes | None]] | None = None


class Decoded(NamedTuple):
    """A record whose key and value are objects."""

    key: Any
    value: Any
    record: Record | SharedRecord
    """As it came."""


class Encoder:
    """Objects to bytes. A part without an encoder is bytes already; None (no key, a tombstone) stays None."""

    def __init__(
        self,
        value: Encode | None = None,
        key: Encode | None = None,
    ) -> None:
        """Raises ConfigurationError for asynchronous encoders."""
        self._value = _synchronous(value, VALUE)
        self._key = _synchronous(key, KEY)

    def encode(
        self, topic: str, value: Any, key: Any = None, headers: Sequence[tuple[str, bytes | None]] | None = None
    ) -> tuple[bytes | None, bytes | None]:
        """(value, key), in the order in which producers take them.

        Raises SerializationError; where the registry is out of order RegistryUnavailableError, which may pass.

        May wait for the registry: in a program with asyncio, `await asyncio.to_thread(encoder.encode, ...)`.
        """
        return (
            _coded(self._value, value, Context(topic, VALUE, headers), "encoded"),
            _coded(self._key, key, Context(topic, KEY, headers), "encoded"),
        )

    def send(
        self,
        producer: Producer,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        **more: Any,
    ) -> Delivery:
        """`producer.send` of the encoded parts, with `more` arguments of it. Raises SerializationError, as `send`."""
        return producer.send(topic, *self.encode(topic, value, key, headers), headers=headers, **more)


class Decoder:
    """Bytes to objects. A part without a decoder stays bytes, None stays None."""

    def __init__(self, value: Decode | None = None, key: Decode | None = None) -> None:
        """Raises ConfigurationError for asynchronous decoders."""
        self._value = _synchronous(value, VALUE)
        self._key = _synchronous(key, KEY)

    def decode(self, record: Record | SharedRecord) -> Decoded:
        """Raises SerializationError with the record's place; the consumer is behind it already and goes on."""
        place = (record.partition, record.offset)
        value = _coded(self._value, record.value, Context(record.topic, VALUE, record.headers), "decoded", *place)
        key = _coded(self._key, record.key, Context(record.topic, KEY, record.headers), "decoded", *place)
        return Decoded(key, value, record)


def _synchronous(code: C, field: str) -> C:
    if callable(code) and (inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(type(code).__call__)):
        raise _asynchronous(code, field)
    return code


def _asynchronous(code: object, field: str) -> ConfigurationError:
    return ConfigurationError(
        f"{type(code).__name__} for the {field} gives a coroutine: serializers are called synchronously; take the one "
        "that is not for asyncio (AvroSerializer instead of AsyncAvroSerializer), in asyncio with asyncio.to_thread"
    )


def _coded(
    code: Callable[[Any, Any], Any] | None,
    part: Any,
    context: Context,
    done: str,
    partition: int = -1,
    offset: int = -1,
) -> Any:
    if code is None or part is None:
        return part
    try:
        coded = code(part, context)
    except Exception as error:
        place = f"{context.topic}-{partition} at offset {offset}" if offset >= 0 else context.topic
        kind = RegistryUnavailableError if is_outage(error) else SerializationError
        raise kind(
            f"the {context.field} of a record of {place} cannot be {done}: {type(error).__name__}: {error}",
            topic=context.topic,
            partition=partition,
            offset=offset,
        ) from error
    if inspect.isawaitable(coded):
        if inspect.iscoroutine(coded):
            coded.close()
        raise _asynchronous(code, context.field)
    return coded
