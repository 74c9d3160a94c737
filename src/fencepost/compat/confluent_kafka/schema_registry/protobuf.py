"""confluent-kafka's serializers for Protobuf, with this package's SerializationError."""

from __future__ import annotations

from typing import Any

from fencepost.compat.confluent_kafka.schema_registry.own_errors import own_errors
from fencepost.compat.confluent_kafka.serialization import Deserializer, Serializer
from fencepost.extras import extra_named

with extra_named("schemas", "fencepost.compat.confluent_kafka.schema_registry"):
    from confluent_kafka.schema_registry import protobuf
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializerBuilder, ProtobufSerializerBuilder

__all__ = ["ProtobufDeserializer", "ProtobufDeserializerBuilder", "ProtobufSerializer", "ProtobufSerializerBuilder"]


class ProtobufSerializer(protobuf.ProtobufSerializer, Serializer):
    """Converts objects to bytes, with the id of their schema."""

    def __call__(self, obj: Any, ctx: Any = None) -> bytes | None:
        """Return the bytes. Raises SerializationError, SchemaRegistryError."""
        with own_errors():
            return super().__call__(obj, ctx)


class ProtobufDeserializer(protobuf.ProtobufDeserializer, Deserializer):
    """Converts bytes with the id of a schema to objects."""

    def __call__(self, value: bytes | None, ctx: Any = None) -> Any:
        """Return the object. Raises SerializationError, SchemaRegistryError."""
        with own_errors():
            return super().__call__(value, ctx)
