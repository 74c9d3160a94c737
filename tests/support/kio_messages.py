"""A second opinion on the wire: random messages as kio has them, beside the same ones as ours.

Versions that kio does not have yet are those of tools/newer_schemas.py, which kio's reader and writer take.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from fencepost.protocol.codec import supported_versions
from fencepost.protocol.messages.index import APIS
from tools.newer_schemas import newer

MESSAGES = Path(__file__).resolve().parents[2] / "src/fencepost/protocol/messages"
Side = Literal["Request", "Response"]
UNKNOWN = "unknown_to_us"  # a tagged field that our schemas do not have
UNKNOWN_TAG = 9_999

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "a", "topic-1", "Zürich €", "x" * 126, "y" * 127, "z" * 300)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def spoken() -> list[tuple[int, int, Side]]:
    """(API key, version, side) of everything that has a generated module."""
    keys = [key for key, schema in APIS.items() if (MESSAGES / f"{schema.name}.py").exists()]
    sides: tuple[Side, Side] = ("Request", "Response")
    return [
        (key, version, side)
        for key in keys
        for version in range(supported_versions(key)[0], supported_versions(key)[1] + 1)
        for side in sides
    ]


def our_class(api_key: int, side: Side) -> Any:
    module = import_module(f"fencepost.protocol.messages.{api_key_map[api_key]}")
    return next(v for k, v in vars(module).items() if k.endswith(side) and hasattr(v, "API_KEY"))


@cache
def kio_class(api_key: int, version: int, side: Side) -> Any:
    kind = EntityType.request if side == "Request" else EntityType.response
    behind = newer(api_key, kind)
    if behind is not None and version == behind[0]:
        return behind[1]
    module: Any = load_payload_module(api_key, version, kind)  # type: ignore[arg-type]
    return next(v for k, v in vars(module).items() if k.endswith(side) and getattr(v, "__type__", None) is kind)


@cache
def of_the_future(kio_cls: Any) -> Any:
    """The same schema with one more tagged field in every structure, as a later version of Kafka may have."""
    hints = typing.get_type_hints(kio_cls)
    fields: list[Any] = []
    for field in dataclasses.fields(kio_cls):
        hint = hints[field.name]
        element, is_array, nullable = taken_apart(hint)
        if dataclasses.is_dataclass(element):
            nested: Any = of_the_future(cast("Any", element))
            hint = types.GenericAlias(tuple, (nested, ...)) if is_array else nested
            hint = hint | None if nullable else hint
        options = {} if field.default is dataclasses.MISSING else {"default": field.default}
        fields.append((field.name, hint, dataclasses.field(metadata=field.metadata, **options)))
    unknown = dataclasses.field(metadata={"kafka_type": "bytes", "tag": UNKNOWN_TAG}, default=b"")
    dunders = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    return dataclasses.make_dataclass(
        kio_cls.__name__,
        [*fields, (UNKNOWN, bytes, unknown)],
        namespace={name: getattr(kio_cls, name) for name in dunders if hasattr(kio_cls, name)},
        frozen=True,
        slots=True,
        kw_only=True,
    )


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(kio_cls: Any, data: bytes) -> Any:
    entity, size = entity_reader(kio_cls)(data, 0)
    if size != len(data):
        raise ValueError(f"kio read {size} of {len(data)} bytes")
    return entity


class Field(NamedTuple):
    """One of a message. `our_element` is None for what our class does not have."""

    name: str
    our_name: str
    kind: str
    element: Any
    our_element: Any
    is_array: bool
    nullable: bool
    tagged: bool


@cache
def layout(kio_cls: Any, our_cls: Any) -> tuple[Field, ...]:
    kio_hints, our_hints = typing.get_type_hints(kio_cls), typing.get_type_hints(our_cls)
    found = []
    for field in dataclasses.fields(kio_cls):
        element, is_array, nullable = taken_apart(kio_hints[field.name])
        our_name = field.name if field.name in our_hints else f"{field.name}_ms"
        our_element = None if field.name == UNKNOWN else taken_apart(our_hints[our_name])[0]
        kind, tagged = field.metadata.get("kafka_type", ""), "tag" in field.metadata
        found.append(Field(field.name, our_name, kind, element, our_element, is_array, nullable, tagged))
    return tuple(found)


def pair(kio_cls: Any, our_cls: Any, numbers: random.Random, most: int = 3) -> tuple[Any, Any]:
    """A message with random values, as an instance of each class. Arrays have at most `most` elements."""
    kio_values: dict[str, Any] = {}
    our_values: dict[str, Any] = {}
    for name, our_name, kind, element, our_element, is_array, nullable, tagged in layout(kio_cls, our_cls):
        if name == UNKNOWN:
            kio_values[UNKNOWN] = numbers.choice((b"", b"?", b"later" * 40))
            continue
        if tagged and numbers.random() < 0.3:
            continue  # at its default, and so not on the wire
        # An empty tagged array is not on the wire.
        count = numbers.choice((int(tagged), 1, most, 130 if kind == "int32" else most)) if is_array else 1
        elements = [draw_value(kind, element, our_element, numbers, nullable and not is_array) for _ in range(count)]
        if is_array and nullable and numbers.random() < 0.3:
            kio_values[name] = our_values[our_name] = None
        elif is_array:
            kio_values[name] = tuple(kio for kio, _ in elements)
            our_values[our_name] = ours_of(kind, (our for _, our in elements))
        else:
            ((kio_values[name], our_values[our_name]),) = elements
    return kio_cls(**kio_values), our_cls(**our_values)


def ours_of(kind: str, values: Iterable[Any]) -> Sequence[Any]:
    """An array as it is read: integers as a tuple, anything else as a list."""
    return tuple(values) if kind in BITS else list(values)


def draw_value(kind: str, element: Any, our_element: Any, numbers: random.Random, nullable: bool) -> tuple[Any, Any]:
    """(kio's value, ours)."""
    if nullable and numbers.random() < 0.3:
        return None, None
    if dataclasses.is_dataclass(element):
        return pair(element, our_element, numbers, most=2)
    match kind:
        case "bool":
            plain: Any = numbers.random() < 0.5
        case "string":
            plain = numbers.choice(TEXTS)
        case "bytes" | "records":
            plain = numbers.randbytes(numbers.choice((0, 1, 126, 127, 200)))
        case "uuid":
            plain = UUID(int=numbers.getrandbits(128))
        case "error_code":
            code = numbers.choice(list(ErrorCode))
            return code, int(code)
        case "timedelta_i32" | "timedelta_i64":
            plain = integer(32 if kind.endswith("32") else 44, numbers)
            return datetime.timedelta(milliseconds=plain), plain
        case "datetime_i64":
            plain = numbers.randrange(2**42)
            return EPOCH + datetime.timedelta(milliseconds=plain), plain
        case "float64":
            plain = numbers.choice((0.0, 1.5, -1e300, numbers.random()))
        case "uint16":
            plain = numbers.choice((0, 1, 2**15, 2**16 - 1, numbers.getrandbits(16)))
        case _:
            plain = integer(BITS[kind], numbers)
    return plain, plain


def integer(bits: int, numbers: random.Random) -> int:
    limit = 2 ** (bits - 1)
    return numbers.choice((0, 1, -1, limit - 1, -limit, numbers.randrange(-limit, limit)))


def taken_apart(hint: Any) -> tuple[Any, bool, bool]:
    """(the element's type, whether it is in an array, whether the whole may be null)."""
    hint, nullable = without_none(hint)
    arguments = typing.get_args(hint)
    return (without_none(arguments[0])[0], True, nullable) if arguments else (hint, False, nullable)


def without_none(hint: Any) -> tuple[Any, bool]:
    arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    return (arms[0], True) if type(None) in typing.get_args(hint) else (hint, False)
