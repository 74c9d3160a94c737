"""A function that runs at a chosen line or bytecode of a call, as a signal handler or another thread would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Steps:
    """Runs `handler` once, before step number `at` of a call: a line, or a bytecode, in one of the files."""

    def __init__(self, at: int, handler: Callable[[], object], files: tuple[str, ...], event: str) -> None:
        self.steps = 0
        self.struck = False
        self._at = at
        self._handler = handler
        self._files = files
        self._event = event

    def during(self, call: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event:
            self.steps += 1
            if self.steps == self._at:
                self.struck = True
                self._handler()
        return self._trace
