"""The straight paths: for the common form of the most frequent requests, one function from the frame to the answer.

A straight path checks every precondition before it changes anything and returns false where one does not hold; the
request then takes the general path (decode, rules, handler, encode). It changes the same objects through the same
methods, so a decision stands in one place. The simulator runs histories with and without them and compares every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Final

from fencepost.broker.connection import Connection, Core
from fencepost.protocol.cursor import Buffer

__all__ = ["PATHS", "Joint", "Straight", "joint_path", "may_be_joint", "straight_path"]

_PRODUCE: Final = b"\x00\x00"
_MOST_JOINT_BYTES: Final = 4096

Straight = Callable[[Core, Connection, memoryview, int, Sequence[Buffer]], int]
"""Handles a request, given the core, the connection, the frame, the time in ms, and the next frames of the connection.

It returns the number of requests that it handled: 0, 1, or more if some of the next ones were handled together with it.
"""

Joint = Callable[[Core, Mapping[int, tuple[Connection, Buffer]], int], list[int]]
"""Handles requests of different connections, given (connection, frame) by number, and the time in ms.

It returns the numbers of those that it handled, in that order.
"""

PATHS: Final[dict[int, str]] = {0: "records.produce_straight"}
"""Module below `broker/api`, by API key. It is imported with the API's first request."""


@cache
def straight_path(key: int) -> Straight | None:
    """Return the straight path of an API, or None."""
    return import_module(f"fencepost.broker.api.{PATHS[key]}").take if key in PATHS else None


def may_be_joint(frame: Buffer) -> bool:
    """Return true if a joint append may save time for this request: it is a small one of Produce."""
    return len(frame) <= _MOST_JOINT_BYTES and frame[:2] == _PRODUCE


@cache
def joint_path() -> Joint:
    """Return the straight path of Produce requests of several connections."""
    path: Joint = import_module("fencepost.broker.api.records.produce_joint").take_singles
    return path
