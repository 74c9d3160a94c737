"""Rate limits for log lines that clients can cause: the first at once, then one per interval for all events."""

from __future__ import annotations

from typing import Final

__all__ = ["Budget", "Pace", "Paces"]

_MOST: Final = 1_000


class Pace:
    """Limit of one line per `interval_ms`."""

    __slots__ = ("_interval_ms", "_next_ms", "_untold")

    def __init__(self, interval_ms: int = 10_000) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None
        self._untold = 0

    def hit(self, now_ms: int) -> int:
        """Count an event. Return the number of events since the last line if a line is due, else 0."""
        self._untold += 1
        if self._next_ms is not None and now_ms < self._next_ms:
            return 0
        self._next_ms = now_ms + self._interval_ms
        told, self._untold = self._untold, 0
        return told


class Budget:
    """Limit of `most` lines per `interval_ms`, on any subject."""

    __slots__ = ("_ends_ms", "_interval_ms", "_left", "_most", "_untold")

    def __init__(self, most: int, interval_ms: int = 10_000) -> None:
        self._most = most
        self._interval_ms = interval_ms
        self._ends_ms: int | None = None
        self._left = most
        self._untold = 0

    def hit(self, now_ms: int) -> int | None:
        """Ask to log a line. Return None if it must be dropped, else the number of lines dropped since the last one."""
        if self._ends_ms is None or now_ms >= self._ends_ms:
            self._ends_ms = now_ms + self._interval_ms
            self._left = self._most
        if not self._left:
            self._untold += 1
            return None
        self._left -= 1
        untold, self._untold = self._untold, 0
        return untold


class Paces:
    """A limit per subject. Above _MOST subjects, the least recent one is forgotten, and then logged at once again."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, ...], Pace] = {}

    def hit(self, now_ms: int, *subject: str) -> int:
        """Count an event of a subject, like `Pace.hit`."""
        pace = self._paces.pop(subject, None) or Pace()
        self._paces[subject] = pace
        if len(self._paces) > _MOST:
            del self._paces[next(iter(self._paces))]
        return pace.hit(now_ms)
