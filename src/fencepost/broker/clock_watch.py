"""Reading of the broker's time, with reports of what is wrong with the system's clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from fencepost.broker.metrics.log_rate_limit import RateLimit
from fencepost.broker.timing.clock import Clock
from fencepost.counted import duration_words

__all__ = ["ClockWatch"]

_SET_BACK_MS: Final = 60_000
_WARNING_PAUSE_MS: Final = 3_600_000

_log = logging.getLogger("fencepost.broker")


class ClockWatch:
    """Reads `clock`. `jumped(now_ms, by_ms)` is called for a jump of the time; `steady_ms` is a monotonic clock."""

    def __init__(self, clock: Clock, steady_ms: Callable[[], int], jumped: Callable[[int, int], None]) -> None:
        self._clock = clock
        self._steady_ms = steady_ms
        self._jumped = jumped
        self._set_back = RateLimit(_WARNING_PAUSE_MS)

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        now_ms = self._clock.now_ms()
        if self._clock.has_moved(_SET_BACK_MS):
            self._look(now_ms)
        return now_ms

    def _look(self, now_ms: int) -> None:
        jump_ms = self._clock.take_jump()
        if jump_ms:
            _log.warning(
                "the system's clock went forward by %s; open transactions and sessions keep the time they had left",
                duration_words(jump_ms),
            )
            self._jumped(now_ms, jump_ms)
        ahead_ms = self._clock.ahead_of_system_ms
        if ahead_ms > _SET_BACK_MS and self._set_back.hit(self._steady_ms()):
            _log.warning(
                "the system's clock was set back: the broker's time stays %s ahead until it has caught up, or the "
                "broker is started again",
                duration_words(ahead_ms),
            )
