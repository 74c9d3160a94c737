"""Access to the item of a response whose request asked for a single item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fencepost.errors import ProtocolError

__all__ = ["only"]

T = TypeVar("T")


def only(listed: Sequence[T]) -> T:
    """Return the single item of a response. Raises ProtocolError if the response has none."""
    if not listed:
        raise ProtocolError("the response does not contain the requested item")
    return listed[0]
