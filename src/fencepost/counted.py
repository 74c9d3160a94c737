"""Numbers before nouns, verbs that agree with them, and durations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["agreeing", "counted_noun", "duration_words", "noun_for", "share_has", "some_of"]

_DURATIONS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_SINGULAR: Final = {
    "are": "is",
    "were": "was",
    "have": "has",
    "they": "it",
    "they have": "it has",
    "them": "it",
}


def noun_for(count: int, noun: str) -> str:
    """Return the noun, in the plural unless there is one: "record", "records", "batches", "entries"."""
    if count == 1:
        return noun
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search("(s|x|ch|sh)$", noun) else f"{noun}s"


def agreeing(count: int, plural: str) -> str:
    """Return the verb or pronoun, given in the plural, for this number: "waits" for 1, "wait" for 2."""
    return plural if count != 1 else _SINGULAR.get(plural, f"{plural}s")


def counted_noun(count: int, noun: str, verb: str = "") -> str:
    """Return the number with the noun, and with the verb (given in the plural): "1 record waits", "2 records wait"."""
    words = f"{count} {noun_for(count, noun)}"
    return f"{words} {agreeing(count, verb)}" if verb else words


def share_has(count: int, total: int, noun: str) -> str:
    """Return a share with its verb: "1 of 3 records has", "2 of 3 records have"."""
    return f"{count} of {counted_noun(total, noun)} {agreeing(count, 'have')}"


def duration_words(ms: float) -> str:
    """Return a duration in its two largest units: "850 ms", "1.5 s", "42 s", "10 min 5 s", "3 h", "2 d 1 h".

    The page has the same rule (`lasting` in views.js).
    """
    whole = max(round(ms), 0)
    if whole < 1000:
        return f"{whole} ms" if whole else "0 s"
    if whole < 9_950:
        return f"{whole / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(whole / 1000)
    for size, unit, part, name in _DURATIONS:
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{seconds} s"


def some_of(names: Sequence[str], most: int) -> str:
    """Return at most `most` names, and the number of the others."""
    return ", ".join(names[:most]) + (f", and {len(names) - most} more" if len(names) > most else "")
