"""Columns of Confluent's wire format in data frames: Avro and JSON Schema, by confluent-kafka's serializers.

They run in the Python workers, which ask the registry for each schema once (extra `schemas`, installed there too).
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
    """The structure in bytes that a serializer of a registry has made; null stays null.

    `returns`: its fields, as DDL or a StructType; those that a record lacks are null. `registry`: settings of
    confluent-kafka's SchemaRegistryClient, `url` at least. `field`: "value" or "key". What cannot be decoded fails the
    query, with the reason. Raises ConfigurationError.
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
    """A structure in the wire format, with that schema, registered for the topic; null stays null.

    Other arguments as for `decoded`. Raises ConfigurationError.
    """
    from pyspark.sql.functions import udf

    settings = _checked(registry, kind, field)

    @udf(returnType="binary", useArrow=True)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def encode(row: Any) -> bytes | None:
        if row is None:
            return None
        fields = row if isinstance(row, dict) else row.asDict(recursive=True)  # which it is differs between releases
        return _encoder(kind, settings, schema)(fields, Context(topic, field))

    return encode(column)  # type: ignore[no-any-return, unused-ignore]


def _checked(registry: Mapping[str, str], kind: str, field: str) -> Settings:
    if kind not in KINDS:
        raise ConfigurationError(
            f"kind={kind!r} is not of {', '.join(KINDS)}; Protobuf needs classes: use fencepost.schemas"
        )
    if field not in (KEY, VALUE):
        raise ConfigurationError(f"field={field!r} is neither {KEY} nor {VALUE}")
    if not registry.get("url"):
        raise ConfigurationError("registry needs the registry's url")
    return tuple(sorted(registry.items()))


@lru_cache
def _client(settings: Settings) -> Any:
    """One for a worker. Its settings may hold a password: they are in no message."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigurationError(
            f"schemas need confluent-kafka's: pip install 'fencepost[schemas]' ({error})"
        ) from error
    return SchemaRegistryClient(dict(settings))


@lru_cache
def _decoder(kind: str, settings: Settings) -> Decode:
    made: Decode
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        made = AvroDeserializer(_client(settings))
    else:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        made = JSONDeserializer(None, schema_registry_client=_client(settings))
    return made


@lru_cache
def _encoder(kind: str, settings: Settings, schema: str) -> Encode:
    made: Encode
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroSerializer

        made = AvroSerializer(_client(settings), schema)
    else:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        made = JSONSerializer(schema, _client(settings))
    return made
