"""Limits an exception in work for one partition, group or id to that subject.

An exception in a request closes the connection. Work without a request (timers, work that waits for a sync, start-up)
uses this guard instead. It logs and counts the failure, and all other work continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import RateLimits
from fencepost.values import Value

__all__ = ["FailureGuard", "WorkFailed"]

_log = logging.getLogger("fencepost.broker")


class WorkFailed(Value):
    """Work for one partition, group or id raised an unexpected exception, which has been logged and counted."""

    subject: str
    error: Exception


class FailureGuard:
    """Logs and counts unexpected exceptions of one broker. An OSError is expected, and handled at its source."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._limits = RateLimits()
        self.failures: list[WorkFailed] = []
        """Failures since the last call of `take_failures`."""

    def failed(self, subject: str, error: Exception, follows: str) -> None:
        """Report that work for `subject` raised `error`. `follows` describes the consequence."""
        self._metrics.count("failed_work")
        self.failures.append(WorkFailed(subject, error))
        if times := self._limits.hit(self._now_ms(), subject):
            again = f" ({times} times since the last such message)" if times > 1 else ""
            _log.error(
                "%s failed%s: %r. %s; all other work continues. This is a bug in the broker: please report it",
                *(subject, again, error, follows),
                exc_info=error,
            )

    def take_failures(self) -> list[WorkFailed]:
        """Return the failures since the last call."""
        failures, self.failures = self.failures, []
        return failures
