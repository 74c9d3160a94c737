"""Log lines about what a client can cause at will: the first at once, then one for all that came meanwhile."""

from __future__ import annotations

from typing import Final

__all__ = ["Budget", "Pace", "Paces"]

_MOST: Final = 1_000


class Pace:
    """At most one line per `interval_ms`."""

    __slots__ = ("_interval_ms", "_next_ms", "_untold")

    def __init__(self, interval_ms: int = 10_000) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None
        self._untold = 0

    def hit(self, now_ms: int) -> int:
        """It happened. How many times it has since the last line, if a line is due; else 0."""
        self._untold += 1
        if self._next_ms is not None and now_ms < self._next_ms:
            return 0
        self._next_ms = now_ms + self._interval_ms
        told, self._untold = self._untold, 0
        return told


class Budget:
    """At most `most` lines per `interval_ms`, whatever they are about."""

    __slots__ = ("_ends_ms", "_interval_ms", "_left", "_most", "_untold")

    def __init__(self, most: int, interval_ms: int = 10_000) -> None:
        self._most = most
        self._interval_ms = interval_ms
        self._ends_ms: int | None = None
        self._left = most
        self._untold = 0

    def hit(self, now_ms: int) -> int | None:
        """A line is due. None where it is to be left out, else how many were left out since the last one."""
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
    """A pace for each subject. Of very many those are forgotten that were met longest ago, and told at once again."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, ...], Pace] = {}

    def hit(self, now_ms: int, *subject: str) -> int:
        """As `Pace.hit`, of this subject."""
        pace = self._paces.pop(subject, None) or Pace()
        self._paces[subject] = pace
        if len(self._paces) > _MOST:
            del self._paces[next(iter(self._paces))]
        return pace.hit(now_ms)
