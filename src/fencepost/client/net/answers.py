"""Access to the items of a response, when the request asked for a single one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fencepost.errors import ProtocolError

__all__ = ["only"]

T = TypeVar("T")


def only(listed: Sequence[T]) -> T:
    """The single item that an answer lists. Raises ProtocolError when it lists nothing."""
    if not listed:
        raise ProtocolError("the broker answered, but not what it was asked")
    return listed[0]
