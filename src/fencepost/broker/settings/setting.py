"""Definition of a setting: name, type, default and range."""

from __future__ import annotations

from enum import IntEnum

from fencepost.values import Value

__all__ = ["InvalidSetting", "Kind", "Setting"]


class InvalidSetting(ValueError):
    """A setting has an unknown name or an invalid value."""


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
    """A setting.

    Attributes:
        key: Kafka's name.
        kind: Type of the value.
        default: Default value as text; None: no value.
        doc: Description for users.
        low: Lowest number.
        high: Highest number.
        choices: Allowed values.
        broker_key: Broker setting with the default of a topic's or group's setting.
        coarser: (setting, milliseconds in its unit) used if `broker_key` has no value.
        dynamic: The setting can change while the broker runs.
        besides: Allowed number outside of the range.
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
