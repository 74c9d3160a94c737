"""The straight paths: for the common form of the most frequent requests, one function from the frame to the answer.

A straight path checks every precondition before it changes anything and returns false where one does not hold; the
request then takes the general path (decode, rules, handler, encode). It changes the same objects through the same
methods, so a decision stands in one place. The simulator runs histories with and without them and compares every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Final

from fencepost.broker.connection import Connection, Core
from fencepost.protocol.cursor import Buffer

__all__ = ["PATHS", "Straight", "straight_path"]

Straight = Callable[[Core, Connection, memoryview, int, Sequence[Buffer]], int]
"""Handles a request, given the core, the connection, the frame, the time in ms, and the next frames of the connection.

It returns the number of requests that it handled: 0, 1, or more if some of the next ones were handled together with it.
"""

PATHS: Final[dict[int, str]] = {0: "records.produce_straight"}
"""Module below `broker/api`, by API key. It is imported with the API's first request."""


@cache
def straight_path(key: int) -> Straight | None:
    """Return the straight path of an API, or None."""
    return import_module(f"fencepost.broker.api.{PATHS[key]}").take if key in PATHS else None
