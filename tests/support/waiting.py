"""Waiting for what comes a moment after the answer, as a Kafka's metadata do."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

__all__ = ["is_ready", "until"]


def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    """Return when it holds. Raises AssertionError when it has not come in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it has not come within {within_s:g} s")
        time.sleep(0.02)


def is_ready(descriptor: int, event: int, within_s: float | None = None) -> bool:
    """Wait for an event of `select.poll`, such as POLLIN. Return false if it has not come in time."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(None if within_s is None else round(within_s * 1000)))
