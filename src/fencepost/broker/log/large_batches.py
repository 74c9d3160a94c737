"""Batches that are small on the wire and large when they are looked at: so many bytes in a turn of the broker, whoever
sent them. What would exceed them stands in one line, and other requests are served between two turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch, DecompressionLimit
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES
from fencepost.protocol.records.walk import section_of

__all__ = ["LARGE_BYTES", "TURN_BYTES", "LargeBatches", "PutOff"]

LARGE_BYTES: Final = 4 << 20
"""What decompresses to no more is never put off."""

TURN_BYTES: Final = 32 << 20
"""When so much was decompressed in a turn, large batches wait for the next; the last one may exceed it."""


class PutOff(Exception):
    """The batch decompresses to more than is left for this turn: see `LargeBatches.wait`."""


class LargeBatches:
    """`soon` calls something back when others have been served."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._left = TURN_BYTES
        self._line: deque[Callable[[], None]] = deque()

    @property
    def has_room(self) -> bool:
        """Return true while this turn puts no batch off."""
        return self._left > 0

    def section_of(self, header: BatchHeader, batch: memoryview) -> Buffer:
        """The records section, decompressed. Raises CorruptBatch, PutOff."""
        if not header.codec:
            return section_of(header, batch)
        is_left = self._left > 0
        try:
            section = section_of(header, batch, MAX_DECOMPRESSED_BYTES if is_left else LARGE_BYTES)
        except CorruptBatch as error:
            if not isinstance(error.__cause__, DecompressionLimit):
                raise
            if not is_left:
                raise PutOff from error
            self._spend(MAX_DECOMPRESSED_BYTES)
            raise
        self._spend(len(section))
        return section

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the turn of somebody whose batch was put off has come."""
        self._line.append(go_on)

    def _spend(self, size_bytes: int) -> None:
        is_left = self._left > 0
        self._left -= size_bytes
        if is_left and self._left <= 0:
            self._soon(self._next_turn)

    def _next_turn(self) -> None:
        self._left = TURN_BYTES
        while self._left > 0 and self._line:
            self._line.popleft()()
