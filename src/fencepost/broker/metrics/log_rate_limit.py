"""Rate limits for log lines that clients can cause: the first at once, then one per interval for all events."""

from __future__ import annotations

from typing import Final

from fencepost.counted import agreeing, counted_noun

__all__ = ["RateLimit", "RateLimits", "SubjectRateLimits"]

_MOST: Final = 1_000


class RateLimit:
    """Limit of one line per `interval_ms`."""

    __slots__ = ("_interval_ms", "_next_ms", "_suppressed")

    def __init__(self, interval_ms: int = 10_000) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None
        self._suppressed = 0

    def hit(self, now_ms: int) -> int:
        """Count an event. Return the number of events since the last line if a line is due, else 0."""
        self._suppressed += 1
        if self._next_ms is not None and now_ms < self._next_ms:
            return 0
        self._next_ms = now_ms + self._interval_ms
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


class _Budget:
    """Limit of `most` lines per `interval_ms`, on any subject."""

    __slots__ = ("_ends_ms", "_interval_ms", "_left", "_most", "_suppressed")

    def __init__(self, most: int, interval_ms: int = 10_000) -> None:
        self._most = most
        self._interval_ms = interval_ms
        self._ends_ms: int | None = None
        self._left = most
        self._suppressed = 0

    def hit(self, now_ms: int) -> int | None:
        """Ask to log a line. Return None if it must be dropped, else the number of lines dropped since the last one."""
        if self._ends_ms is None or now_ms >= self._ends_ms:
            self._ends_ms = now_ms + self._interval_ms
            self._left = self._most
        if not self._left:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


class RateLimits:
    """A limit per subject. Above _MOST subjects, the least recent one is forgotten, and then logged at once again."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, ...], RateLimit] = {}

    def hit(self, now_ms: int, *subject: str) -> int:
        """Count an event of a subject, like `RateLimit.hit`."""
        pace = self._paces.pop(subject, None) or RateLimit()
        self._paces[subject] = pace
        if len(self._paces) > _MOST:
            del self._paces[next(iter(self._paces))]
        return pace.hit(now_ms)


class SubjectRateLimits:
    """A limit per subject, and one for all, because clients choose subjects: `most` lines per interval.

    `about` names all subjects in the message about lines that were left out.
    """

    def __init__(self, about: str, most: int = 20) -> None:
        self._about = about
        self._paces = RateLimits()
        self._budget = _Budget(most)

    def hit(self, now_ms: int, *subject: str) -> str | None:
        """Count an event. Return the end of its line, which names what was left out, or None if no line is due."""
        times = self._paces.hit(now_ms, *subject)
        suppressed = self._budget.hit(now_ms) if times else None
        if suppressed is None:
            return None
        again = f"; {times} times since the last such message" if times > 1 else ""
        more = (
            f"; {counted_noun(suppressed, 'message')} about other {self._about} "
            f"{agreeing(suppressed, 'were')} suppressed"
            if suppressed
            else ""
        )
        return again + more
