"""The deadlines of groups."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from fencepost.broker.coordinator.group.base.requests import GroupResult

__all__ = ["Deadline", "DeadlineKind", "Failed", "run_deadline"]

Failed = Callable[[str, Exception], None]
"""Called with a group's id and the exception that a decision about it raised."""


class DeadlineKind(IntEnum):
    """The kind of a deadline."""

    JOIN = 0  # the join phase of a group
    SYNC = 1  # the sync phase of a group
    SESSION = 2  # a member
    REVOCATION = 3  # the time a member has to give back its partitions or tasks
    OFFSETS = 4  # the pause between two searches for expired offsets


class Deadline(NamedTuple):
    """Identity of a deadline. `owner` is the name of the group kind. Unused parts are empty."""

    owner: str
    kind: DeadlineKind
    group_id: str = ""
    member_id: str = ""


def run_deadline(action: Callable[[], None], group_id: str, out: GroupResult[None], failed: Failed | None) -> bool:
    """Run the action. Return false if it raised an exception.

    After an exception, remove the records and replies that the action added to `out`, and call `failed`. Without
    `failed` the exception is raised.
    """
    records, replies = len(out.records), len(out.replies)
    try:
        action()
    except Exception as error:
        if failed is None:
            raise
        del out.records[records:], out.replies[replies:]
        failed(group_id, error)
        return False
    return True
