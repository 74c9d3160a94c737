"""Encode and decode columns in Confluent's wire format, with confluent-kafka's serializers for Avro and JSON Schema.

The serializers run in the Python workers, so the extra `schemas` must be installed there. Each worker asks the registry
for each schema once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fencepost.client.coding import KEY, VALUE
from fencepost.errors import ConfigurationError
from fencepost.schemas import Context, Decode, Encode
from fencepost.spark.options import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

__all__ = ["decoded", "encoded"]

KINDS = ("avro", "json")


def decoded(
    column: Column,
    returns: StructType | str,
    registry: Mapping[str, str],
    *,
    topic: str,
    kind: str = "avro",
    field: str = VALUE,
) -> Column:
    """Return a column with the structures that a binary column has in a schema registry's wire format.

    A null stays null. Bytes that cannot be decoded fail the query, with the reason.

    Args:
        column: The binary column.
        returns: The structure's fields, as DDL or a StructType. A field that a record lacks is null.
        registry: Settings of confluent-kafka's SchemaRegistryClient, at least `url`.
        topic: The topic of the records.
        kind: "avro" or "json".
        field: "value" or "key".

    Raises:
        ConfigurationError: An argument is wrong.
    """
    from pyspark.sql.functions import udf

    settings = _checked(registry, kind, field)

    @udf(returnType=returns, useArrow=True)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def decode(data: bytes | None) -> Any:
        return None if data is None else _decoder(kind, settings)(bytes(data), Context(topic, field))

    return decode(column)  # type: ignore[no-any-return, unused-ignore]


def encoded(
    column: Column,
    schema: str,
    registry: Mapping[str, str],
    *,
    topic: str,
    kind: str = "avro",
    field: str = VALUE,
) -> Column:
    """Return a binary column with the structures of a column, in a schema registry's wire format.

    A null stays null. The serializer registers the schema for the topic.

    Args:
        column: The column with structures.
        schema: The schema as text.
        registry: As for `decoded`.
        topic: The topic of the records.
        kind: "avro" or "json".
        field: "value" or "key".

    Raises:
        ConfigurationError: An argument is wrong.
    """
    from pyspark.sql.functions import udf

    settings = _checked(registry, kind, field)

    @udf(returnType="binary", useArrow=True)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def encode(row: Any) -> bytes | None:
        if row is None:
            return None
        fields = row if isinstance(row, dict) else row.asDict(recursive=True)  # depends on the release of PySpark
        return _encoder(kind, settings, schema)(fields, Context(topic, field))

    return encode(column)  # type: ignore[no-any-return, unused-ignore]


def _checked(registry: Mapping[str, str], kind: str, field: str) -> Settings:
    if kind not in KINDS:
        raise ConfigurationError(
            f"kind={kind!r} is not one of {', '.join(KINDS)}; Protobuf needs classes: use fencepost.schemas"
        )
    if field not in (KEY, VALUE):
        raise ConfigurationError(f"field={field!r} is neither {KEY} nor {VALUE}")
    if not registry.get("url"):
        raise ConfigurationError("registry needs the registry's url")
    return tuple(sorted(registry.items()))


@lru_cache
def _client(settings: Settings) -> Any:
    """Return the worker's client of a registry. Error texts omit the settings, which may have a password."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigurationError(
            f"schemas need confluent-kafka's: pip install 'fencepost[schemas]' ({error})"
        ) from error
    return SchemaRegistryClient(dict(settings))


@lru_cache
def _decoder(kind: str, settings: Settings) -> Decode:
    deserializer: Decode
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        deserializer = AvroDeserializer(_client(settings))
    else:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        deserializer = JSONDeserializer(None, schema_registry_client=_client(settings))
    return deserializer


@lru_cache
def _encoder(kind: str, settings: Settings, schema: str) -> Encode:
    serializer: Encode
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroSerializer

        serializer = AvroSerializer(_client(settings), schema)
    else:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        serializer = JSONSerializer(schema, _client(settings))
    return serializer
