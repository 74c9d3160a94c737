"""Fetch sessions (KIP-227), the client's side: one per broker. Requests contain only changes since the last request.

FULL         the next request names every partition; the broker may open a session with its response
INCREMENTAL  the broker stores the list; requests contain new, changed and removed partitions
CLOSED       no further request

A broker without room for sessions responds with session id 0. The next request is then full. It is also full after the
broker has forgotten the session (70), lost count (71) or cannot match topic ids (106).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import UsageError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.states import StateTable, illegal

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
HIGHEST_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = (
    E.FETCH_SESSION_ID_NOT_FOUND,
    E.INVALID_FETCH_SESSION_EPOCH,
    E.FETCH_SESSION_TOPIC_ID_ERROR,
)


class SessionState(Enum):
    """See the module's docstring."""

    FULL = auto()
    INCREMENTAL = auto()
    CLOSED = auto()


class SessionEvent(Enum):
    """Events of a fetch session."""

    GRANTED = auto()  # the response names a session
    REFUSED = auto()  # the response has session id 0
    FORGOTTEN = auto()  # 70, 71, 106
    LOST = auto()  # no response: the broker may have counted the request or not
    CLOSE = auto()


_S = SessionState
_E = SessionEvent


TABLE: Final = StateTable(
    SessionState,
    SessionEvent,
    {
        _S.FULL: {
            _E.GRANTED: _S.INCREMENTAL,
            _E.REFUSED: _S.FULL,
            _E.FORGOTTEN: _S.FULL,
            _E.LOST: _S.FULL,
            _E.CLOSE: _S.CLOSED,
        },
        _S.INCREMENTAL: {
            _E.GRANTED: _S.INCREMENTAL,
            _E.REFUSED: _S.FULL,  # the broker closed it
            _E.FORGOTTEN: _S.FULL,
            _E.LOST: _S.FULL,
            _E.CLOSE: _S.CLOSED,
        },
        _S.CLOSED: {
            _E.GRANTED: _S.CLOSED,  # a late response
            _E.REFUSED: _S.CLOSED,
            _E.FORGOTTEN: _S.CLOSED,
            _E.LOST: _S.CLOSED,
        },
    },
    illegal("a fetch session", UsageError),
)
step: Final = TABLE.step


class PartitionFetch(NamedTuple):
    """The parameters of a fetch from one partition. The next request contains each change."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1


class FetchRequestData(NamedTuple):
    """One request: the session fields, the partitions to name, and those that leave the session."""

    session_id: int
    epoch: int
    partitions: dict[TopicPartition, PartitionFetch]
    forgotten: list[TopicPartition]


class ReadSession:
    """The session with one broker. One request at a time: `plan`, then `answered` or `lost`."""

    def __init__(self) -> None:
        self.state = SessionState.FULL
        self._id = 0
        self._epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, PartitionFetch] = {}  # the partitions in the broker's session

    def plan(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> FetchRequestData:
        """Return the next request for exactly `wanted`. Raises UsageError after `close`."""
        if self.state is SessionState.CLOSED:
            raise UsageError("the fetch session is closed")
        if self.state is SessionState.FULL:
            self._known = dict(wanted)
            # A known id with epoch 0 closes the old session and opens a new session.
            return FetchRequestData(self._id, FIRST_EPOCH, dict(wanted), [])
        changed = {partition: ask for partition, ask in wanted.items() if self._known.get(partition) != ask}
        gone = [partition for partition in self._known if partition not in wanted]
        self._known = dict(wanted)
        return FetchRequestData(self._id, self._epoch, changed, gone)

    def answered(self, error_code: int, session_id: int) -> bool:
        """Process the session fields of a response.

        Return false if it has no data, so that a full request must follow.
        """
        if error_code in SESSION_ERRORS:
            self._restart(SessionEvent.FORGOTTEN, 0 if error_code == E.FETCH_SESSION_ID_NOT_FOUND else self._id)
            return False
        if error_code != 0:
            self._restart(SessionEvent.LOST, self._id)
        elif session_id == 0:
            self._restart(SessionEvent.REFUSED, 0)
        else:
            self._epoch = 1 if self.state is SessionState.FULL or self._epoch == HIGHEST_EPOCH else self._epoch + 1
            self._id = session_id
            self.state = step(self.state, SessionEvent.GRANTED)
        return True

    def lost(self) -> None:
        """Restart the session after a missing or unreadable response."""
        self._restart(SessionEvent.LOST, self._id)

    def forget(self, partition: TopicPartition) -> None:
        """Name this partition again in the next request, because its response was not used, or had an error."""
        if partition in self._known:
            self._known[partition] = PartitionFetch(-1, -1)

    def close(self) -> FetchRequestData | None:
        """Return the request that closes the session at the broker, or None if there is none."""
        open_id = self._id if self.state is SessionState.INCREMENTAL else 0
        if self.state is not SessionState.CLOSED:
            self.state = step(self.state, SessionEvent.CLOSE)
        return FetchRequestData(open_id, FINAL_EPOCH, {}, []) if open_id else None

    def _restart(self, event: SessionEvent, session_id: int) -> None:
        self.state = step(self.state, event)
        self._id, self._epoch, self._known = session_id, FIRST_EPOCH, {}
