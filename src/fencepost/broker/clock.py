"""The broker's time: the system's, until somebody moves it or makes it stand still.

One thread uses it, the one that owns the broker.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """`source_ms`: milliseconds since the epoch that never go back. Time here never goes back either."""

    __slots__ = ("_ahead_ms", "_source_ms", "_stopped_ms")

    def __init__(self, source_ms: Callable[[], int]) -> None:
        self._source_ms = source_ms
        self._ahead_ms = 0
        self._stopped_ms: int | None = None

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        stopped_ms = self._stopped_ms
        return self._source_ms() + self._ahead_ms if stopped_ms is None else stopped_ms

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
