"""Cuts a stream into frames with at most one copy: small ones out of a common buffer, large ones received in place.
The memory of a large one is taken page by page as its bytes come, whatever size it was announced with.

`protocol.frame.FrameReader` does the same for callers that are given bytes; this one hands out the memory to receive
into.
"""

from __future__ import annotations

import struct

import numpy as np

from fencepost.protocol.errors import FrameTooLarge, MalformedMessage

__all__ = ["Receiver"]

_SIZE = struct.Struct(">i")
_COMMON_BYTES = 64 * 1024


class Receiver:
    """Receive into `space()`, then tell `received(count)`. A frame given out shares no memory with later input."""

    __slots__ = ("_common", "_filled", "_large", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, common_bytes: int = _COMMON_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._common = bytearray(common_bytes)
        self._view = memoryview(self._common)
        self._large: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        target = self._view if self._large is None else self._large
        return target[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes were written to `space()`; the frames (without size prefix) that are whole now.

        Raises FrameTooLarge or MalformedMessage for a size that no honest peer sends; the connection must then be
        closed.
        """
        self._filled += count
        large = self._large
        if large is None:
            return self._cut()
        if self._filled < len(large):
            return []
        self._large = None
        self._filled = 0
        return [large]

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position, filled = 0, self._filled
        while filled - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._common, position)
            if size < 0:
                raise MalformedMessage(f"frame size {size}")
            if size > self.max_frame_bytes:
                raise FrameTooLarge(f"frame of {size} bytes, at most {self.max_frame_bytes} are accepted")
            start = position + _SIZE.size
            if start + size > filled:
                if size + _SIZE.size > len(self._common):
                    self._begin_large(start, size)
                    return frames
                break
            frames.append(memoryview(bytes(self._view[start : start + size])))
            position = start + size
        if position:
            rest = filled - position
            self._common[:rest] = self._common[position:filled]
            self._filled = rest
        return frames

    def _begin_large(self, start: int, size: int) -> None:
        frame = np.empty(size, np.uint8).data  # memory that is not touched yet is not taken yet
        have = self._filled - start
        frame[:have] = self._view[start : self._filled]
        self._large = frame
        self._filled = have
