"""Are the lengths in a message's body possible? Asked before the body is decoded.

The codec's native reader makes room for as many elements as an array claims to have, and ends the whole process when
there is no such room: a message of ten bytes could stop its reader. So every array length is held against the bytes
that are left, with a walk over the body that follows kio's schema and builds nothing. An element takes one byte at
least, so the walk takes no longer than the body is.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.frame import read_unsigned_varint

__all__ = ["check_bounds"]

_Step = Callable[[memoryview, int], int]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FIXED_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
    "error_code": 2, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8, }  # fmt: skip


def check_bounds(api_key: int, version: int, kind: EntityType, body: memoryview) -> None:
    """Raises MalformedMessage for a body whose lengths point beyond its end."""
    try:
        end = _walker(api_key, version, kind)(body, 0)
    except struct.error as error:
        raise MalformedMessage(f"API {api_key} v{version}: the body is cut short") from error
    if end > len(body):
        raise MalformedMessage(f"API {api_key} v{version}: {end} bytes are claimed, {len(body)} are there")


@cache
def _walker(api_key: int, version: int, kind: EntityType) -> _Step:
    path = schema_name_map[api_key_map[api_key]][version][kind]  # type: ignore[index]
    module, _, attribute = path.partition(":")
    return _entity(getattr(import_module(module), attribute))


def _entity(kio_class: Any) -> _Step:
    flexible: bool = kio_class.__flexible__
    hints = typing.get_type_hints(kio_class)
    plain: list[_Step] = []
    tagged: dict[int, _Step] = {}
    for field in dataclasses.fields(kio_class):
        step = _field(hints[field.name], field.metadata.get("kafka_type", ""), flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = step
        else:
            plain.append(step)

    def walk(body: memoryview, position: int) -> int:
        for step in plain:
            position = step(body, position)
        return _tags(body, position, tagged) if flexible else position

    return walk


def _field(hint: Any, kafka_type: str, flexible: bool) -> _Step:
    arms = (
        [arm for arm in typing.get_args(hint) if arm is not type(None)]
        if type(None) in typing.get_args(hint)
        else [hint]
    )
    nullable = type(None) in typing.get_args(hint)
    inner = arms[0]
    if typing.get_origin(inner) is tuple:
        element = next(arm for arm in typing.get_args(inner) if arm is not Ellipsis)
        return _array(_field(element, kafka_type, flexible), flexible, nullable)
    if dataclasses.is_dataclass(inner):
        return _optional(_entity(inner)) if nullable else _entity(inner)
    if kafka_type == "string":
        return _compact if flexible else _short
    if kafka_type in ("bytes", "records"):
        return _compact if flexible else _long
    size = _FIXED_BYTES[kafka_type]
    return lambda _, position: position + size


def _array(element: _Step, flexible: bool, nullable: bool) -> _Step:
    def walk(body: memoryview, position: int) -> int:
        if flexible:
            count, position = read_unsigned_varint(body, position)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(body, position)
            position += 4
        if count < 0 and not nullable:
            raise MalformedMessage("null where an array is needed")
        if count > len(body) - position:
            raise MalformedMessage(f"an array of {count} elements in {len(body) - position} bytes")
        for _ in range(count):
            position = element(body, position)
        return position

    return walk


def _optional(entity: _Step) -> _Step:
    def walk(body: memoryview, position: int) -> int:
        if position >= len(body):
            raise MalformedMessage("the body is cut short")
        return entity(body, position + 1) if body[position] < 0x80 else position + 1

    return walk


def _compact(body: memoryview, position: int) -> int:
    length, position = read_unsigned_varint(body, position)
    return _within(body, position + max(length - 1, 0))


def _short(body: memoryview, position: int) -> int:
    return _within(body, position + 2 + max(_INT16.unpack_from(body, position)[0], 0))


def _long(body: memoryview, position: int) -> int:
    return _within(body, position + 4 + max(_INT32.unpack_from(body, position)[0], 0))


def _within(body: memoryview, position: int) -> int:
    if position > len(body):
        raise MalformedMessage(f"{position} bytes are claimed, {len(body)} are there")
    return position


def _tags(body: memoryview, position: int, known: dict[int, _Step]) -> int:
    count, position = read_unsigned_varint(body, position)
    for _ in range(min(count, len(body))):
        tag, position = read_unsigned_varint(body, position)
        size, position = read_unsigned_varint(body, position)
        end = _within(body, position + size)
        if tag in known:
            known[tag](body[:end], position)
        position = end
    return position
