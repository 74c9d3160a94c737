"""One anomaly per module; `check_all` runs them all. A check is a function from a history to the anomalies it finds."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.check.checks.aborted_read import aborted_read
from fencepost.check.checks.divergence import divergence
from fencepost.check.checks.duplicate import duplicate
from fencepost.check.checks.lost_offset import lost_offset
from fencepost.check.checks.lost_write import lost_write
from fencepost.check.checks.reordered import reordered
from fencepost.check.checks.torn import torn
from fencepost.check.history import Anomaly, History

__all__ = ["CHECKS", "check_all"]

CHECKS: tuple[Callable[[History], list[Anomaly]], ...] = (
    aborted_read,
    divergence,
    duplicate,
    lost_offset,
    lost_write,
    reordered,
    torn,
)


def check_all(history: History) -> list[Anomaly]:
    """Every anomaly of every check. Raises ValueError for a history with no reads: it would pass whatever was lost."""
    if not history.reads:
        raise ValueError("the history has no reads: nothing can be checked")
    return [anomaly for check in CHECKS for anomaly in check(history)]
