"""How much of a client's requests is taken in, and how many bytes of answers may wait to be taken.

Answers are made when they can be sent. A connection whose client does not take its answers is not listened to until it
does; while all answers together are more than `most_bytes`, fetches are answered with less (one batch at least), and
connections on which nothing has moved for a while are given up, the largest first. Times are of a clock that never goes
back.

Memory for requests that are not whole yet, or that wait for others of their connection, has a bound for all
connections, too. Beyond it only one of these connections is listened to, the oldest, and those that have been at one
request for longest are closed. Connections that hold no such memory are served as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fencepost.broker.connection import Connection

__all__ = ["UNTAKEN_BYTES", "Answers", "Requests", "may_begin"]

UNTAKEN_BYTES = 1 << 20
"""With more than this untaken, nothing else of the connection is handled."""

_MOST_CALLS = 1000
_MOST_REQUEST_BYTES = 64 << 20
_STALLED_MS = 10_000
_FETCH = 1


def may_begin(connection: Connection, frame: memoryview, untaken_bytes: int) -> bool:
    """Whether the next request of a connection is to be handled now.

    Not while its client has not taken what it was answered, while too much of it is unanswered, and for a fetch, whose
    answer may be large, not before everything before it is answered: so there is one such answer at a time.
    """
    calls = connection.calls
    if connection.held is not None:  # one before it is being worked off, or is late
        return False
    if not calls:
        return untaken_bytes <= UNTAKEN_BYTES
    if untaken_bytes > UNTAKEN_BYTES or len(calls) >= _MOST_CALLS:
        return False
    if connection.unanswered_bytes + len(frame) > _MOST_REQUEST_BYTES:
        return False
    is_fetch = len(frame) >= 2 and int.from_bytes(frame[:2], "big") == _FETCH
    return not is_fetch


class Answers:
    """Bytes of answers that were made and not yet taken, by connection."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._untaken: dict[int, int] = {}
        self._moved_ms: dict[int, int] = {}
        self.total = 0

    @property
    def is_scarce(self) -> bool:
        """Whether there are too many."""
        return self.total > self._most_bytes

    @property
    def waiting(self) -> list[int]:
        """The connections that have untaken answers."""
        return list(self._untaken)

    def room(self) -> int:
        """How many bytes a further answer may have."""
        return max(0, self._most_bytes - self.total)

    def note(self, now_ms: int, connection_id: int, untaken_bytes: int) -> None:
        """So much of a connection's answers is untaken now. Less than before means that its client reads."""
        before = self._untaken.get(connection_id, 0)
        self.total += untaken_bytes - before
        if untaken_bytes == 0:
            self._untaken.pop(connection_id, None)
            self._moved_ms.pop(connection_id, None)
            return
        self._untaken[connection_id] = untaken_bytes
        if untaken_bytes < before or connection_id not in self._moved_ms:
            self._moved_ms[connection_id] = now_ms

    def given_up(self, now_ms: int) -> list[int]:
        """The connections to be closed, so that the others get answers; they no longer count."""
        stalled = [each for each, moved_ms in self._moved_ms.items() if moved_ms + _STALLED_MS <= now_ms]
        doomed = []
        for connection_id in sorted(stalled, key=self._untaken.__getitem__, reverse=True):
            if not self.is_scarce:
                break
            self.note(now_ms, connection_id, 0)
            doomed.append(connection_id)
        return doomed


_OLD_MS: Final = 10_000


class Requests:
    """Memory for requests that are unfinished or wait, by connection. `most_bytes`: -1 for no bound."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[int, int] = {}  # in the order in which they began
        self._began_ms: dict[int, int] = {}
        self.total = 0

    @property
    def is_scarce(self) -> bool:
        """Whether there is more than there may be."""
        return 0 <= self._most_bytes < self.total

    @property
    def holders(self) -> list[int]:
        """The connections that hold some."""
        return list(self._held)

    def may_read(self, connection_id: int) -> bool:
        """Whether more of the connection's requests may be read now."""
        return not self.is_scarce or connection_id not in self._held or next(iter(self._held)) == connection_id

    def note(self, now_ms: int, connection_id: int, held_bytes: int, *, finished: bool = False) -> None:
        """So much is held for the connection now. `finished`: a request was finished, so the present one is new."""
        self.total += held_bytes - self._held.get(connection_id, 0)
        if held_bytes == 0 or finished:
            self._held.pop(connection_id, None)
            self._began_ms.pop(connection_id, None)
        if held_bytes:
            self._held[connection_id] = held_bytes
            self._began_ms.setdefault(connection_id, now_ms)

    def given_up(self, now_ms: int) -> list[int]:
        """The connections to be closed, the largest first, so that others have room; they no longer count."""
        old = [each for each, began_ms in self._began_ms.items() if began_ms + _OLD_MS <= now_ms]
        doomed = []
        for connection_id in sorted(old, key=self._held.__getitem__, reverse=True):
            if not self.is_scarce:
                break
            self.note(now_ms, connection_id, 0)
            doomed.append(connection_id)
        return doomed
