"""Escape text from others before it is printed or logged, and put numbers before nouns."""

from __future__ import annotations

__all__ = ["counted_noun", "printable"]


def printable(text: str) -> str:
    """Escape line breaks and control characters, so that a name cannot imitate our output or control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def counted_noun(count: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless there is one: "1 record", "2 records"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
