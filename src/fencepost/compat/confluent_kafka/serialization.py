"""Serializers of text, integers and floats, and the bases of other serializers, with the interface of confluent-kafka.

`schema_registry` has those that need a schema registry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any

from fencepost.compat.confluent_kafka.base.errors import KafkaException

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]

_INTEGER = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")


class MessageField(str, Enum):  # noqa: UP042 - its class has these bases in confluent-kafka, too
    """A part of a record. It compares equal to its name in lower case."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return self.value


class SerializationContext:
    """The second argument of serializers: the topic, the part of the record, and its headers or None.

    A serializer may append to the headers if they are a list.
    """

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class SerializationError(KafkaException):
    """A key or value cannot be serialized or deserialized."""


class _Serde:
    """The common part of serializers and deserializers. Subclasses may have a state."""

    __slots__ = ()

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Receive a function that returns the id of the cluster. A client calls this once, without having connected."""

    def close(self) -> None:
        """Release all resources. A client calls this for serializers that it built with a builder."""


class Serializer(_Serde):
    """Base of classes whose objects convert values to bytes."""

    __slots__ = ()

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes of an object, or None for None. Raises SerializationError."""
        raise NotImplementedError


class Deserializer(_Serde):
    """Base of classes whose objects convert bytes to values."""

    __slots__ = ()

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Return the object of bytes, or None for None. Raises SerializationError."""
        raise NotImplementedError


class SerializerBuilder:
    """Base of classes that make a serializer for a client, in its settings key.serializer.builder and value.."""

    __slots__ = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return a serializer, and the client's settings without those that the builder took."""
        raise NotImplementedError


class DeserializerBuilder:
    """Base of classes that make a deserializer for a client, in its settings key.deserializer.builder and value.."""

    __slots__ = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return a deserializer, and the client's settings without those that the builder took."""
        raise NotImplementedError


def _packed(form: struct.Struct, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return form.pack(value)
    except struct.error as error:
        raise SerializationError(str(error)) from error


def _unpacked(form: struct.Struct, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return form.unpack(data)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from error


class DoubleSerializer(Serializer):
    """Converts a float to 8 bytes, big-endian."""

    __slots__ = ()

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes. Raises SerializationError."""
        return _packed(_DOUBLE, obj)


class DoubleDeserializer(Deserializer):
    """Converts 8 bytes, big-endian, to a float."""

    __slots__ = ()

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """Return the float. Raises SerializationError."""
        found: float | None = _unpacked(_DOUBLE, value)
        return found


class IntegerSerializer(Serializer):
    """Converts an int to 4 bytes, signed and big-endian."""

    __slots__ = ()

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes. Raises SerializationError."""
        return _packed(_INTEGER, obj)


class IntegerDeserializer(Deserializer):
    """Converts 4 bytes, signed and big-endian, to an int."""

    __slots__ = ()

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """Return the int. Raises SerializationError."""
        found: int | None = _unpacked(_INTEGER, value)
        return found


class StringSerializer(Serializer):
    """Converts text to bytes with an encoding of Python."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """Return the bytes. Raises SerializationError."""
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Converts bytes to text with an encoding of Python."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """Return the text. Raises SerializationError."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
