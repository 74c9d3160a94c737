"""The broker's time: the system's, until somebody moves it or makes it stand still.

It follows the system's clock forward, at once: a machine that started with a slow clock, or was suspended, must not
refuse records for their timestamps until the broker is restarted. It never goes back: then it runs on by itself, ahead
of the system's, until that has caught up.

A jump forward is time in which nobody could have spoken to the broker, or no time at all. So what was open before it
(transactions, sessions, what expires when it is not used) keeps the time that it had left; `Jumps` says how much was
skipped. What a restart finds is judged by its timestamps alone.

One thread uses a clock, the one that owns the broker.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Clock", "Jumps", "Now", "SystemTime"]

_JUMP_MS = 1000
"""Smaller steps are the system's small corrections."""


class SystemTime:
    """Milliseconds since the epoch that never go back. `wall_ms`: the system's clock, which may; `steady_ms`: one that
    never does, nor jumps."""

    __slots__ = ("_offset_ms", "_steady_ms", "_wall_ms", "ahead_ms", "jumped_ms")

    def __init__(self, wall_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._offset_ms = wall_ms() - steady_ms()
        self.jumped_ms = 0
        """By how much time has jumped forward so far, all jumps together."""
        self.ahead_ms = 0
        """How far the system's clock was behind at the last look."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        steady_ms, wall_ms = self._steady_ms(), self._wall_ms()
        self.ahead_ms = steady_ms + self._offset_ms - wall_ms
        if self.ahead_ms < 0:
            if self.ahead_ms <= -_JUMP_MS:
                self.jumped_ms -= self.ahead_ms
            self._offset_ms -= self.ahead_ms
            self.ahead_ms = 0
        return steady_ms + self._offset_ms


class Now:
    """The time that a core goes by. Its shell tells it with every call; in between it stands still."""

    __slots__ = ("ms",)

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms


class Jumps:
    """The jumps of a broker's time since its start."""

    __slots__ = ("_jumps",)

    def __init__(self) -> None:
        self._jumps: list[tuple[int, int]] = []

    def add(self, now_ms: int, by_ms: int) -> None:
        """Time has jumped forward to `now_ms`."""
        self._jumps.append((now_ms, by_ms))

    def skipped(self, since_ms: int) -> int:
        """How much of the time since then was skipped."""
        return sum(by_ms for now_ms, by_ms in self._jumps if since_ms < now_ms)


class Clock:
    """`source_ms`: milliseconds since the epoch that never go back. Time here never goes back either."""

    __slots__ = ("_ahead_ms", "_known_jumps_ms", "_source_ms", "_stopped_ms", "_system")

    def __init__(self, source_ms: Callable[[], int], system: SystemTime | None = None) -> None:
        """`system`: what is behind the source, if it may jump."""
        self._source_ms = source_ms
        self._system = system
        self._known_jumps_ms = 0
        self._ahead_ms = 0
        self._stopped_ms: int | None = None

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        stopped_ms = self._stopped_ms
        return self._source_ms() + self._ahead_ms if stopped_ms is None else stopped_ms

    def take_jump(self) -> int:
        """By how much time has jumped since this was last asked. (Where somebody moves it, it does not jump.)"""
        if self._stopped_ms is not None:
            return 0
        known_ms, self._known_jumps_ms = self._known_jumps_ms, self._jumps_ms
        return self._known_jumps_ms - known_ms

    @property
    def ahead_of_system_ms(self) -> int:
        """How far the system's clock was set back, as far as it has not caught up."""
        return 0 if self._system is None else self._system.ahead_ms

    @property
    def _jumps_ms(self) -> int:
        return 0 if self._system is None else self._system.jumped_ms

    @property
    def frozen(self) -> bool:
        """Whether time stands still."""
        return self._stopped_ms is not None

    def freeze(self) -> None:
        """Stand still."""
        self._stopped_ms = self.now_ms()

    def thaw(self) -> None:
        """Go on from where it stands."""
        if self._stopped_ms is not None:
            self._ahead_ms = self._stopped_ms - self._source_ms()
            self._known_jumps_ms = self._jumps_ms
            self._stopped_ms = None

    def move_to(self, time_ms: int) -> None:
        """Jump ahead. Raises ValueError for a time that has been."""
        ahead_ms = time_ms - self.now_ms()
        if ahead_ms < 0:
            raise ValueError(f"time does not go back ({-ahead_ms} ms)")
        if self._stopped_ms is None:
            self._ahead_ms += ahead_ms
        else:
            self._stopped_ms = time_ms
