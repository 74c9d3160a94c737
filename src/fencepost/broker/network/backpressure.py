"""Back-pressure: limits for unread responses and for incomplete requests.

A response is built when it can be sent. While a client does not read its responses, the broker does not read its
requests. If all unread responses together exceed `most_bytes`, fetches return less (at least one batch), and
connections without progress for some time are closed, the largest first.

Memory for requests that are incomplete, or wait for earlier ones of their connection, has a limit over all connections.
Above it, the broker reads from only one of these connections, the oldest, and closes those that have been at one
request for the longest time. Connections that hold no such memory are not affected. Times are from a monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fencepost.broker.connection import Connection
    from fencepost.protocol.cursor import Buffer

__all__ = ["MOST_UNREAD_BYTES", "PendingRequests", "UnreadResponses", "may_begin"]

MOST_UNREAD_BYTES = 1 << 20
"""With more unread bytes than this, no further request of the connection is handled."""

_MOST_CALLS = 1000
_MOST_REQUEST_BYTES = 64 << 20
_STALLED_MS = 10_000
_FETCH = 1


def may_begin(connection: Connection, frame: Buffer, unread_bytes: int) -> bool:
    """Return true if the next request of a connection may be handled now.

    It may not while the client has too many unread responses or unanswered requests. A fetch also waits until
    everything before it has been answered, because its response may be large.
    """
    calls = connection.calls
    if connection.held is not None:  # an earlier request is in progress
        return False
    if not calls:
        return unread_bytes <= MOST_UNREAD_BYTES
    if unread_bytes > MOST_UNREAD_BYTES or len(calls) >= _MOST_CALLS:
        return False
    if connection.unanswered_bytes + len(frame) > _MOST_REQUEST_BYTES:
        return False
    is_fetch = len(frame) >= 2 and int.from_bytes(frame[:2], "big") == _FETCH
    return not is_fetch


class UnreadResponses:
    """Bytes of responses that clients have not read, by connection."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._unread: dict[int, int] = {}
        self._moved_ms: dict[int, int] = {}
        self.total = 0

    @property
    def is_scarce(self) -> bool:
        """True above the limit."""
        return self.total > self._most_bytes

    @property
    def waiting(self) -> list[int]:
        """Connections with unread responses."""
        return list(self._unread)

    def room(self) -> int:
        """Return the bytes left for a further response."""
        return max(0, self._most_bytes - self.total)

    def note(self, now_ms: int, connection_id: int, unread_bytes: int) -> None:
        """Record a connection's number of unread bytes. A smaller number than before shows that the client reads."""
        before = self._unread.get(connection_id, 0)
        self.total += unread_bytes - before
        if unread_bytes == 0:
            self._unread.pop(connection_id, None)
            self._moved_ms.pop(connection_id, None)
            return
        self._unread[connection_id] = unread_bytes
        if unread_bytes < before or connection_id not in self._moved_ms:
            self._moved_ms[connection_id] = now_ms

    def given_up(self, now_ms: int) -> list[int]:
        """Remove and return the connections to close, so that there is memory for the others."""
        stalled = [each for each, moved_ms in self._moved_ms.items() if moved_ms + _STALLED_MS <= now_ms]
        doomed = []
        for connection_id in sorted(stalled, key=self._unread.__getitem__, reverse=True):
            if not self.is_scarce:
                break
            self.note(now_ms, connection_id, 0)
            doomed.append(connection_id)
        return doomed


_OLD_MS: Final = 10_000


class PendingRequests:
    """Memory of incomplete and waiting requests, by connection. `most_bytes` -1 means no limit."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[int, int] = {}  # in order of their beginning
        self._began_ms: dict[int, int] = {}
        self.total = 0

    @property
    def is_scarce(self) -> bool:
        """True above the limit."""
        return 0 <= self._most_bytes < self.total

    @property
    def holders(self) -> list[int]:
        """Connections that hold memory."""
        return list(self._held)

    @property
    def oldest(self) -> int | None:
        """The only one of these connections that is read from. None while memory is not scarce: all are."""
        return next(iter(self._held)) if self.is_scarce else None

    def may_read(self, connection_id: int) -> bool:
        """Return true if more of the connection's requests may be read now."""
        return self.oldest in (None, connection_id) or connection_id not in self._held

    def note(self, now_ms: int, connection_id: int, held_bytes: int, *, finished: bool = False) -> None:
        """Record a connection's memory. With `finished` a request has completed, so the current one is new."""
        self.total += held_bytes - self._held.get(connection_id, 0)
        if held_bytes == 0 or finished:
            self._held.pop(connection_id, None)
            self._began_ms.pop(connection_id, None)
        if held_bytes:
            self._held[connection_id] = held_bytes
            self._began_ms.setdefault(connection_id, now_ms)

    def given_up(self, now_ms: int) -> list[int]:
        """Remove and return the connections to close, the largest first, so that there is memory for the others."""
        old = [each for each, began_ms in self._began_ms.items() if began_ms + _OLD_MS <= now_ms]
        doomed = []
        for connection_id in sorted(old, key=self._held.__getitem__, reverse=True):
            if not self.is_scarce:
                break
            self.note(now_ms, connection_id, 0)
            doomed.append(connection_id)
        return doomed
