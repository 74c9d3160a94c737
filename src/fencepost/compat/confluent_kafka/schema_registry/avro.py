"""confluent-kafka's serializers for Avro, with this package's SerializationError."""

from __future__ import annotations

from typing import Any

from fencepost.compat.confluent_kafka.schema_registry.own_errors import own_errors
from fencepost.compat.confluent_kafka.serialization import Deserializer, Serializer
from fencepost.extras import extra_named

with extra_named("schemas", "fencepost.compat.confluent_kafka.schema_registry"):
    from confluent_kafka.schema_registry import avro
    from confluent_kafka.schema_registry.avro import AvroDeserializerBuilder, AvroSerializerBuilder

__all__ = ["AvroDeserializer", "AvroDeserializerBuilder", "AvroSerializer", "AvroSerializerBuilder"]


class AvroSerializer(avro.AvroSerializer, Serializer):
    """Converts objects to bytes, with the id of their schema."""

    def __call__(self, obj: Any, ctx: Any = None) -> bytes | None:
        """Return the bytes. Raises SerializationError, SchemaRegistryError."""
        with own_errors():
            return super().__call__(obj, ctx)


class AvroDeserializer(avro.AvroDeserializer, Deserializer):
    """Converts bytes with the id of a schema to objects."""

    def __call__(self, value: bytes | None, ctx: Any = None) -> Any:
        """Return the object. Raises SerializationError, SchemaRegistryError."""
        with own_errors():
            return super().__call__(value, ctx)
