"""Rate limits for log lines that clients can cause: the first at once, then one per interval for all events."""

from __future__ import annotations

from typing import Final

__all__ = ["Lines", "Pace", "Paces"]

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


class _Budget:
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


class Lines:
    """A limit per subject, and one for all, because clients choose subjects: `most` lines per interval.

    `about` names all subjects in the message about lines that were left out.
    """

    def __init__(self, about: str, most: int = 20) -> None:
        self._about = about
        self._paces = Paces()
        self._budget = _Budget(most)

    def hit(self, now_ms: int, *subject: str) -> str | None:
        """Count an event. Return the end of its line, which names what was left out, or None if no line is due."""
        times = self._paces.hit(now_ms, *subject)
        untold = self._budget.hit(now_ms) if times else None
        if untold is None:
            return None
        again = f"; {times} times since the last such message" if times > 1 else ""
        more = f"; {untold} messages about other {self._about} were suppressed" if untold else ""
        return again + more
