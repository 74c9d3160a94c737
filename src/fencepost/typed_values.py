"""Conversion of a setting's value to the type of its annotation. Text is read as in Kafka's properties files."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

__all__ = ["typed"]

_MUST_BE: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Sequence: "a list",
    Callable: "a function",
    ssl.SSLContext: "an ssl.SSLContext",
}


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
        number = kind(value)
        if isinstance(value, str) or number == value:
            return number
    if kind is Sequence and isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, Mapping)):
        items = tuple(map(str.strip, value.split(","))) if isinstance(value, str) else tuple(value)
        if arm != Sequence[str] or all(isinstance(item, str) for item in items):
            return items
    if callable(value) if kind is Callable else kind in {str, ssl.SSLContext} and isinstance(value, kind):
        return value
    raise ValueError(f"no {kind}: {value!r}")
