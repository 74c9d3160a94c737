"""Levels of the broker's loggers, for Kafka's tools (KIP-412).

Loggers have their Python names, such as `fencepost.broker.groups`. `root` stands for `fencepost`; loggers above it
belong to the program. Levels apply to the process, to all its brokers and clients, until it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fencepost.broker.settings.setting import InvalidSetting

__all__ = ["ROOT", "check_levels", "levels", "own_levels", "set_levels"]

ROOT = "root"
_OURS = "fencepost"
_TRACE = 5
_LEVELS: Mapping[str, int] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": _TRACE,
    "WARN": logging.WARNING,
}


def levels() -> dict[str, str]:
    """Return the effective level of each logger."""
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def own_levels() -> dict[str, str]:
    """Return the levels set on loggers themselves, without inherited ones."""
    return {name: _name_of(logger.level) for name, logger in _loggers().items() if logger.level}


def check_levels(wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return the levels. Raises InvalidSetting, in Kafka's words, for an unknown logger or level."""
    known = _loggers()
    for name, level in wanted.items():
        if name not in known:
            raise InvalidSetting(f"Logger {name} does not exist!")
        if level not in _LEVELS:
            raise InvalidSetting(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(_LEVELS)}"
            )
    return wanted


def set_levels(wanted: Mapping[str, str]) -> None:
    """Set the loggers' own levels; every other logger inherits its level."""
    before = own_levels()
    for name, logger in _loggers().items():
        if wanted.get(name) != before.get(name):
            logger.setLevel(_LEVELS[wanted[name]] if name in wanted else logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    ours = {
        name: logger
        for name, logger in sorted(logging.root.manager.loggerDict.items())
        if name.startswith(f"{_OURS}.") and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.getLogger(_OURS), **ours}


def _name_of(level: int) -> str:
    """Return Kafka's name of the nearest level that is not above."""
    return max((number, name) for name, number in _LEVELS.items() if number <= max(level, _TRACE))[1]
