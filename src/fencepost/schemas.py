"""Encode and decode keys and values with the serializers of a schema registry (Confluent's wire format).

An encoder is called with (object, context) and returns bytes; a decoder is called with (bytes, context) and returns an
object. The serializers of confluent-kafka for Avro, JSON Schema and Protobuf (extra `schemas`) fit. They query their
registry over HTTP at the first use of a schema and cache it. `docs/client.md` shows examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.client import coding
from fencepost.client.blocking import Producer
from fencepost.client.blocking.producer import Delivery
from fencepost.client.coding import KEY, VALUE, Codec, Context
from fencepost.client.records import Record, SharedRecord

__all__ = ["Context", "Decode", "Decoded", "Decoder", "Encode", "Encoder"]

Encode = Callable[[Any, Any], bytes | None]
Decode = Callable[[bytes, Any], Any]
"""Encoders and decoders take a Context as their second argument."""


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
        self._codec = Codec(coding.synchronous(value, VALUE), coding.synchronous(key, KEY), "encoded")

    def encode(
        self, topic: str, value: Any, key: Any = None, headers: Sequence[tuple[str, bytes | None]] | None = None
    ) -> tuple[bytes | None, bytes | None]:
        """Encode one record's value and key.

        The call may wait for the registry. With asyncio, use `await asyncio.to_thread(encoder.encode, ...)`.

        Args:
            topic: The record's topic.
            value: The value to encode.
            key: The key to encode.
            headers: The record's headers, passed to the encoders. To a list they may append, for example the ids of
                schemas; pass the same list to `send`.

        Returns:
            (value, key), in the order of the producers' parameters.

        Raises:
            SerializationError: The value or key cannot be encoded.
            RegistryUnavailableError: The registry is unavailable; a retry may succeed.
        """
        return self._codec.both(coding.Parts(topic, value, key, headers))

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
        pairs = coding.listed(headers)
        encoded = self.encode(topic, value, key, pairs)
        return producer.send(topic, *encoded, headers=pairs or None, **more)


class Decoder:
    """Decodes keys and values. A part without a decoder stays bytes; None stays None.

    Args:
        value: Decoder of values.
        key: Decoder of keys.

    Raises:
        ConfigurationError: A decoder is asynchronous.
    """

    def __init__(self, value: Decode | None = None, key: Decode | None = None) -> None:
        self._codec = Codec(coding.synchronous(value, VALUE), coding.synchronous(key, KEY), "decoded")

    def decode(self, record: Record | SharedRecord) -> Decoded:
        """Decode one record's key and value.

        Raises:
            SerializationError: A part cannot be decoded. The exception has the record's position; the consumer's
                position is already after it.
        """
        headers = list(record.headers)  # confluent-kafka's deserializers look into lists only
        value, key = self._codec.both(
            coding.Parts(record.topic, record.value, record.key, headers, record.partition, record.offset)
        )
        return Decoded(key, value, record)
