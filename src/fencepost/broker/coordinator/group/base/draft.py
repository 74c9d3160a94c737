"""A copy of a group that a decision changes step by step.

Each record of the decision is replayed on the copy at once, so the next step sees its result. The group itself changes
only when the caller replays the records.
"""

from __future__ import annotations

from typing import Generic

from fencepost.broker.coordinator.group.base.kind import G
from fencepost.broker.coordinator.group.base.records import GroupRecord, LogKey

__all__ = ["Draft"]


class Draft(Generic[G]):
    """A group with the records of one decision. The group is copied before the first record."""

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
