"""Kafka's message schemas, of kio and newer: the union of a message's versions, and what each has on the wire."""

from __future__ import annotations

import dataclasses
import datetime
import keyword
import struct
import types
import typing
import uuid
from collections.abc import Iterable
from typing import Any

from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from tools.newer_schemas import newer

# Tagged fields of our own, behind those of Kafka: (name, wire type, tag, default). Kafka and its clients skip them, and
# nobody is sent them who has not asked with one.
OWN_FIELDS: dict[tuple[str, str], tuple[tuple[str, str, int, str], ...]] = {
    ("describe_transactions", "DescribeTransactionsRequest"): (
        ("include_ending", "bool", 10_000, "False"),
        ("prepared_producer_id", "int64", 10_001, "-1"),
        ("prepared_producer_epoch", "int16", 10_002, "-1"),
    ),
    # What the numbers of `ending` mean: protocol/endings.py.
    ("describe_transactions", "TransactionState"): (
        ("ending", "int8", 10_000, "0"),
        ("written_producer_id", "int64", 10_001, "-1"),
        ("written_producer_epoch", "int16", 10_002, "-1"),
    ),
}

# The wire types of fixed size, as the struct module calls them.
FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "error_code": "h",
    "uint16": "H", "timedelta_i32": "i", "timedelta_i64": "q", "datetime_i64": "q",
}  # fmt: skip


@dataclasses.dataclass
class UnionField:
    """One field as the union class declares it."""

    name: str
    annotation: str
    default: str
    doc: str
    versions: list[int]


@dataclasses.dataclass
class UnionClass:
    """One class of the union: its fields in the order of the newest version that has them."""

    name: str
    fields: dict[str, UnionField]


def strip_optional(hint: Any) -> tuple[Any, bool]:
    """Return the type without None, and whether None was allowed."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"unexpected union {hint}")
        return inner[0], True
    return hint, False


def is_entity(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


def plain_type(hint: Any, kafka_type: str) -> str:
    """The plain Python type that the union class uses for a wire type."""
    by_kafka_type = {
        "string": "str", "bytes": "bytes", "records": "bytes", "uuid": "UUID", "bool": "bool", "float64": "float",
    }  # fmt: skip
    return by_kafka_type.get(kafka_type, "int")


def field_name(name: str, kafka_type: str) -> str:
    """Durations and timestamps carry their unit in the name."""
    return f"{name}_ms" if kafka_type.startswith(("timedelta", "datetime")) and not name.endswith("_ms") else name


def literal(value: Any, kafka_type: str) -> str:
    """kio's default value as the source text of ours."""
    match value:
        case None:
            return "-1" if kafka_type.startswith("datetime") else "None"
        case bool() | bytes():
            return repr(value)
        case int():  # also an error code and a subclass of kio's
            return str(int(value))
        case str():
            return '"' + str(value) + '"'
        case datetime.timedelta():
            return str(value // datetime.timedelta(milliseconds=1))
        case uuid.UUID():
            return "None"
        case _ if dataclasses.is_dataclass(value):
            return "None"
        case _:
            raise TypeError(f"unexpected default {value!r}")


def default_of(field: Any, annotation: str, kafka_type: str) -> str:
    """The default as source text: kio's own, or the zero of the type."""
    if annotation.startswith("Sequence"):
        return "()" if field.default is dataclasses.MISSING or field.default is not None else "None"
    if field.default is not dataclasses.MISSING:
        return literal(field.default, kafka_type)
    if annotation.endswith("| None"):
        return "None"
    return {"str": '""', "bytes": 'b""', "bool": "False", "int": "0", "float": "0.0"}[annotation]


def union_field(field: Any, hint: Any, version: int, names: dict[str, str]) -> UnionField:
    inner, optional = strip_optional(hint)
    kafka_type = field.metadata.get("kafka_type", "")
    if typing.get_origin(inner) is tuple:
        element, _ = strip_optional(typing.get_args(inner)[0])
        item = names[element.__name__] if is_entity(element) else plain_type(element, kafka_type)
        if kafka_type == "uuid":
            item = "UUID | None"
        annotation = f"Sequence[{item}]" + (" | None" if optional else "")
        name = field.name
    elif is_entity(inner):
        annotation, name = f"{names[inner.__name__]} | None", field.name
    else:
        base = plain_type(inner, kafka_type)
        null = (optional or kafka_type == "uuid") and not kafka_type.startswith("datetime")
        annotation, name = base + (" | None" if null else ""), field_name(field.name, kafka_type)
    default = default_of(field, annotation, kafka_type)
    if keyword.iskeyword(name):
        raise ValueError(f"field name {name}")
    return UnionField(name, annotation, default, "", [version])


def own_fields(cls: Any) -> tuple[tuple[str, str, int, str], ...]:
    """Our fields of kio's class, whose module is kio.schema.<message>.<version>.<side>."""
    return OWN_FIELDS.get((cls.__module__.split(".")[2], cls.__name__), ())


def nested_entities(cls: Any) -> Iterable[Any]:
    """The entity classes below cls, innermost first."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        inner, _ = strip_optional(hints[field.name])
        if typing.get_origin(inner) is tuple:
            inner, _ = strip_optional(typing.get_args(inner)[0])
        if is_entity(inner):
            yield from nested_entities(inner)
            yield inner


def union_classes(roots: list[tuple[int, Any]], names: dict[str, str]) -> dict[str, UnionClass]:
    """Merge the classes of all versions, newest version first, into union classes in definition order."""
    result: dict[str, UnionClass] = {}
    for version, root in sorted(roots, key=lambda pair: -pair[0]):
        for cls in [*nested_entities(root), root]:
            union = result.setdefault(names[cls.__name__], UnionClass(names[cls.__name__], {}))
            hints = typing.get_type_hints(cls)
            for field in dataclasses.fields(cls):
                candidate = union_field(field, hints[field.name], version, names)
                known = union.fields.setdefault(candidate.name, candidate)
                if known is candidate:
                    continue
                if version not in known.versions:
                    known.versions.append(version)
                if candidate.annotation == f"{known.annotation} | None":
                    known.annotation = candidate.annotation
                elif known.annotation not in (candidate.annotation, f"{candidate.annotation} | None"):
                    raise TypeError(f"{union.name}.{candidate.name}: {known.annotation} and {candidate.annotation}")
            for name, kafka_type, _tag, default in own_fields(cls):
                own = UnionField(name, plain_type(int, kafka_type), default, "", [])
                union.fields.setdefault(name, own).versions.append(version)
    return result


@dataclasses.dataclass(frozen=True)
class WireField:
    """One field of one version, in the order of the wire."""

    name: str
    kind: str  # a key of FIXED, or "string", "bytes", "uuid", "entity"
    nullable: bool
    is_array: bool
    tag: int | None
    nested: WireClass | None

    @property
    def fixed(self) -> str | None:
        """The struct code of a field of fixed size, None for others."""
        return None if self.is_array or self.tag is not None else FIXED.get(self.kind)


@dataclasses.dataclass(frozen=True)
class WireClass:
    """The wire layout of a class in some versions. Equal layouts are equal objects."""

    name: str
    flexible: bool
    fields: tuple[WireField, ...]

    @property
    def plain(self) -> list[WireField]:
        return [field for field in self.fields if field.tag is None]

    @property
    def tagged(self) -> list[WireField]:
        return sorted((field for field in self.fields if field.tag is not None), key=lambda field: field.tag or 0)


_SAME_ON_THE_WIRE = {"records": "bytes"}


def wire_class(cls: Any, names: dict[str, str]) -> WireClass:
    hints = typing.get_type_hints(cls)
    fields = []
    for field in dataclasses.fields(cls):
        inner, nullable = strip_optional(hints[field.name])
        is_array = typing.get_origin(inner) is tuple
        element = strip_optional(typing.get_args(inner)[0])[0] if is_array else inner
        nested = wire_class(element, names) if is_entity(element) else None
        kafka_type = field.metadata.get("kafka_type", "")
        fields.append(
            WireField(
                field.name if is_array else field_name(field.name, kafka_type),
                "entity" if nested else _SAME_ON_THE_WIRE.get(kafka_type, kafka_type),
                nullable,
                is_array,
                field.metadata.get("tag"),
                nested,
            )
        )
    name = names[cls.__name__]
    if cls.__flexible__:
        fields += [WireField(own, kind, False, False, tag, None) for own, kind, tag, _default in own_fields(cls)]
    return WireClass(name, cls.__flexible__, tuple(fields))


def least_bytes(layout: WireClass) -> int:
    """The size of the smallest value of that layout."""
    return sum(least_of_field(field, layout.flexible) for field in layout.plain) + layout.flexible


def least_of_field(field: WireField, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.nested is not None and field.nullable:
        return 1
    return least_of_value(field, flexible)


def least_of_value(field: WireField, flexible: bool) -> int:
    if field.nested is not None:
        return least_bytes(field.nested)
    if field.kind in FIXED:
        return struct.calcsize(f">{FIXED[field.kind]}")
    return {"uuid": 16, "string": 1 if flexible else 2, "bytes": 1 if flexible else 4}[field.kind]


def roots_of(key: int, kind: EntityType) -> list[tuple[int, Any]]:
    """(version, kio's class) of every version of a request or response."""
    suffix = "Request" if kind is EntityType.request else "Response"
    roots = []
    for version in sorted(schema_name_map[api_key_map[key]]):
        members = vars(load_payload_module(key, version, kind))  # type: ignore[arg-type]
        whole = [v for k, v in members.items() if k.endswith(suffix) and getattr(v, "__type__", None) is kind]
        roots.append((version, next(cls for cls in whole if cls.__api_key__ == key)))
    behind = newer(key, kind)
    return roots if behind is None else [*roots, behind]
