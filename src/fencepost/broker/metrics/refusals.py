"""Telling that there is no room for something new: counted each time, logged now and then."""

from __future__ import annotations

import logging

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import Pace

__all__ = ["Refusals"]


class Refusals:
    """What was refused for one bound's sake. `counter`: where each counts."""

    def __init__(self, metrics: Metrics, counter: str, log: logging.Logger) -> None:
        self._metrics = metrics
        self._counter = counter
        self._log = log
        self._pace = Pace()

    def note(self, now_ms: int, what: str) -> None:
        """`what` was refused, and why."""
        self._metrics.count(self._counter)
        if times := self._pace.hit(now_ms):
            self._log.warning("refused %s; %d since this was last said", what, times)
