"""What a setting is: its name, type, default and range."""

from __future__ import annotations

from enum import IntEnum

from fencepost.values import Value

__all__ = ["InvalidSetting", "Kind", "Setting"]


class InvalidSetting(ValueError):
    """A setting has an unknown name or a value that does not fit it."""


class Kind(IntEnum):
    """Type of a setting's value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Setting(Value):
    """One setting.

    `default` None: there is no value. `low`, `high`: the range of a number; `besides` is allowed outside of it.
    `broker_key` (topics and groups only): the broker setting whose value is the default; where that has none, those of
    `coarser` count, (setting, milliseconds in its unit). `dynamic`: may be changed while the broker runs.
    """

    key: str
    kind: Kind
    default: str | None
    doc: str = ""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    broker_key: str = ""
    coarser: tuple[tuple[str, int], ...] = ()
    dynamic: bool = False
    besides: int | None = None
