"""Numbers before nouns."""

from __future__ import annotations

__all__ = ["counted_noun", "share_has"]


def counted_noun(count: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless there is one: "1 record", "2 records"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def share_has(count: int, total: int, noun: str) -> str:
    """Return a share with its verb: "1 of 3 records has", "2 of 3 records have"."""
    return f"{count} of {counted_noun(total, noun)} {'has' if count == 1 else 'have'}"
