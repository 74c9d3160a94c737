"""Numbers before nouns, and verbs that agree with them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["agreeing", "counted_noun", "noun_for", "share_has"]

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
