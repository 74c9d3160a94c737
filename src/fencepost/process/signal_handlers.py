"""Signal handlers for a block of code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Handler", "handled"]

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handled(numbers: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    """Handle these signals in the block, and restore their handlers after it. Only the main thread may call it."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, original in before.items():
            signal.signal(number, original)
