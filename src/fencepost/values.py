"""Values like `@dataclass(slots=True)`, frozen or not, at a tenth of the cost of creating the class.

A broker defines hundreds of such classes and uses few of them in one run. Creating a data class takes half a
millisecond, because Python compiles six methods for it. Here `__init__` and `__replace__` are compiled at their first
use, and all classes share the other methods. `dataclasses.replace`, `fields` and `asdict` work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field
from operator import attrgetter
from typing import Any, Final, Never, Self, TypeVar, dataclass_transform

__all__ = ["MutableValue", "Value", "field_names", "replace"]

AnyValue = TypeVar("AnyValue", bound="Value")


# Annotations that are not evaluated are text, as in `dataclasses`.
_CLASS_VARIABLE: Final = re.compile(r"(?:\w+\.)?ClassVar\b")


class _Fields:
    """`__dataclass_fields__` of a class, computed when a function of `dataclasses` first reads it."""

    def __get__(self, _value: object, kind: _ValueType) -> Any:
        defaults = {name: _shared(default) for name, default in kind._defaults.items()}
        annotations = {name: kind.__annotations__[name] for name in kind._names}
        described = type(kind.__name__, (), {"__annotations__": annotations, **defaults})
        dataclass(init=False, repr=False, eq=False, kw_only=kind._kw_only)(described)
        kind.__dataclass_fields__ = described.__dict__["__dataclass_fields__"]
        return kind.__dataclass_fields__


def _shared(default: Any) -> Any:
    """Return a default that `dataclass` accepts: it rejects unhashable defaults."""
    return field(default_factory=lambda: default) if type(default).__hash__ is None else default


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads these attributes of a value."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


class _ValueType(type):
    """Metaclass that turns annotations into slots, and values assigned to them into defaults."""

    _names: tuple[str, ...]
    _defaults: dict[str, Any]
    _kw_only: bool
    _read: Callable[[Any], tuple[Any, ...]]
    __dataclass_fields__: Any

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool | None = None
    ) -> _ValueType:
        if "__post_init__" in namespace or any(isinstance(base, _ValueType) and base._names for base in bases):
            raise TypeError(f"{name}: a value takes no fields from another class, and calls no __post_init__")
        annotations = namespace.get("__annotations__", {})
        names = tuple(each for each in annotations if not _CLASS_VARIABLE.match(str(annotations[each])))
        for each in names:
            if isinstance(namespace.get(each), Field):
                raise TypeError(f"{name}.{each}: a value takes no field(); write the default itself")
        namespace["_defaults"] = {each: namespace.pop(each) for each in names if each in namespace}
        if kw_only is None:
            kw_only = any(getattr(base, "_kw_only", False) for base in bases)
        namespace["_kw_only"] = kw_only
        namespace["_read"] = _reader(names)
        namespace["__slots__"] = namespace["_names"] = names
        namespace["__match_args__"] = () if kw_only else names
        namespace["__dataclass_fields__"] = _Fields()
        return super().__new__(cls, name, bases, namespace)


class _Methods(metaclass=_ValueType):  # noqa: PLW1641 - only immutable values have a hash
    """Methods of all values, which are equal if their classes and fields are equal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kind: Any = type(self)
        kind.__init__ = _compiled_init(kind)
        kind.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return NotImplemented if type(self) is not type(other) else type(self)._read(self) == type(self)._read(other)

    def __repr__(self) -> str:
        found = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._names)
        return f"{type(self).__qualname__}({found})"

    def __replace__(self, /, **changes: Any) -> Self:
        """Implement `copy.replace`, like `dataclasses.replace`."""
        kind: Any = type(self)
        kind.__replace__ = _compiled_replace(kind)
        replaced: Self = kind.__replace__(self, **changes)
        return replaced


@dataclass_transform(frozen_default=True)
class Value(_Methods):
    """Base class of immutable values. With `kw_only=True` in a class statement, its fields are keyword-only.

    All values share a default, so it must be immutable.
    """

    def __hash__(self) -> int:
        return hash(type(self)._read(self))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{type(self).__qualname__}.{name}: a value does not change")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"{type(self).__qualname__}.{name}: a value does not change")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), dict(zip(type(self)._names, type(self)._read(self), strict=True)))


@dataclass_transform(kw_only_default=True)
class MutableValue(_Methods, kw_only=True):
    """Base class of values whose fields can be assigned, and are keyword-only unless a class says `kw_only=False`.

    All values share a default, so it must be immutable.
    """


def field_names(kind: type[Value | MutableValue]) -> tuple[str, ...]:
    """Return the names of a class's fields. `dataclasses.fields` describes each field, which takes milliseconds."""
    return kind._names


def replace(value: AnyValue, **changes: Any) -> AnyValue:
    """Return a copy with these fields changed. `dataclasses.replace` does the same with a call per field."""
    return value.__replace__(**changes)


def _restored(kind: Callable[..., Value], found: dict[str, Any]) -> Value:
    """Restore a value for `copy` and `pickle`."""
    return kind(**found)


def _compiled_init(kind: _ValueType) -> Callable[..., None]:
    """Compile an `__init__` whose parameters are the fields and which writes each into its slot."""
    names, defaults = kind._names, kind._defaults
    known = {f"default_{name}": default for name, default in defaults.items()}
    parameters = ["self", *(["*"] if kind._kw_only and names else [])]
    parameters += [f"{name}=default_{name}" if name in defaults else name for name in names]
    written = "; ".join(_written(kind, name, "self", name) for name in names) or "pass"
    return _compiled(kind, "__init__", f"({', '.join(parameters)}): {written}", known)


_SAME: Final = object()


def _compiled_replace(kind: _ValueType) -> Callable[..., Any]:
    """Compile a `__replace__` that takes each field from its arguments, or else from the value.

    To call the class with all fields as keywords takes four times as long.
    """
    names = kind._names
    parameters = ["self", "/", *(["*"] if names else []), *(f"{name}=_same" for name in names)]
    fields = [_written(kind, name, "_new", f"self.{name} if {name} is _same else {name}") for name in names]
    body = "; ".join(["_new = _create(type(self))", *fields, "return _new"])
    return _compiled(
        kind, "__replace__", f"({', '.join(parameters)}): {body}", {"_same": _SAME, "_create": object.__new__}
    )


def _written(kind: _ValueType, name: str, target: str, value: str) -> str:
    """Return the statement that writes a field."""
    return f"write_{name}({target}, {value})" if issubclass(kind, Value) else f"{target}.{name} = {value}"


def _compiled(kind: _ValueType, name: str, definition: str, known: dict[str, Any]) -> Callable[..., Any]:
    """Compile a method of a class from the rest of its definition, and the names that it uses."""
    known |= {f"write_{each}": kind.__dict__[each].__set__ for each in kind._names}
    exec(f"def {name}{definition}", known)  # noqa: S102 - of the names of fields
    method: Callable[..., Any] = known[name]
    method.__qualname__ = f"{kind.__qualname__}.{name}"  # shown in error messages
    return method
