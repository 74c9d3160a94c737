"""Share sessions of group members (KIP-932).

The code is pure. A member has one session with a broker. Its records are released when the session ends: closed by the
member, replaced, or with its connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "ShareSession", "ShareSessions"]

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_MOST = 2**31 - 1


@dataclass(slots=True, eq=False)
class ShareSession:
    """A session. `epoch` is the one that the next request must have. `partitions` are in the order of their turn."""

    group_id: str
    member_id: str
    connection_id: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    touched: set[TopicIdPartition] = field(default_factory=set)
    """All partitions of the session so far, including forgotten ones: its records are from these."""

    def update(self, named: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add the partitions that a request names, and remove those that it forgets."""
        for partition in named:
            self.partitions.setdefault(partition)
            self.touched.add(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def next_turn(self) -> list[TopicIdPartition]:
        """Return all partitions, starting with the next one at each call, so that every one is read first in turn."""
        partitions = list(self.partitions)
        if partitions:
            del self.partitions[partitions[0]]
            self.partitions[partitions[0]] = None
        return partitions


class ShareSessions:
    """All sessions, up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return the member's session, or None."""
        return self._sessions.get((group_id, member_id))

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """Return the sessions that were opened on this connection."""
        return [each for each in self._sessions.values() if each.connection_id == connection_id]

    def begin(self, group_id: str, member_id: str, connection_id: int) -> ShareSession | ErrorCode:
        """Open a session in place of the member's current one; SHARE_SESSION_LIMIT_REACHED at the limit."""
        self._sessions.pop((group_id, member_id), None)
        if len(self._sessions) >= self._most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, connection_id)
        return session

    def advance(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """Return the member's session for a request with this epoch; the final epoch does not advance it."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        """End the session."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]
