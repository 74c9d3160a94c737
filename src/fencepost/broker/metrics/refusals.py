"""Reports of refused new objects because of a limit: all are counted, some are logged."""

from __future__ import annotations

import logging

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import RateLimit

__all__ = ["Refusals"]


class Refusals:
    """Refusals for one limit. `counter` is the name of their counter."""

    def __init__(self, metrics: Metrics, counter: str, log: logging.Logger) -> None:
        self._metrics = metrics
        self._counter = counter
        self._log = log
        self._pace = RateLimit()

    def note(self, now_ms: int, subject: str) -> None:
        """Report that `subject` was refused, with the reason."""
        self._metrics.count(self._counter)
        if times := self._pace.hit(now_ms):
            self._log.warning("refused %s; %d since the last such message", subject, times)
