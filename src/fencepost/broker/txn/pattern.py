"""The patterns of ListTransactions: the part of the regular expressions that RE2 has, refused otherwise."""

from __future__ import annotations

import re

_MAX_LENGTH = 1_000
_NOT_IN_RE2 = re.compile(r"\(\?(?:[=!>#]|<[=!]|P=|\()|\\[1-9]|[*+?}]\+")


class InvalidPattern(ValueError):
    """Not a regular expression, or one with constructs that RE2 does not have."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """For `fullmatch`. Look-around, back references, atomic groups and possessive repeats raise `InvalidPattern`."""
    if len(pattern) > _MAX_LENGTH:
        raise InvalidPattern(f"longer than {_MAX_LENGTH} characters")
    if _NOT_IN_RE2.search(pattern.replace("\\\\", "")):
        raise InvalidPattern("not in RE2: look-around, back reference, atomic group or possessive repeat")
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidPattern(str(error)) from error
