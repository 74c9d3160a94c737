"""Waits of blocking calls that a signal ends soon, for example Ctrl-C.

Python runs signal handlers in the main thread, between two instructions. If a signal arrives while the main thread
waits for a lock, the wait is interrupted and the handler runs at once. There are two exceptions: the signal arrives
just before the wait begins, or the system delivers it to another thread. Then the handler runs only after the wait,
which may take minutes.

The functions of this module therefore wait repeatedly for at most LOOK_S. A handler runs between two of these waits,
and an exception that it raises ends the call.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from typing import Final, TypeVar

__all__ = ["LOOK_S", "join", "next_item", "pause", "result_of", "wait_for_event"]

T = TypeVar("T")

LOOK_S: Final = 0.2
"""Longest wait in which no signal handler runs, in seconds."""


def next_item(items: queue.SimpleQueue[T], timeout_s: float | None = None) -> T:
    """Wait for the next item, and return it.

    Args:
        items: The queue.
        timeout_s: Maximum wait in seconds; None: no limit.

    Raises:
        queue.Empty: `timeout_s` expired.
    """
    until_s = _end_of(timeout_s)
    while True:
        part_s = _next_part(until_s)
        try:
            return items.get(timeout=part_s)
        except queue.Empty:
            if part_s < LOOK_S:
                raise


def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of a future, and return it. Raises the future's exception."""
    while not future.done():
        concurrent.futures.wait([future], timeout=LOOK_S)
    return future.result()


def wait_for_event(event: threading.Event, timeout_s: float | None = None) -> bool:
    """Wait until the event is set. Return false if it is not set after `timeout_s` seconds; None: no limit."""
    until_s = _end_of(timeout_s)
    while True:
        part_s = _next_part(until_s)
        if event.wait(part_s):
            return True
        if part_s < LOOK_S:
            return False


def join(thread: threading.Thread) -> None:
    """Wait until the thread has ended."""
    while thread.is_alive():
        thread.join(LOOK_S)


def pause(duration_s: float) -> None:
    """Sleep for `duration_s` seconds."""
    until_s = _end_of(duration_s)
    while (part_s := _next_part(until_s)) > 0:
        time.sleep(part_s)


def _end_of(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _next_part(until_s: float | None) -> float:
    """Return the length of the next short wait in seconds. Only the last one is shorter than LOOK_S.

    It is no generator: Python drops an exception that a signal handler raises while a generator is closed.
    """
    return LOOK_S if until_s is None else max(min(until_s - time.monotonic(), LOOK_S), 0.0)
