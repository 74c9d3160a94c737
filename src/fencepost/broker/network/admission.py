"""Who may be connected, and for how long without a word.

Times are of a clock that never goes back. Where there is no room, an old connection gives way to it: the oldest that
has never asked anything as somebody known, so that whoever opens connections and says nothing displaces himself; else
the longest unused, if that is a minute. Clients connect again when they need to.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

__all__ = ["Admission", "Admitted", "connections_for"]

_RESERVE = 64
_UNUSED_MS = 60_000


def connections_for(descriptors: int, files: int) -> int:
    """How many connections a process may have: what is left of its descriptors beside `files` and a reserve.

    The reserve is for listeners, syncs, small files that are replaced, and whatever else the process opens.
    """
    return max(1, descriptors - files - min(_RESERVE, descriptors // 4))


class Admitted(NamedTuple):
    """What becomes of a new connection. `refusal`: why it is to be closed; `displaced`: another one that is."""

    refusal: str | None = None
    displaced: int | None = None


class Admission:
    """`most` connections in all, `most_per_host` from one address, none longer than `idle_ms` without use."""

    def __init__(self, most: int, most_per_host: int, idle_ms: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._idle_ms = idle_ms
        self._used_ms: dict[int, int] = {}  # in the order of last use
        self._host: dict[int, str] = {}
        self._by_host: Counter[str] = Counter()
        self._silent: dict[int, None] = {}  # in the order they came

    def __len__(self) -> int:
        return len(self._used_ms)

    def enter(self, now_ms: int, connection_id: int, host: str) -> Admitted:
        """Somebody has connected. Unless refused it counts from now on; the displaced connection no longer does."""
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

    def used(self, now_ms: int, connection_id: int, *, asked: bool) -> None:
        """Something was asked, by somebody who is known (`asked`), or answered on the connection."""
        if self._used_ms.pop(connection_id, None) is not None:
            self._used_ms[connection_id] = now_ms
            if asked:
                self._silent.pop(connection_id, None)

    def leave(self, connection_id: int) -> None:
        """The connection is gone, or will be."""
        if self._used_ms.pop(connection_id, None) is None:
            return
        self._silent.pop(connection_id, None)
        host = self._host.pop(connection_id)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def idle(self, now_ms: int) -> list[int]:
        """Those that were not used for too long, longest first; they no longer count."""
        found = []
        for connection_id, used_ms in self._used_ms.items():
            if used_ms + self._idle_ms > now_ms:
                break
            found.append(connection_id)
        for connection_id in found:
            self.leave(connection_id)
        return found

    def next_ms(self) -> int | None:
        """When `idle` has something to say, if nothing is used until then."""
        return next((used_ms + self._idle_ms for used_ms in self._used_ms.values()), None)
