"""Immutable values: what `@dataclass(frozen=True, slots=True)` makes, for a tenth of what making that costs.

A broker knows more than a hundred such classes and uses few of them in one run, while a data class takes half a
millisecond to make, because Python compiles six methods for it. Here `__init__` is compiled when the first value is
made, and the other methods are the same for all classes. `dataclasses.replace`, `fields` and `asdict` work as ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field
from operator import attrgetter
from typing import Any, Final, Never, Self, dataclass_transform

__all__ = ["Value"]


# Annotations are text where they are not evaluated, as in `dataclasses`.
_CLASS_VARIABLE: Final = re.compile(r"(?:\w+\.)?ClassVar\b")


class _Fields:
    """`__dataclass_fields__` of a class, found when the first of the functions of `dataclasses` asks for it."""

    def __get__(self, _value: object, kind: _ValueType) -> Any:
        defaults = {name: _shared(default) for name, default in kind._defaults.items()}
        described = type(kind.__name__, (), {"__annotations__": kind.__annotations__, **defaults})
        dataclass(init=False, repr=False, eq=False, kw_only=kind._kw_only)(described)
        kind.__dataclass_fields__ = described.__dict__["__dataclass_fields__"]
        return kind.__dataclass_fields__


def _shared(default: Any) -> Any:
    """As `dataclass` takes it, which suspects what cannot be hashed."""
    return field(default_factory=lambda: default) if type(default).__hash__ is None else default


@dataclass_transform(frozen_default=True)
class _ValueType(type):
    """Turns a class's annotations into slots, and what was assigned to them into defaults."""

    _names: tuple[str, ...]
    _defaults: dict[str, Any]
    _kw_only: bool
    _read: Callable[[Any], Any]
    __dataclass_fields__: Any

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, kw_only: bool = False
    ) -> _ValueType:
        if "__post_init__" in namespace or any(isinstance(base, _ValueType) and base._names for base in bases):
            raise TypeError(f"{name}: a value takes no fields from another class, and calls no __post_init__")
        annotations = namespace.get("__annotations__", {})
        names = tuple(annotations)
        for each in names:
            if isinstance(namespace.get(each), Field) or _CLASS_VARIABLE.match(str(annotations[each])):
                raise TypeError(f"{name}.{each}: a value takes no field() and no ClassVar; write the default itself")
        namespace["_defaults"] = {each: namespace.pop(each) for each in names if each in namespace}
        namespace["_kw_only"] = kw_only
        namespace["_read"] = attrgetter(*names) if names else bool
        namespace["__slots__"] = namespace["_names"] = names
        namespace["__match_args__"] = () if kw_only else names
        namespace["__dataclass_fields__"] = _Fields()
        return super().__new__(cls, name, bases, namespace)


class Value(metaclass=_ValueType):
    """The base of immutable values, each with fields of its own; `kw_only=True` has them given by their names only.

    Values are equal that are of one class and have equal fields. A default is shared: it must not be mutable.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kind = type(self)
        kind.__init__ = _compiled_init(kind)  # type: ignore[method-assign]
        kind.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return NotImplemented if type(self) is not type(other) else type(self)._read(self) == type(self)._read(other)

    def __hash__(self) -> int:
        return hash(type(self)._read(self))

    def __repr__(self) -> str:
        found = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._names)
        return f"{type(self).__qualname__}({found})"

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{type(self).__qualname__}.{name}: a value does not change")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"{type(self).__qualname__}.{name}: a value does not change")

    def __replace__(self, /, **changes: Any) -> Self:
        """As `dataclasses.replace`, for `copy.replace`."""
        kind = type(self)
        return kind(**{name: getattr(self, name) for name in kind._names} | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), {name: getattr(self, name) for name in type(self)._names})


def _restored(kind: Callable[..., Value], found: dict[str, Any]) -> Value:
    """For `copy` and `pickle`."""
    return kind(**found)


def _compiled_init(kind: _ValueType) -> Callable[..., None]:
    """Its parameters are the fields, and each is written into its slot."""
    names, defaults = kind._names, kind._defaults
    known = {f"default_{name}": default for name, default in defaults.items()}
    known |= {f"write_{name}": kind.__dict__[name].__set__ for name in names}
    parameters = ["self", *(["*"] if kind._kw_only and names else [])]
    parameters += [f"{name}=default_{name}" if name in defaults else name for name in names]
    written = "; ".join(f"write_{name}(self, {name})" for name in names) or "pass"
    exec(f"def __init__({', '.join(parameters)}): {written}", known)  # noqa: S102 - of the names of fields
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"  # which errors name
    return init
