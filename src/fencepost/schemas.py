"""Encode and decode keys and values with the serializers of a schema registry (Confluent's wire format).

An encoder is called with (object, context) and returns bytes; a decoder is called with (bytes, context) and returns an
object. The serializers of confluent-kafka for Avro, JSON Schema and Protobuf (extra `schemas`) fit. They query their
registry over HTTP at the first use of a schema and cache it. `docs/client.md` shows examples.
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
"""Encoders and decoders take a Context as their second argument."""


class Context(NamedTuple):
    """Topic, part ("key" or "value") and headers of the record to encode or decode."""

    topic: str
    field: str
    headers: Sequence[tuple[str, bytes | None]] | None = None


class Decoded(NamedTuple):
    """A record with decoded key and value."""

    key: Any
    value: Any
    record: Record | SharedRecord
    """The record as it was received."""


class Encoder:
    """Encodes keys and values. A part without an encoder must be bytes; None (no key, a tombstone) stays None.

    Args:
        value: Encoder of values.
        key: Encoder of keys.

    Raises:
        ConfigurationError: An encoder is asynchronous.
    """

    def __init__(
        self,
        value: Encode | None = None,
        key: Encode | None = None,
    ) -> None:
        self._value = _synchronous(value, VALUE)
        self._key = _synchronous(key, KEY)

    def encode(
        self, topic: str, value: Any, key: Any = None, headers: Sequence[tuple[str, bytes | None]] | None = None
    ) -> tuple[bytes | None, bytes | None]:
        """Encode one record's value and key.

        The call may wait for the registry. With asyncio, use `await asyncio.to_thread(encoder.encode, ...)`.

        Args:
            topic: The record's topic.
            value: The value to encode.
            key: The key to encode.
            headers: The record's headers, passed to the encoders.

        Returns:
            (value, key), in the order of the producers' parameters.

        Raises:
            SerializationError: The value or key cannot be encoded.
            RegistryUnavailableError: The registry is unavailable; a retry may succeed.
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
        """Encode a record and pass it to `producer.send`, with `more` as further arguments.

        Raises:
            SerializationError: The value or key cannot be encoded.
            KafkaError: As `producer.send` raises.
        """
        return producer.send(topic, *self.encode(topic, value, key, headers), headers=headers, **more)


class Decoder:
    """Decodes keys and values. A part without a decoder stays bytes; None stays None.

    Args:
        value: Decoder of values.
        key: Decoder of keys.

    Raises:
        ConfigurationError: A decoder is asynchronous.
    """

    def __init__(self, value: Decode | None = None, key: Decode | None = None) -> None:
        self._value = _synchronous(value, VALUE)
        self._key = _synchronous(key, KEY)

    def decode(self, record: Record | SharedRecord) -> Decoded:
        """Decode one record's key and value.

        Raises:
            SerializationError: A part cannot be decoded. The exception has the record's position; the consumer's
                position is already after it.
        """
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
