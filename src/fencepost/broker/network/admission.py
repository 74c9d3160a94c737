"""Admission of new connections, and the idle limit.

If all connections are in use, an old connection is closed for a new one. The first choice is the oldest that has never
sent a request as an authenticated client, so that a client that only opens connections displaces its own. Otherwise it
is the connection that has been unused for the longest time, if that is at least a minute. Clients reconnect when they
need to. Times are from a monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

__all__ = ["Admission", "Admitted", "connections_for"]

_RESERVE = 64
_UNUSED_MS = 60_000


def connections_for(descriptors: int, files: int) -> int:
    """Return the number of connections that the file descriptors allow, besides `files` open files and a reserve.

    The reserve is for listeners, syncs and small files that are replaced.
    """
    return max(1, descriptors - files - min(_RESERVE, descriptors // 4))


class Admitted(NamedTuple):
    """Result for a new connection.

    `refusal` is the reason to close it; `displaced` is the id of another one to close.
    """

    refusal: str | None = None
    displaced: int | None = None


class Admission:
    """Limits: `most` connections in all, `most_per_host` from one address, and `idle_ms` without use, -1 for none."""

    def __init__(self, most: int, most_per_host: int, idle_ms: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._idle_ms = idle_ms
        self._used_ms: dict[int, int] = {}  # in order of last use
        self._host: dict[int, str] = {}
        self._by_host: Counter[str] = Counter()
        self._silent: dict[int, None] = {}  # connections without a request yet, in order of arrival

    def __len__(self) -> int:
        return len(self._used_ms)

    def enter(self, now_ms: int, connection_id: int, host: str) -> Admitted:
        """Admit or refuse a new connection. An admitted one counts from now on; a displaced one no longer does."""
        if self._by_host[host] >= self._most_per_host:
            return Admitted(f"{host} has {self._by_host[host]} connections (max.connections.per.ip)")
        displaced = None
        if len(self._used_ms) >= self._most:
            displaced = next(iter(self._silent), None)
            if displaced is None:
                longest, used_ms = next(iter(self._used_ms.items()))
                displaced = longest if used_ms + _UNUSED_MS <= now_ms else None
            if displaced is None:
                return Admitted(f"there are {len(self._used_ms)} connections (max.connections, or descriptors)")
            self.leave(displaced)
        self._used_ms[connection_id] = now_ms
        self._host[connection_id] = host
        self._by_host[host] += 1
        self._silent[connection_id] = None
        return Admitted(displaced=displaced)

    def used(self, now_ms: int, connection_id: int, *, is_request: bool) -> None:
        """Record a response, or with `is_request` a request of an authenticated client."""
        before_ms = self._used_ms.get(connection_id)
        if before_ms is None:
            return
        if before_ms != now_ms:  # most responses follow their request at once
            del self._used_ms[connection_id]
            self._used_ms[connection_id] = now_ms
        if is_request and self._silent:
            self._silent.pop(connection_id, None)

    def leave(self, connection_id: int) -> None:
        """Remove a connection that is closed or will be."""
        if self._used_ms.pop(connection_id, None) is None:
            return
        self._silent.pop(connection_id, None)
        host = self._host.pop(connection_id)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def idle(self, now_ms: int) -> list[int]:
        """Remove and return the connections that exceed the idle limit, the longest idle first."""
        found: list[int] = []
        if self._idle_ms < 0:
            return found
        for connection_id, used_ms in self._used_ms.items():
            if used_ms + self._idle_ms > now_ms:
                break
            found.append(connection_id)
        for connection_id in found:
            self.leave(connection_id)
        return found

    def next_ms(self) -> int | None:
        """Return the time at which `idle` next returns a connection, if none is used until then."""
        if self._idle_ms < 0:
            return None
        return next((used_ms + self._idle_ms for used_ms in self._used_ms.values()), None)
