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
from collections import deque
from contextlib import suppress
from typing import Final, Generic, TypeVar

__all__ = ["LOOK_S", "Latch", "WaitQueue", "pause", "result_of"]

T = TypeVar("T")

LOOK_S: Final = 0.2
"""Longest wait in which no signal handler runs, in seconds."""


class WaitQueue(Generic[T]):
    """A queue whose items one thread waits for, and the signal handlers that interrupt it.

    `queue.SimpleQueue.get()` of CPython 3.11 may wait for ever in spite of a time limit: if a signal handler takes
    longer than the rest of the time, or if another thread takes the item.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._gate = threading.Lock()  # locked while there is nothing new, so it is no lock that a thread could keep
        self._gate.acquire()

    def put(self, item: T) -> None:
        """Append an item. Any thread and any signal handler may call it."""
        self._items.append(item)
        with suppress(RuntimeError):  # it is open already
            self._gate.release()

    def get(self, timeout_s: float | None = None) -> T:
        """Wait for the next item, and return it.

        Args:
            timeout_s: Maximum wait in seconds; None: no limit.

        Raises:
            queue.Empty: `timeout_s` expired.
        """
        until_s = _end_of(timeout_s)
        while True:
            if self._items:
                return self._items.popleft()
            part_s = _next_part(until_s)
            if not self._gate.acquire(timeout=part_s) and part_s < LOOK_S and not self._items:
                raise queue.Empty


def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of a future, and return it. Raises the future's exception."""
    while not future.done():
        concurrent.futures.wait([future], timeout=LOOK_S)
    return future.result()


class Latch:
    """Something that happens once, for which threads and signal handlers wait.

    `threading.Event` has a lock that a waiting thread holds for a moment. A signal handler that interrupts the thread
    in this moment, and waits for the same event, would wait for ever.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._gate = threading.Lock()  # held until it has happened, and never needed to set or to read `is_set`
        self._gate.acquire()

    def set(self) -> None:
        """Note that it has happened. May be called again."""
        if self.is_set:
            return
        self.is_set = True
        with suppress(RuntimeError):  # another thread has opened it
            self._gate.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it happens. Return false if it has not happened after `timeout_s` seconds; None: no limit."""
        until_s = _end_of(timeout_s)
        while not self.is_set:
            part_s = _next_part(until_s)
            if self._gate.acquire(timeout=part_s):
                self._gate.release()
            elif part_s < LOOK_S:
                return self.is_set
        return True


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
