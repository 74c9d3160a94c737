"""Text of others, for a terminal or a log: shown, and not carried out."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Line breaks and other control characters are escaped: a name that somebody has chosen is to look like no line of
    ours, and to do nothing to a terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
