"""Durations for people, all in one style. The page has the same rule (`lasting` in views.js)."""

from __future__ import annotations

from typing import Final

__all__ = ["duration_words"]

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def duration_words(ms: float) -> str:
    """Return a duration in its two largest units: "850 ms", "1.5 s", "42 s", "10 min 5 s", "3 h", "2 d 1 h"."""
    whole = max(round(ms), 0)
    if whole < 1000:
        return f"{whole} ms" if whole else "0 s"
    if whole < 9_950:
        return f"{whole / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(whole / 1000)
    for size, unit, part, name in _UNITS:
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{seconds} s"
