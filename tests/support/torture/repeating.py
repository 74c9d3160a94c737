"""A thread that does one thing again and again beside a run."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Repeating"]


class Repeating(threading.Thread):
    """Calls `deed` until `stopping` is set. `error` is the exception that ended it before."""

    def __init__(self, deed: Callable[[], object], stopping: threading.Event, *, name: str | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._deed, self.stopping = deed, stopping
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._deed()
        except BaseException as error:
            self.error = error
            raise
