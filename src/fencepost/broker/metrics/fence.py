"""Keep a mistake in the work for one partition, group or id to that one.

Requests have a fence of their own: what one raises costs its connection. Work that nobody asked for (timers, what waits
for a sync, a start) has this one. It logs and counts the failure, and everything else goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import Paces
from fencepost.values import Value

__all__ = ["Fence", "WorkFailed"]

_log = logging.getLogger("fencepost.broker")


class WorkFailed(Value):
    """Work for one partition, group or id raised what it must not. It is logged and counted already."""

    subject: str
    error: Exception


class Fence:
    """Of one broker. An OSError is expected and handled where it arises; this is for everything else."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._paces = Paces()
        self._failures: list[WorkFailed] = []

    def failed(self, subject: str, error: Exception, follows: str) -> None:
        """Work for `subject` has raised `error`. `follows`: what becomes of it."""
        self._metrics.count("failed_work")
        self._failures.append(WorkFailed(subject, error))
        if times := self._paces.hit(self._now_ms(), subject):
            again = f" ({times} times since this was last said)" if times > 1 else ""
            _log.error(
                "%s failed%s: %r. %s; everything else goes on. This is a mistake in the broker: please report it",
                *(subject, again, error, follows),
                exc_info=error,
            )

    def take_failures(self) -> list[WorkFailed]:
        """The failures since this was last called."""
        failures, self._failures = self._failures, []
        return failures
