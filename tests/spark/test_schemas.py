"""Columns of Confluent's wire format: what a serializer elsewhere has written is read here, and the other way round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from fencepost.errors import ConfigurationError
from fencepost.schemas import Context
from tests.support.schema_registry import schema_registry

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "stops", "type": {"type": "array", "items": "string"}},
            {
                "name": "plane",
                "type": {"type": "record", "name": "Plane", "fields": [{"name": "seats", "type": "int"}]},
            },
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
FIELDS = "id long, stops array<string>, plane struct<seats: int>, note string"
FLIGHTS = [
    {"id": number, "stops": ["EWR", f"S{number}"], "plane": {"seats": number}, "note": None if number % 2 else "late"}
    for number in range(5)
]


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry() as url:
        yield url


def test_there_and_back(spark: Any, registry: str) -> None:
    from fencepost.spark.schemas import decoded, encoded

    client, context = SchemaRegistryClient({"url": registry}), Context("flights", "value")
    serialize = AvroSerializer(client, SCHEMA)
    written = [(serialize(flight, context),) for flight in FLIGHTS]
    frame = spark.createDataFrame([*written, (None,)], "value binary")
    read = frame.select(decoded(frame.value, FIELDS, {"url": registry}, topic="flights").alias("flight"))
    found = [row.flight for row in read.collect()]
    assert [flight.asDict(recursive=True) for flight in found[:-1]] == FLIGHTS
    assert found[-1] is None
    back = read.select(encoded(read.flight, SCHEMA, {"url": registry}, topic="flights").alias("value")).collect()
    deserialize = AvroDeserializer(client)
    assert [deserialize(bytes(row.value), context) for row in back[:-1]] == FLIGHTS
    assert back[-1].value is None


def test_what_cannot_be_decoded_fails_the_query(spark: Any, registry: str) -> None:
    from fencepost.spark.schemas import decoded

    frame = spark.createDataFrame([(b"not of a registry",)], "value binary")
    with pytest.raises(Exception, match=r"SerializationError"):
        frame.select(decoded(frame.value, FIELDS, {"url": registry}, topic="flights")).collect()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"kind": "protobuf"}, "Protobuf needs classes"), ({"field": "header"}, "neither key nor value"), ({}, "url")],
)
def test_what_is_refused_before_anything_runs(wrong: dict[str, str], why: str) -> None:
    from fencepost.spark.schemas import decoded

    registry = {"url": "http://127.0.0.1:9"} if wrong else {}
    with pytest.raises(ConfigurationError, match=why):
        decoded(None, FIELDS, registry, topic="flights", **wrong)  # type: ignore[arg-type]
