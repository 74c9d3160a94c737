"""Validate the arguments of public methods against their type hints.

`checked` makes a function reject what its annotations do not allow. A wrong type raises TypeError, and an invalid value
ConfigurationError (a ValueError). Each message names the parameter, the value and the expected type. Rules beyond the
types: whole numbers fit in 64 bits, text fits in a string of Kafka's protocol, numbers must not be negative and text
must not be empty, unless the default is, or `Between` or `MAY_BE_EMPTY` says otherwise. A bool is not a number. Text is
not a list of texts. A path is any text.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from fencepost.errors import ConfigurationError
from fencepost.protocol.wire import MOST_STRING_BYTES

P = ParamSpec("P")
R = TypeVar("R")


class Between(NamedTuple):
    """Limits of an `Annotated` whole number, if they are not 0 and the most that 64 bits hold."""

    lowest: int
    most: int


MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
HIGHEST_PORT: Final = 65_535
_WHOLE: Final = re.compile("-?[0-9]{1,19}")  # 19 digits write every number of 64 bits
MAY_BE_EMPTY: Final = "may be empty"  # for `Annotated` text
MILLISECONDS: Final = "of milliseconds"  # for an `Annotated` number

MaybeEmpty = typing.Annotated[str, MAY_BE_EMPTY]
Int8 = typing.Annotated[int, Between(0, 2**7 - 1)]  # named as in Kafka's message definitions
Int16 = typing.Annotated[int, Between(0, MAX_INT16)]
Int32 = typing.Annotated[int, Between(0, MAX_INT32)]
OrMinusOne = typing.Annotated[int, Between(-1, MAX_INT64)]  # -1: unknown or not given
Int16OrMinusOne = typing.Annotated[int, Between(-1, MAX_INT16)]
Int32OrMinusOne = typing.Annotated[int, Between(-1, MAX_INT32)]
Milliseconds = typing.Annotated[int, MILLISECONDS]  # integers only: a caller who writes 1.0 probably means a second


def address_text(host: str, port: int) -> str:
    """Return HOST:PORT as `bootstrap.servers` and `listeners` accept it: with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def whole_number(text: str) -> int | None:
    """Return the number that ASCII digits write, after a minus sign or not. None: other text, or more than 19 digits.

    `int()` raises ValueError for text that `isdecimal()` accepts, if it has more than 4300 digits.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def is_port(number: int | None) -> typing.TypeGuard[int]:
    """Return true for a port to listen on; 0 asks for a free one."""
    return number is not None and 0 <= number <= HIGHEST_PORT


def is_node_id(number: int | None) -> typing.TypeGuard[int]:
    """Return true for the id of a broker."""
    return number is not None and 0 <= number <= MAX_INT32


class _BriefRepr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # more digits than Python writes (sys.set_int_max_str_digits)
            return f"<int of {x.bit_length()} bits>"


_BRIEF: Final = _BriefRepr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def brief_repr(value: object) -> str:
    """Return `repr(value)` for a message. "..." replaces the middle of long text, and further items of a container."""
    return _BRIEF.repr(value)


class ValueKind(NamedTuple):
    """A kind of value. `take(name, value)` returns the value that the call uses, for a value that `fits`, or raises."""

    expected: str
    fits: Callable[[Any], bool]
    take: Callable[[str, Any], Any]

    def of(self, name: str, value: Any) -> Any:
        """Return the value for the parameter `name`. Raises TypeError or ConfigurationError."""
        if not self.fits(value):
            raise TypeError(f"{name} is {brief_repr(value)} ({type(value).__name__}); pass {self.expected}")
        return self.take(name, value)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with validation of its arguments at each call, before it does anything."""
    ready = prepared(function)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return ready(*args, **kwargs)()

    return presented_as(function, call)


def presented_as(function: Callable[..., Any], call: Callable[P, R]) -> Callable[P, R]:
    """Return `call` with the name and the description of `function`. If `function` is async, the result is async, too.

    An async function does nothing before its call is awaited. So a thread outside the event loop may make the call, and
    give it to the loop.
    """
    if not inspect.iscoroutinefunction(function):
        return functools.update_wrapper(call, function)
    untyped: Callable[..., Any] = call

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await untyped(*args, **kwargs)

    return typing.cast("Callable[P, R]", functools.update_wrapper(awaited, function))


def prepared(function: Callable[P, R]) -> Callable[P, Callable[[], R]]:
    """Return a function that validates the arguments now and returns the call, which another thread may make."""
    kinds: dict[str, ValueKind] = {}
    untyped: Callable[..., R] = function

    def take(*args: P.args, **kwargs: P.kwargs) -> Callable[[], R]:
        if not kinds:
            kinds.update(_kinds(function))
        taken = [kind.of(name, value) for (name, kind), value in zip(kinds.items(), args, strict=False)]
        named = {name: kinds[name].of(name, value) if name in kinds else value for name, value in kwargs.items()}
        return functools.partial(untyped, *taken, *args[len(taken) :], **named)

    return take


def _kinds(function: Callable[..., Any]) -> dict[str, ValueKind]:
    """Return the kind of each parameter, in order. The first parameter of a method accepts anything."""
    parameters = inspect.signature(function).parameters
    texts = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if parameter.annotation is not inspect.Parameter.empty
    }
    module = inspect.unwrap(function).__globals__
    hints = typing.get_type_hints(types.SimpleNamespace(__annotations__=texts), module, include_extras=True)
    return {name: kind_of(hints.get(name, Any), parameter.default) for name, parameter in parameters.items()}


def kind_of(hint: Any, default: Any = inspect.Parameter.empty) -> ValueKind:
    """Return the kind of an annotation.

    Raises:
        NotImplementedError: This module does not support the annotation.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(parts[0], parts[1])
    if isinstance(hint, TypeVar):
        return kind_of(hint.__bound__)
    if origin in (typing.Union, types.UnionType):
        paths = [part for part in parts if hasattr(typing.get_origin(part), "__fspath__")]
        return _either([PATH if paths and part in (str, *paths) else kind_of(part, default) for part in parts])
    if origin is tuple and parts == (str, int):
        return PAIR
    if origin is tuple and Ellipsis not in parts:
        return _tuple_of([kind_of(part) for part in parts])
    if origin in (collections.abc.Iterable, collections.abc.Sequence):
        return _list_of(kind_of(parts[0]))
    if origin is collections.abc.Mapping:
        return _mapping_of(kind_of(parts[0]), _annotated(str, MAY_BE_EMPTY) if parts[1] is str else kind_of(parts[1]))
    if origin is collections.abc.Callable:
        return FUNCTION
    if origin is re.Pattern:
        return ValueKind("a compiled pattern", lambda value: isinstance(value, re.Pattern), _as_it_is)
    if hint in _PLAIN:
        return _PLAIN[hint](default)
    if isinstance(origin or hint, type):
        return _class(origin or hint)
    raise NotImplementedError(f"no kind of value for the annotation {hint!r}")


def _as_it_is(_: str, value: Any) -> Any:
    return value


def _whole(lowest: int = 0, what: str = "", most: int = MAX_INT64) -> ValueKind:
    def fits(value: Any) -> bool:
        return type(value) is int or (isinstance(value, numbers.Integral) and not isinstance(value, bool))

    def take(name: str, value: Any) -> Any:
        if value < lowest:
            raise ConfigurationError(f"{name} is {brief_repr(value)}; it must be at least {lowest}")
        if value > most:
            raise ConfigurationError(f"{name} is {brief_repr(value)}; it must be at most {most}")
        return value

    return ValueKind(f"a whole number {what}".rstrip(), fits, take)


def text_flaw(value: str, most_bytes: int | None = MOST_STRING_BYTES) -> str:
    """Return the reason why a string of Kafka's protocol cannot hold the text; "" if it can."""
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        return "cannot be written in UTF-8"
    if most_bytes is not None and size > most_bytes:
        return f"has {size} bytes; {most_bytes} are possible"
    return ""


def is_utf8(text: str) -> bool:
    """Return true if the text can be written in UTF-8."""
    return not text_flaw(text, most_bytes=None)


def _number(lowest: float = 0) -> ValueKind:
    def fits(value: Any) -> bool:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)

    def take(name: str, value: Any) -> Any:
        if not math.isfinite(value) or value < lowest:
            raise ConfigurationError(f"{name} is {brief_repr(value)}; it must be finite and at least {lowest:g}")
        return value

    return ValueKind("a number", fits, take)


def _text(*, may_be_empty: bool = False) -> ValueKind:
    def take(name: str, value: str) -> str:
        if not value and not may_be_empty:
            raise ConfigurationError(f"{name} is ''; it must not be empty")
        if flaw := text_flaw(value):
            raise ConfigurationError(f"{name} is {brief_repr(value)}; it {flaw}")
        return value

    return ValueKind("text", lambda value: isinstance(value, str), take)


def _annotated(hint: Any, extra: Any) -> ValueKind:
    if isinstance(extra, Between):
        return _whole(extra.lowest, most=extra.most)
    if extra == MILLISECONDS:
        return _whole(what=MILLISECONDS)
    if extra == MAY_BE_EMPTY:
        return _text(may_be_empty=True)
    raise NotImplementedError(f"no kind of value for {hint!r} annotated with {extra!r}")


def _check_path(name: str, value: Any) -> Any:
    if value == "":
        raise ConfigurationError(f"{name} is ''; it must not be empty")
    if "\0" in str(value):
        raise ConfigurationError(f"{name} is {brief_repr(value)}; a path has no NUL character")
    return value


def _either(kinds: list[ValueKind]) -> ValueKind:
    def take(name: str, value: Any) -> Any:
        return next(kind for kind in kinds if kind.fits(value)).take(name, value)

    return ValueKind(
        " or ".join(dict.fromkeys(kind.expected for kind in kinds)),
        lambda value: any(kind.fits(value) for kind in kinds),
        take,
    )


def _list_of(item: ValueKind) -> ValueKind:
    def fits(value: Any) -> bool:
        if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not hasattr(value, "__iter__"):
            return False
        return not (isinstance(value, tuple) and item is not ANYTHING and item.fits(value))  # such as a single pair

    def take(name: str, value: Any) -> list[Any]:
        return [item.of(f"{name}[{number}]", element) for number, element in enumerate(value)]

    return ValueKind(f"a list (each {item.expected})", fits, take)


def _tuple_of(items: list[ValueKind]) -> ValueKind:
    def fits(value: Any) -> bool:
        pairs = zip(items, value, strict=False) if isinstance(value, tuple) and len(value) == len(items) else None
        return pairs is not None and all(item.fits(element) for item, element in pairs)

    def take(name: str, value: Any) -> tuple[Any, ...]:
        pairs = zip(items, value, strict=True)
        return tuple(item.of(f"{name}[{number}]", element) for number, (item, element) in enumerate(pairs))

    return ValueKind(f"a tuple ({', '.join(item.expected for item in items)})", fits, take)


def _mapping_of(key: ValueKind, value: ValueKind) -> ValueKind:
    def take(name: str, given: Mapping[Any, Any]) -> dict[Any, Any]:
        return {
            key.of(f"a key of {name}", item): value.of(f"{name}[{brief_repr(item)}]", other)
            for item, other in given.items()
        }

    expected = f"a mapping ({key.expected} to {value.expected})"
    return ValueKind(expected, lambda given: isinstance(given, Mapping), take)


def _class(wanted: type) -> ValueKind:
    def fits(value: Any) -> bool:
        return isinstance(value, wanted)

    names: tuple[str, ...] | None = getattr(wanted, "_fields", None)
    if names is None:
        article = "an" if wanted.__name__[0] in "AEIO" else "a"
        return ValueKind(f"{article} {wanted.__name__}", fits, _as_it_is)
    hints = typing.get_type_hints(wanted, include_extras=True)
    defaults: Mapping[str, Any] = getattr(wanted, "_field_defaults", {})
    fields = {name: kind_of(hints[name], defaults.get(name, inspect.Parameter.empty)) for name in names}

    def take(name: str, value: Any) -> Any:
        return wanted(*(kind.of(f"{name}.{field}", getattr(value, field)) for field, kind in fields.items()))

    return ValueKind(f"{wanted.__name__}({', '.join(fields)})", fits, take)


def _pair() -> ValueKind:
    topic, partition = _text(), _whole(most=MAX_INT32)

    def fits(value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and topic.fits(value[0]) and partition.fits(value[1])

    def take(name: str, value: tuple[str, int]) -> tuple[str, int]:
        topic.take(f"the topic of {name}", value[0])
        partition.take(f"the partition of {name}", value[1])
        return value

    return ValueKind('a pair ("topic", 0)', fits, take)


def _lowest(default: Any) -> Any:
    return min(default, 0) if isinstance(default, (int, float)) else 0


PAIR: Final = _pair()
ANYTHING: Final = ValueKind("anything", lambda _: True, _as_it_is)
TEXT: Final = _text()
PATH: Final = ValueKind("a path", lambda value: isinstance(value, str) or hasattr(value, "__fspath__"), _check_path)
WHOLE_NUMBER: Final = _whole()
WHOLE_INT16: Final = _whole(most=MAX_INT16)
WHOLE_INT32: Final = _whole(most=MAX_INT32)
NUMBER: Final = _number()
FUNCTION: Final = ValueKind("a function", callable, _as_it_is)

_PLAIN: Final[dict[Any, Callable[[Any], ValueKind]]] = {
    Any: lambda _: ANYTHING,
    object: lambda _: ANYTHING,
    None: lambda _: ValueKind("None", lambda value: value is None, _as_it_is),
    type(None): lambda _: ValueKind("None", lambda value: value is None, _as_it_is),
    bool: lambda _: ValueKind("True or False", lambda value: isinstance(value, bool), _as_it_is),
    int: lambda default: _whole(_lowest(default)),
    float: lambda default: _number(_lowest(default)),
    str: lambda default: _text(may_be_empty=default == ""),
}


def is_loopback(host: str) -> bool:
    """Return true for "localhost" and for an address in 127.0.0.0/8 or ::1."""
    import ipaddress  # imported here because few programs need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def nearest(given: str, known: Collection[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to `given`; None if none is similar enough (`cutoff`, 0 to 1)."""
    import difflib  # imported here because only refusals need it

    near = difflib.get_close_matches(given, known, n=1, cutoff=cutoff)
    return near[0] if near else None


def did_you_mean(given: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """Return the end of a refusal: "; did you mean 'NAME'?" with the nearest known name, or ""."""
    near = nearest(given, known, cutoff)
    return "" if near is None else f"; did you mean {near!r}?"
