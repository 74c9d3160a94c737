"""Waiting for what comes a moment after the answer, as a Kafka's metadata do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    """Return when it holds. Raises AssertionError when it has not come in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it has not come within {within_s:g} s")
        time.sleep(0.02)
