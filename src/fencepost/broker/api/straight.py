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
from fencepost.broker.faults.table import FaultTable
from fencepost.protocol.cursor import Buffer

__all__ = ["PATHS", "Joint", "Straight", "StraightRequests", "joint_path", "may_be_joint", "straight_path"]

_PRODUCE: Final = 0
_PRODUCE_HEAD: Final = b"\x00\x00"
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
    return len(frame) <= _MOST_JOINT_BYTES and frame[:2] == _PRODUCE_HEAD


@cache
def joint_path() -> Joint:
    """Return the straight path of Produce requests of several connections."""
    path: Joint = import_module("fencepost.broker.api.records.produce_joint").take_singles
    return path


class StraightRequests:
    """The requests that take a straight path."""

    def __init__(self, core: Core, faults: FaultTable) -> None:
        self._core = core
        self._faults = faults

    @property
    def possible(self) -> bool:
        """False while ACLs, quotas, fault rules or records in doubt exist, which only the general path supports."""
        core = self._core
        return not (core.rights.enforced or core.settings.quotas or core.doubts.exist or self._faults.requests)

    def take(self, now_ms: int, connection: Connection, frame: memoryview, others: Sequence[Buffer]) -> int:
        """Return the number of requests that the straight path of the API handled; 0 if it cannot take them."""
        path = straight_path(frame[1]) if len(frame) > 1 and not frame[0] else None
        if path is None or connection.login is not None or not self.possible:
            return 0
        count = path(self._core, connection, frame, now_ms, others)
        if count:
            self._core.metrics.straight[frame[1]] += count
        return count

    def take_singles(
        self, now_ms: int, connections: Mapping[int, Connection], requests: Sequence[tuple[int, Buffer]]
    ) -> list[int]:
        """Take Produce requests of different connections together, unless one must wait for an earlier request.

        Return the numbers of those that were handled.
        """
        free = {
            number: (connection, frame)
            for number, (connection_id, frame) in enumerate(requests)
            if (connection := connections.get(connection_id)) is not None
            and not (connection.calls or connection.held is not None or connection.login is not None)
        }
        if len(free) < 2 or straight_path(_PRODUCE) is None:
            return []
        handled = joint_path()(self._core, free, now_ms)
        self._core.metrics.straight[_PRODUCE] += len(handled)
        return handled
