"""One row for each setting of a client: default, description, range, and the names and values of other clients.

A field of a class in `config.py` is declared with `setting()`. The checks, the spelling of other clients, the text of a
configuration without secrets, and the page docs/client-settings.md are derived from it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Never, TypeVar, dataclass_transform, get_args, get_origin

from fencepost.arguments import MAX_INT64, brief_repr, text_flaw
from fencepost.errors import ConfigurationError

__all__ = [
    "FrozenSettings",
    "SettingRow",
    "number_in",
    "row",
    "row_of",
    "setting",
    "settings_class",
    "shown",
    "typed",
]

T = TypeVar("T")
Number = TypeVar("Number", int, float)

_KEY: Final = "row"
_SECRETS: Final = ("password", "passphrase", "secret", "key", "jaas", "proxy")


_MUST_BE: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Sequence: "a list",
    Callable: "a function",
    ssl.SSLContext: "an ssl.SSLContext",
}


class SettingRow(NamedTuple):
    """Definition of a setting, apart from its name, type and default.

    Attributes:
        doc: Description for users, with the unit unless the name has it.
        low: Lowest number; None: no range is checked.
        high: Highest number.
        choices: Allowed values; none: all.
        most_bytes: Longest text in UTF-8; None: no limit.
        also: Names in other clients, with underscores.
        reads: Converts other clients' values, or their spelling.
        secret: Error messages and `repr` do not show the value.
    """

    doc: str
    low: int | None = 0
    high: int = MAX_INT64
    choices: tuple[object, ...] = ()
    most_bytes: int | None = None
    also: tuple[str, ...] = ()
    reads: Callable[[Any], Any] | None = None
    secret: bool = False

    def taken(self, name: str, value: Any, hint: Any) -> Any:
        """Return the value in the setting's type. Text is read as in Kafka's properties files.

        Raises:
            ConfigurationError: The value has another type, or is none of the choices.
        """
        if name == "acks" and value == "all":
            value = -1
        if name == "bootstrap_servers":
            return _servers(value)
        try:
            converted = typed(value, hint)
        except ValueError as error:
            raise ConfigurationError(f"{name}={shown(name, value, self)}: {error}") from error
        if self.choices and converted not in self.choices:
            raise ConfigurationError(f"{name}={brief_repr(value)}: one of {', '.join(map(str, self.choices))}")
        return converted

    def check(self, name: str, value: Any) -> None:
        """Check the range of a number or the length of a text. Raises ConfigurationError."""
        if isinstance(value, str):
            if flaw := text_flaw(value, self.most_bytes):
                raise ConfigurationError(f"{name} {flaw}")
        elif isinstance(value, (int, float)) and self.low is not None:
            if value < self.low:
                raise ConfigurationError(f"{name}={value}: must be at least {self.low}")
            if value > self.high:
                raise ConfigurationError(f"{name}={value}: must be at most {self.high}")


def setting(
    default: T,
    doc: str,
    *,
    low: int | None = 0,
    high: int = MAX_INT64,
    choices: tuple[object, ...] = (),
    most_bytes: int | None = None,
    also: tuple[str, ...] = (),
    reads: Callable[[Any], Any] | None = None,
    secret: bool = False,
) -> T:
    """Return a field of a configuration. Its type is that of the default, as type checkers see a field with one."""
    setting_row = SettingRow(doc, low, high, choices, most_bytes, also, reads, secret)
    return field(default=default, repr=not secret, metadata={_KEY: setting_row})


class FrozenSettings:
    """Base class of configurations. It has the methods that a frozen data class would compile for each of them.

    Compiling them would take a fifth of the import of a client.
    """

    def __init__(self, bootstrap_servers: Any = MISSING, /, **given: Any) -> None:
        kind: Any = type(self)
        defaults = _defaults(kind)
        if unknown := given.keys() - defaults.keys():
            raise TypeError(f"{kind.__qualname__} has no setting {min(unknown)!r}")
        values = defaults | {"bootstrap_servers": bootstrap_servers} | given
        if missing := [name for name, value in values.items() if value is MISSING]:
            raise TypeError(f"{kind.__qualname__} needs {missing[0]}")
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return NotImplemented if type(self) is not type(other) else self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        declared = fields(self)  # type: ignore[arg-type]
        found = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in declared if each.repr)
        return f"{type(self).__qualname__}({found})"

    def __setattr__(self, name: str, value: object) -> Never:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> Never:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def settings_class(cls: type[T]) -> type[T]:
    """Make a subclass of FrozenSettings a data class, whose fields are settings."""
    return dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return the default of each setting of a configuration, or MISSING."""
    return {declared.name: declared.default for declared in fields(kind)}


def row(doc: str, also: tuple[str, ...] = ()) -> Mapping[str, SettingRow]:
    """Return the metadata of a field without a default, which `dataclasses.field` has to make."""
    return {_KEY: SettingRow(doc, also=also)}


def row_of(declared: Field[Any]) -> SettingRow:
    """Return the row of a configuration's field."""
    found: SettingRow = declared.metadata[_KEY]
    return found


def shown(name: str, value: object, of: SettingRow | None) -> str:
    """Return a value as error messages show it: without secrets.

    Args:
        name: Name of the setting in any client.
        value: Its value.
        of: The setting's row; None: it is another client's and has no row. The name then tells whether it is secret.
    """
    secret = of.secret if of is not None else any(word in name for word in _SECRETS)
    return "..." if secret else brief_repr(value)


def typed(value: Any, hint: Any) -> Any:
    """Return the value in the first type of the hint that accepts it.

    Raises:
        ValueError: No type accepts it.
    """
    arms = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None and NoneType in arms:
        return None
    for arm in arms:
        try:
            return _as(arm, value)
        except (OverflowError, ValueError):
            continue
    raise ValueError(f"must be {' or '.join(_must_be(arm) for arm in arms if arm is not NoneType)}")


def _must_be(arm: Any) -> str:
    return f"{_MUST_BE[get_origin(arm) or arm]}{' of text' if arm == Sequence[str] else ''}"


def _as(arm: Any, value: Any) -> Any:
    """Return the value in one type of a hint. Raises OverflowError or ValueError."""
    kind = get_origin(arm) or arm
    if kind is bool and isinstance(value, (bool, str)) and (text := str(value).strip().lower()) in {"true", "false"}:
        return text == "true"
    if kind in {int, float} and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        number = number_in(value, kind) if isinstance(value, str) else kind(value)
        if isinstance(value, str) or number == value:
            return number
    if kind is Sequence and isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Mapping)):
        items = tuple(map(str.strip, value.split(","))) if isinstance(value, str) else tuple(value)
        if arm != Sequence[str] or all(isinstance(item, str) for item in items):
            return items
    if callable(value) if kind is Callable else kind in {str, ssl.SSLContext} and isinstance(value, kind):
        return value
    raise ValueError(f"no {kind}: {brief_repr(value)}")


def number_in(text: str, kind: type[Number] = int) -> Number:
    """Return the number in a text. Raises ValueError, also for 1_000, which Python reads and other clients refuse."""
    if "_" in text:
        raise ValueError(f"{brief_repr(text)} is not a number")
    return kind(text)


def _servers(value: Any) -> str | tuple[str, ...]:
    """Return the addresses of `bootstrap_servers`, not parsed yet. Raises ConfigurationError."""
    if isinstance(value, Mapping):
        raise ConfigurationError(
            "bootstrap_servers is a dict; settings in a dict are for from_config, as in "
            "from_config({'bootstrap.servers': ...}); "
            "the constructor takes addresses and keyword arguments, as in ('localhost:9092', client_id='me')"
        )
    given = value if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
    if isinstance(value, bytes) or not given or not all(isinstance(server, str) for server in given):
        raise ConfigurationError(
            f'bootstrap_servers={brief_repr(value)}: "host:port,host:port", or a list of "host:port"'
        )
    return given
