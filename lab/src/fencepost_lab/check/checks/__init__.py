"""The checks of a history, one per module: each states a property and yields the operations that violate it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost_lab.check.checks.aborted_read import aborted_read
from fencepost_lab.check.checks.broken_decision import broken_decision
from fencepost_lab.check.checks.divergence import divergence
from fencepost_lab.check.checks.duplicate import duplicate
from fencepost_lab.check.checks.end_back import end_back
from fencepost_lab.check.checks.fenced_by_nobody import fenced_by_nobody
from fencepost_lab.check.checks.fenced_commit import fenced_commit
from fencepost_lab.check.checks.foreign import foreign
from fencepost_lab.check.checks.lost_offset import lost_offset
from fencepost_lab.check.checks.lost_write import lost_write
from fencepost_lab.check.checks.nonmonotonic_poll import nonmonotonic_poll
from fencepost_lab.check.checks.poll_skip import poll_skip
from fencepost_lab.check.checks.precommitted_read import precommitted_read
from fencepost_lab.check.checks.processed_once import processed_once
from fencepost_lab.check.checks.reordered import reordered
from fencepost_lab.check.checks.stuck import stuck
from fencepost_lab.check.checks.torn import torn
from fencepost_lab.check.checks.unstable_end import unstable_end
from fencepost_lab.check.checks.zombie_write import zombie_write
from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import OperationResult, Poll, Read
from fencepost_lab.check.history.summary import Summary

__all__ = ["CHECKS", "Check", "check_all", "has_reads"]

Check = Callable[[History], Iterator[Anomaly]]

CHECKS: tuple[Check, ...] = (
    *(aborted_read, precommitted_read, lost_write, torn, duplicate, foreign, divergence, reordered),
    *(nonmonotonic_poll, poll_skip, end_back, unstable_end, stuck),
    *(lost_offset, fenced_commit, zombie_write, fenced_by_nobody, broken_decision, processed_once),
)


def has_reads(history: History) -> bool:
    """Return true if any read was answered. Without reads, lost records would go unnoticed."""
    return any(reading.result is not OperationResult.UNKNOWN for reading in (*history.of(Poll), *history.of(Read)))


def check_all(given: History | Summary) -> list[Anomaly]:
    """Return the anomalies of all checks.

    Raises ValueError for a history without reads, which would pass despite losses.
    """
    history = History(given.operations()) if isinstance(given, Summary) else given
    if not has_reads(history):
        raise ValueError("the history has no reads: nothing can be checked")
    return [anomaly for check in CHECKS for anomaly in check(history)]
