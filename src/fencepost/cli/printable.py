"""Escape text from others before it is printed or logged."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Escape line breaks and control characters, so that a name cannot imitate our output or control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
