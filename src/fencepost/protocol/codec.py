"""Encode and decode message bodies: our union classes on one side, kio's classes of one version on the other.

kio knows the wire; this module only maps values. A converter per (message, version) is built on first use, so that a
process imports just the schema versions it speaks. Fields that a version does not have are dropped on encoding and take
their default on decoding.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType, uuid_zero
from kio.static.primitive import i64

from fencepost.protocol.bounds import check_bounds
from fencepost.protocol.errors import MalformedMessage

__all__ = ["Message", "decode_request", "decode_response", "encode_request", "encode_response", "supported_versions"]

_Convert = Callable[[Any], Any]


class Message(Protocol):
    """Any class of `protocol.messages` that is a whole request or response."""

    API_KEY: typing.ClassVar[int]


def supported_versions(api_key: int) -> tuple[int, int]:
    """The (lowest, highest) version of an API that can be encoded and decoded. Raises KeyError for an unknown key."""
    versions = schema_name_map[api_key_map[api_key]]
    return min(versions), max(versions)


def encode_request(message: Message, version: int) -> bytes:
    """The request's body (no header) in the given version."""
    return _encode(message, version, EntityType.request)


def encode_response(message: Message, version: int) -> bytes:
    """The response's body (no header) in the given version."""
    return _encode(message, version, EntityType.response)


def decode_request(api_key: int, version: int, body: bytes | memoryview) -> Any:
    """The typed request in `body`. Raises MalformedMessage for bytes that are not one."""
    return _decode(api_key, version, body, EntityType.request)


def decode_response(api_key: int, version: int, body: bytes | memoryview) -> Any:
    """The typed response in `body`. Raises MalformedMessage for bytes that are not one."""
    return _decode(api_key, version, body, EntityType.response)


def _encode(message: Message, version: int, kind: EntityType) -> bytes:
    write, to_kio = _encoder(message.API_KEY, version, kind)
    buffer = io.BytesIO()
    write(buffer, to_kio(message))
    return buffer.getvalue()


def _decode(api_key: int, version: int, body: bytes | memoryview, kind: EntityType) -> Any:
    check_bounds(api_key, version, kind, memoryview(body))
    read, from_kio = _decoder(api_key, version, kind)
    try:
        entity, _ = read(body, 0)
        return from_kio(entity)
    except Exception as error:  # kio raises many types on hostile bytes; all of them mean the same to a peer
        raise MalformedMessage(f"{api_key_map[api_key]} v{version} {kind.name}: {error}") from error


@cache
def _classes(api_key: int, version: int, kind: EntityType) -> tuple[Any, Any]:
    """(our class, kio's class) of one message."""
    name = api_key_map[api_key]
    ours = import_module(f"fencepost.protocol.messages.{name}")
    suffix = "Request" if kind is EntityType.request else "Response"
    our_class = next(v for k, v in vars(ours).items() if k.endswith(suffix) and hasattr(v, "API_KEY"))
    path = schema_name_map[name][version][kind]  # type: ignore[index]
    module, _, attribute = path.partition(":")
    return our_class, _with_plain_timestamps(getattr(import_module(module), attribute))


def _with_plain_timestamps(kio_class: Any) -> Any:
    """The same schema with int64 where kio has timestamps.

    kio refuses negative timestamps, but Kafka sends -1 for "none" where its schema has no null (DescribeTransactions).
    """
    hints = typing.get_type_hints(kio_class)
    changed, fields = False, []
    for field in dataclasses.fields(kio_class):
        hint, metadata = hints[field.name], dict(field.metadata)
        nested = _entity(hint)
        if metadata.get("kafka_type") == "datetime_i64":
            hint, metadata["kafka_type"], changed = i64, "int64", True
        elif nested is not None and (replaced := _with_plain_timestamps(nested)) is not nested:
            hint, changed = (types.GenericAlias(tuple, (replaced, ...)) if _is_sequence(hint) else replaced), True
        options = {} if field.default is dataclasses.MISSING else {"default": field.default}
        fields.append((field.name, hint, dataclasses.field(metadata=metadata, **options)))
    if not changed:
        return kio_class
    dunders = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    namespace = {name: getattr(kio_class, name) for name in dunders if hasattr(kio_class, name)}
    return dataclasses.make_dataclass(
        kio_class.__name__, fields, namespace=namespace, frozen=True, slots=True, kw_only=True
    )


@cache
def _encoder(api_key: int, version: int, kind: EntityType) -> tuple[Any, _Convert]:
    our_class, kio_class = _classes(api_key, version, kind)
    return entity_writer(kio_class), _to_kio(our_class, kio_class)


@cache
def _decoder(api_key: int, version: int, kind: EntityType) -> tuple[Any, _Convert]:
    our_class, kio_class = _classes(api_key, version, kind)
    return entity_reader(kio_class), _from_kio(our_class, kio_class)


class _Field(typing.NamedTuple):
    """One field of kio's class beside ours."""

    kio_name: str
    name: str
    wire_type: str
    is_array: bool
    nullable: bool
    kio_nested: Any
    our_nested: Any


def _fields(our_class: Any, kio_class: Any) -> list[_Field]:
    ours = {field.name for field in dataclasses.fields(our_class)}
    our_hints, kio_hints = typing.get_type_hints(our_class), typing.get_type_hints(kio_class)
    result = []
    for field in dataclasses.fields(kio_class):
        hint = kio_hints[field.name]
        name = field.name if field.name in ours else f"{field.name}_ms"
        wire_type = field.metadata.get("kafka_type", "entity")
        result.append(
            _Field(
                field.name,
                name,
                wire_type,
                _is_sequence(hint),
                type(None) in _arms(hint),
                _entity(hint),
                _entity(our_hints[name]),
            )
        )
    return result


def _arms(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    args = typing.get_args(hint)
    return args if args and type(None) in args else (hint,)


def _is_sequence(hint: Any) -> bool:
    return any(typing.get_origin(arm) is tuple for arm in _arms(hint))


def _entity(hint: Any) -> Any:
    """The dataclass inside X, X | None, tuple[X, ...] or Sequence[X]; None when there is none."""
    for arm in _arms(hint):
        if dataclasses.is_dataclass(arm):
            return arm
        for inner in typing.get_args(arm):
            for leaf in _arms(inner):
                if dataclasses.is_dataclass(leaf):
                    return leaf
    return None


def _to_kio(our_class: Any, kio_class: Any) -> _Convert:
    """A function that turns our object into kio's."""
    plan = [(field.kio_name, field.name, _value_to_kio(field)) for field in _fields(our_class, kio_class)]
    # A nested structure of ours that is None is left to kio's default: only tagged and nullable fields are single
    # structures.
    omitted = {f.kio_name for f in _fields(our_class, kio_class) if f.kio_nested and not f.is_array}

    def convert(message: Any) -> Any:
        values = {}
        for kio_name, name, value_of in plan:
            value = getattr(message, name)
            if value is None and kio_name in omitted:
                continue
            values[kio_name] = value if value_of is None else value_of(value)
        return kio_class(**values)

    return convert


def _value_to_kio(field: _Field) -> _Convert | None:
    """The converter of one field's value, None where the value is the same on both sides."""
    scalar: _Convert | None
    if field.kio_nested is not None:
        scalar = _to_kio(field.our_nested, field.kio_nested)
    else:
        scalar = {"error_code": KioErrorCode, "timedelta_i32": _to_timedelta, "timedelta_i64": _to_timedelta}.get(
            field.wire_type
        )
    if field.is_array:
        return _each(scalar, tuple)
    if field.wire_type == "string" and not field.nullable:
        return lambda text: "" if text is None else text  # a newer version made the field nullable
    return scalar


def _from_kio(our_class: Any, kio_class: Any) -> _Convert:
    """A function that turns kio's object into ours."""
    plan = [(field.kio_name, field.name, _value_from_kio(field)) for field in _fields(our_class, kio_class)]

    def convert(entity: Any) -> Any:
        values = {}
        for kio_name, name, value_of in plan:
            value = getattr(entity, kio_name)
            values[name] = value if value_of is None else value_of(value)
        return our_class(**values)

    return convert


def _value_from_kio(field: _Field) -> _Convert | None:
    scalar: _Convert | None
    if field.kio_nested is not None:
        scalar = _from_kio(field.our_nested, field.kio_nested)
    else:
        table: dict[str, _Convert] = {
            "error_code": int,
            "timedelta_i32": _from_timedelta,
            "timedelta_i64": _from_timedelta,
            "uuid": _from_uuid,
        }
        scalar = table.get(field.wire_type)
    if field.is_array:
        return _each(scalar, list)
    if field.kio_nested is not None and field.nullable:
        return _unless_none(scalar)
    return scalar


def _each(scalar: _Convert | None, container: type[list[Any] | tuple[Any, ...]]) -> _Convert:
    """Apply a converter to every element of an array that may be null."""
    if scalar is None:
        return lambda values: None if values is None else container(values)
    return lambda values: None if values is None else container([scalar(value) for value in values])


def _unless_none(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _to_timedelta(milliseconds: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds)


def _from_timedelta(value: datetime.timedelta) -> int:
    return value.days * 86_400_000 + value.seconds * 1_000 + value.microseconds // 1_000


def _from_uuid(value: UUID | None) -> UUID | None:
    return None if value == uuid_zero else value
