"""Sessions of members of share groups (KIP-932): which partitions a member reads, by which rules it goes on. Pure.

A member has one session with a broker. What it was handed out comes back when the session ends: closed by the member,
replaced, or gone with its connection.
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
    """One session. `epoch`: the one that the next request has to come with. `partitions` are in order of their turn."""

    group_id: str
    member_id: str
    connection_id: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    touched: set[TopicIdPartition] = field(default_factory=set)
    """All it has ever read: what was handed out comes from these, forgotten ones included."""

    def update(self, named: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Take in what a request names and let go what it forgets."""
        for partition in named:
            self.partitions.setdefault(partition)
            self.touched.add(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def next_turn(self) -> list[TopicIdPartition]:
        """The partitions; the next answer begins with the next of them, so that none starves."""
        partitions = list(self.partitions)
        if partitions:
            del self.partitions[partitions[0]]
            self.partitions[partitions[0]] = None
        return partitions


class ShareSessions:
    """All sessions, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        """The session of that member."""
        return self._sessions.get((group_id, member_id))

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """The sessions that were begun on that connection."""
        return [each for each in self._sessions.values() if each.connection_id == connection_id]

    def begin(self, group_id: str, member_id: str, connection_id: int) -> ShareSession | ErrorCode:
        """A new session in the place of the one the member has; SHARE_SESSION_LIMIT_REACHED when there is no room."""
        self._sessions.pop((group_id, member_id), None)
        if len(self._sessions) >= self._most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, connection_id)
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """The member's session, for a request with that epoch; the last one leaves the epoch as it is."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        """The session is over."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]
