"""Every message's fields in every version against the schemas in Kafka's own jar: kio's, and those newer than kio's."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
import zipfile
from typing import Any

import pytest
from kio.static.constants import EntityType

from fencepost.broker.api.apis import SERVED
from tests.support.apache_kafka import REFERENCE, VERSION, jars_folder
from tests.support.kio_messages import kio_class, taken_apart
from tools.newer_schemas import highest, newer

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(VERSION != REFERENCE, reason="KAFKA_RELEASE chooses another release than the schemas are of"),
]

# kio's types that say more than the wire.
WIDTHS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}

Shape = list[tuple[Any, ...]]


def schemas() -> dict[tuple[int, str], dict[str, Any]]:
    """(API key, "request" or "response") -> Kafka's schema of it."""
    found = {}
    (jar,) = jars_folder().glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as files:
        for name in files.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", files.read(name).decode())
                schema = json.loads(text)
                if schema["type"] in ("request", "response"):
                    found[schema["apiKey"], schema["type"]] = schema
    return found


def covers(versions: str, version: int) -> bool:
    """Return true if `versions`, such as "3+", "0-5", "2" or "none", contains the version."""
    low, dash, high = versions.removesuffix("+").partition("-")
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(low)
    return int(low) <= version <= int(high if dash else low)


def of_kafka(fields: list[dict[str, Any]], structs: dict[str, Any], version: int) -> Shape:
    """Type, whether it is in an array or nullable, its tag, and what it contains, of each field in that version."""
    shape: Shape = []
    for field in fields:
        if not covers(field["versions"], version):
            continue
        kind = field["type"].removeprefix("[]")
        inner = field.get("fields") or structs.get(kind)
        tag = field.get("tag") if covers(field.get("taggedVersions", "none"), version) else None
        shape.append(
            (
                "entity" if inner else kind,
                field["type"].startswith("[]"),
                covers(field.get("nullableVersions", "none"), version),
                tag,
                of_kafka(inner, structs, version) if inner else None,
            )
        )
    return shape


def of_class(cls: Any) -> Shape:
    hints = typing.get_type_hints(cls)
    shape: Shape = []
    for field in dataclasses.fields(cls):
        element, is_array, nullable = taken_apart(hints[field.name])
        kind = field.metadata.get("kafka_type", "")
        inner = of_class(element) if dataclasses.is_dataclass(element) else None
        # To kio an id of zeros is none, and so is a time of -1.
        nullable = nullable and (is_array or kind not in ("uuid", "datetime_i64"))
        name = "entity" if inner is not None else WIDTHS.get(kind, kind)
        shape.append((name, is_array, nullable, field.metadata.get("tag"), inner))
    return shape


def test_every_field_is_kafkas() -> None:
    schema_of, checked = schemas(), 0
    for key in SERVED:
        for side, kind in (("Request", "request"), ("Response", "response")):
            schema = schema_of[key, kind]
            structs = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
            low, _, high = schema["validVersions"].partition("-")
            assert highest(key) >= int(high or low), schema["name"]
            for version in range(int(low), int(high or low) + 1):
                expected = of_kafka(schema["fields"], structs, version)
                cls = kio_class(key, version, side)
                assert of_class(cls) == expected, (schema["name"], version)
                assert cls.__flexible__ == covers(schema["flexibleVersions"], version)
                checked += 1
    assert checked > 400


def test_the_newer_ones_have_kafkas_names() -> None:
    schema_of, checked = schemas(), 0
    for key in SERVED:
        for kind in (EntityType.request, EntityType.response):
            found = newer(key, kind)
            if found is None:
                continue
            version, cls = found
            fields = [each for each in schema_of[key, kind.name]["fields"] if covers(each["versions"], version)]
            names = [re.sub(r"(?<!^)(?=[A-Z])", "_", each["name"]).lower().removesuffix("_ms") for each in fields]
            ours = [field.name for field in dataclasses.fields(cls)]
            renamed = {"generation_id_or_member_epoch": "generation_id"}
            assert ours == [renamed.get(name, name) for name in names]
            checked += 1
    assert checked == 10
