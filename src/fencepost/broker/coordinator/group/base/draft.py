"""A group on which the records of one decision are replayed as they are made.

So each step of a decision sees the results of the steps before it. The group itself changes only when the caller
replays the records.
"""

from __future__ import annotations

from typing import Generic

from fencepost.broker.coordinator.group.base.kind import G
from fencepost.broker.coordinator.group.base.records import GroupRecord, LogKey

__all__ = ["Draft"]


class Draft(Generic[G]):
    """A group with the records of one decision. It is copied before the first of them."""

    __slots__ = ("_origin", "group", "records")

    def __init__(self, group: G) -> None:
        self._origin = group
        self.group = group
        self.records: list[GroupRecord] = []

    def write(self, key: LogKey, value: object) -> None:
        """Add a record."""
        if self.group is self._origin:
            self.group = self._origin.copy()
        self.group.replay(key, value)
        self.records.append(GroupRecord(key, value))
