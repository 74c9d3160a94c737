"""Signal handlers at chosen points of a call, the same in each run.

CPython runs a signal handler where a Python function begins and behind a call of a C function, not between a plain
store and the return that follows it. A profile function is told of just these two, so a handler that it runs comes
where a real one could come; which of them is a number. (Real signals also come at the end of a loop's round, and
inside of C functions that wait: see `tests.support.interrupted_calls`.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

R = TypeVar("R")


class Strikes:
    """Counts the points of the calls made through it, and runs `handler` at point number `at`, once."""

    def __init__(self, at: int, handler: Callable[[], object]) -> None:
        self.points = 0
        self.struck = False
        self._at = at
        self._handler = handler

    def during(self, call: Callable[[], R]) -> R:
        """The call, with the handler in it. What the handler raises comes out of the call, as with a signal."""
        event = self._event  # held until the end: the interpreter drops its reference if the function raises
        sys.setprofile(event)
        try:
            return call()
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or argument is sys.setprofile:
            return
        if event == "call" and frame.f_code.co_name == "during":
            return
        self.points += 1
        if self.points > self._at and not self.struck:
            self.struck = True
            self._handler()
