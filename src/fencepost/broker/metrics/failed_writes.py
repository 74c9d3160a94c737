"""Reports of failed writes to partitions: all are counted, some are logged, and so is the end of the failure."""

from __future__ import annotations

import logging

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import RateLimits

__all__ = ["FailedWrites"]

_MOST_FAILING = 100_000


class FailedWrites:
    """Failed writes of one broker. A producer repeats a refused write several times a second."""

    def __init__(self, metrics: Metrics, log: logging.Logger) -> None:
        self._metrics = metrics
        self._log = log
        self._paces = RateLimits()
        self.failing: set[str] = set()
        """Partitions whose last write was refused."""

    def failed(self, now_ms: int, partition: str, reason: str, *, is_full: bool) -> None:
        """Report that a write to a partition was refused. `is_full`: the disk is full."""
        self._metrics.count("storage_errors")
        if len(self.failing) < _MOST_FAILING:
            self.failing.add(partition)
        if times := self._paces.hit(now_ms, partition):
            code = " (FP104)" if is_full else ""
            again = f"; {times} times since the last such message" if times > 1 else ""
            self._log.error("%s%s%s", reason, code, again)

    def written(self, partition: str) -> None:
        """Report a write that succeeded."""
        if partition in self.failing:
            self.failing.remove(partition)
            self._log.info("%s accepts records again", partition)
