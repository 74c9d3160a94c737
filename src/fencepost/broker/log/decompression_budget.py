"""Limit of the decompressed size of highly compressed batches, per turn of the event loop and for all clients together.

Batches beyond the limit wait in one queue, and other requests are served between two turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch, DecompressionLimit
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from fencepost.protocol.records.walk import section_of

__all__ = ["LARGE_BYTES", "TURN_BYTES", "DecompressionBudget", "DecompressionDeferred"]

LARGE_BYTES: Final = 4 << 20
"""Batches that decompress to at most this many bytes never wait."""

TURN_BYTES: Final = 32 << 20
"""Limit of decompressed bytes per turn. Large batches beyond it wait for the next turn; the last one may exceed it."""


class DecompressionDeferred(Exception):
    """The batch decompresses to more than is left for this turn: see `DecompressionBudget.wait`."""


class DecompressionBudget:
    """Decompresses within the limit. `soon` calls a function after other requests were served."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._left = TURN_BYTES
        self._line: deque[Callable[[], None]] = deque()

    @property
    def has_room(self) -> bool:
        """Return true while no batch has to wait in this turn."""
        return self._left > 0

    def section_of(self, header: BatchHeader, batch: memoryview) -> Buffer:
        """Return the decompressed records section. Raises CorruptBatch, DecompressionDeferred."""
        if not header.codec:
            return section_of(header, batch)
        is_left = self._left > 0
        try:
            section = section_of(header, batch, MAX_DECOMPRESSED_BYTES if is_left else LARGE_BYTES)
        except CorruptBatch as error:
            if not isinstance(error.__cause__, DecompressionLimit):
                raise
            if not is_left:
                raise DecompressionDeferred from error
            self._charge(MAX_DECOMPRESSED_BYTES)
            raise
        self._charge(len(section))
        return section

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` in a later turn, after earlier waiting batches."""
        self._line.append(resume)

    def _charge(self, size_bytes: int) -> None:
        is_left = self._left > 0
        self._left -= size_bytes
        if is_left and self._left <= 0:
            self._soon(self._next_turn)

    def _next_turn(self) -> None:
        self._left = TURN_BYTES
        while self._left > 0 and self._line:
            self._line.popleft()()
