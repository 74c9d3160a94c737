"""The broker's time: the system's, unless a test moves or freezes it.

It follows the system's clock forward at once. A machine that started with a slow clock, or was suspended, must not
reject records for their timestamps until a restart. It never goes back: if the system's clock is set back, the
broker's time continues at normal speed until the system's clock has caught up.

No client could have contacted the broker during a jump forward. So transactions, sessions and other timeouts keep the
time that they had left; `ClockJumps` has the skipped time. A restart uses timestamps alone.

Only the thread that owns the broker uses its clock.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Clock", "ClockJumps", "CoreTime", "SystemTime"]

_JUMP_MS = 1000
"""Smaller steps are small corrections of the system."""


class SystemTime:
    """Milliseconds since 1970 that never go back.

    `wall_ms` is the system's clock, which may; `steady_ms` is a monotonic clock without jumps.
    """

    __slots__ = ("_offset_ms", "_steady_ms", "_wall_ms", "ahead_ms", "jumped_ms")

    def __init__(self, wall_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._offset_ms = wall_ms() - steady_ms()
        self.jumped_ms = 0
        """Total time of all jumps forward, in ms."""
        self.ahead_ms = 0
        """Lead over the system's clock at the last call, in ms. It includes a pause between the two readings."""
        self.now_ms()  # A pause between the first two readings made the offset too small, which is no jump.
        self.jumped_ms = 0

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        wall_ms = self._wall_ms()
        steady_ms = self._steady_ms()  # After the wall clock: a pause in between must not look like a jump forward.
        self.ahead_ms = steady_ms + self._offset_ms - wall_ms
        if self.ahead_ms < 0:
            if self.ahead_ms <= -_JUMP_MS:
                self.jumped_ms -= self.ahead_ms
            self._offset_ms -= self.ahead_ms
            self.ahead_ms = 0
        return steady_ms + self._offset_ms


class CoreTime:
    """The time that a core uses. Its caller sets it with every call; in between it does not change."""

    __slots__ = ("ms",)

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms


class ClockJumps:
    """Jumps of a broker's time since its start."""

    __slots__ = ("_jumps",)

    def __init__(self) -> None:
        self._jumps: list[tuple[int, int]] = []

    def add(self, now_ms: int, by_ms: int) -> None:
        """Record a jump forward to `now_ms`."""
        self._jumps.append((now_ms, by_ms))

    def skipped(self, since_ms: int) -> int:
        """Return the time skipped since `since_ms`, in ms."""
        return sum(by_ms for now_ms, by_ms in self._jumps if since_ms < now_ms) if self._jumps else 0


class Clock:
    """A controllable clock on `source_ms`, milliseconds since 1970 that never go back.

    This clock never goes back either.
    """

    __slots__ = ("_ahead_ms", "_known_jumps_ms", "_source_ms", "_stopped_ms", "_system")

    def __init__(self, source_ms: Callable[[], int], system: SystemTime | None = None) -> None:
        """Create a clock. `system` is the clock behind the source, if it may jump."""
        self._source_ms = source_ms
        self._system = system
        self._known_jumps_ms = 0
        self._ahead_ms = 0
        self._stopped_ms: int | None = None

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        stopped_ms = self._stopped_ms
        return self._source_ms() + self._ahead_ms if stopped_ms is None else stopped_ms

    def system_ms(self) -> int:
        """Return the time of the system's clock, which may go back, with the moves of a test.

        Compare it with times that other machines have set, such as the expiry of a token.
        """
        return self.now_ms() - self.ahead_of_system_ms

    def take_jump(self) -> int:
        """Return the jump since the last call, in ms. A time that a test has frozen does not jump."""
        if self._stopped_ms is not None:
            return 0
        known_ms, self._known_jumps_ms = self._known_jumps_ms, self._jumps_ms
        return self._known_jumps_ms - known_ms

    @property
    def ahead_of_system_ms(self) -> int:
        """Lead over the system's clock in ms, after that was set back."""
        return 0 if self._system is None else self._system.ahead_ms

    def has_moved(self, most_ahead_ms: int) -> bool:
        """Return true if the time has jumped since `take_jump`, or is further ahead of the system's than that."""
        system = self._system
        return system is not None and (system.jumped_ms != self._known_jumps_ms or system.ahead_ms > most_ahead_ms)

    @property
    def _jumps_ms(self) -> int:
        return 0 if self._system is None else self._system.jumped_ms

    @property
    def frozen(self) -> bool:
        """True while the time is frozen."""
        return self._stopped_ms is not None

    def freeze(self) -> None:
        """Freeze the time."""
        self._stopped_ms = self.now_ms()

    def thaw(self) -> None:
        """Continue from the frozen time."""
        if self._stopped_ms is not None:
            self._ahead_ms = self._stopped_ms - self._source_ms()
            self._known_jumps_ms = self._jumps_ms
            self._stopped_ms = None

    def move_to(self, time_ms: int) -> None:
        """Move the time forward. Raises ValueError for an earlier time."""
        ahead_ms = time_ms - self.now_ms()
        if ahead_ms < 0:
            raise ValueError(f"time does not go back ({-ahead_ms} ms)")
        self.move_by(ahead_ms)

    def move_by(self, duration_ms: int) -> None:
        """Move the time forward by this duration, not negative."""
        if self._stopped_ms is None:
            self._ahead_ms += duration_ms
        else:
            self._stopped_ms += duration_ms
