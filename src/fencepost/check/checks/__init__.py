"""The checks of a history, one per module: each states a property and yields the operations that violate it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fencepost.check.checks.aborted_read import aborted_read
from fencepost.check.checks.broken_decision import broken_decision
from fencepost.check.checks.divergence import divergence
from fencepost.check.checks.duplicate import duplicate
from fencepost.check.checks.end_back import end_back
from fencepost.check.checks.fenced_by_nobody import fenced_by_nobody
from fencepost.check.checks.fenced_commit import fenced_commit
from fencepost.check.checks.foreign import foreign
from fencepost.check.checks.lost_offset import lost_offset
from fencepost.check.checks.lost_write import lost_write
from fencepost.check.checks.nonmonotonic_poll import nonmonotonic_poll
from fencepost.check.checks.poll_skip import poll_skip
from fencepost.check.checks.precommitted_read import precommitted_read
from fencepost.check.checks.processed_once import processed_once
from fencepost.check.checks.reordered import reordered
from fencepost.check.checks.stuck import stuck
from fencepost.check.checks.torn import torn
from fencepost.check.checks.unstable_end import unstable_end
from fencepost.check.checks.zombie_write import zombie_write
from fencepost.check.history.model import Anomaly, History
from fencepost.check.history.operations import Poll, Read, Result
from fencepost.check.history.summary import Summary

__all__ = ["CHECKS", "Check", "check_all", "has_reads"]

Check = Callable[[History], Iterator[Anomaly]]

CHECKS: tuple[Check, ...] = (
    *(aborted_read, precommitted_read, lost_write, torn, duplicate, foreign, divergence, reordered),
    *(nonmonotonic_poll, poll_skip, end_back, unstable_end, stuck),
    *(lost_offset, fenced_commit, zombie_write, fenced_by_nobody, broken_decision, processed_once),
)


def has_reads(history: History) -> bool:
    """Return true if any read was answered. Without reads, lost records would go unnoticed."""
    return any(reading.result is not Result.UNKNOWN for reading in (*history.of(Poll), *history.of(Read)))


def check_all(given: History | Summary) -> list[Anomaly]:
    """Return the anomalies of all checks.

    Raises ValueError for a history without reads, which would pass despite losses.
    """
    history = History(given.operations()) if isinstance(given, Summary) else given
    if not has_reads(history):
        raise ValueError("the history has no reads: nothing can be checked")
    return [anomaly for check in CHECKS for anomaly in check(history)]
