"""Cuts a stream into frames: whole ones are copied out of a common buffer, others received into memory of their own.
A connection has memory of its own only for the frame that it is in the middle of: four times what has come of it at
most (and the size of the common buffer), whatever size was announced.

`protocol.frame.FrameReader` does the same for callers that are given bytes; this one hands out the memory to receive
into.
"""

from __future__ import annotations

import struct

from fencepost.protocol.errors import FrameTooLarge, MalformedMessage

__all__ = ["Receiver", "common_buffer"]

_SIZE = struct.Struct(">i")
_GROWTH = 4
_TLS_HANDSHAKE = 0x1603  # how a TLS handshake begins


def common_buffer(size_bytes: int = 64 * 1024) -> memoryview:
    """What all connections of an event loop receive into, one after the other."""
    return memoryview(bytearray(size_bytes))


class Receiver:
    """Receive into `space()`, then tell `received(count)` before `common` is used for another connection. A frame given
    out shares no memory with later input."""

    __slots__ = ("_begun", "_common", "_filled", "_frame", "_size", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, common: memoryview) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._common = common
        self._begun = b""  # of a size prefix
        self._frame: memoryview | None = None  # room for what comes next of a frame
        self._size = self._filled = 0  # of which so much has come

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return self._common[len(self._begun) :] if self._frame is None else self._frame[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """`count` bytes were written to `space()`; the frames (without size prefix) that are whole now.

        Raises FrameTooLarge or MalformedMessage for a size that no honest peer sends; the connection must then be
        closed.
        """
        frame = self._frame
        if frame is None:
            return self._cut(count)
        self._filled += count
        if self._filled < len(frame):
            return []
        if self._filled < self._size:
            self._frame = self._room_for(frame)
            return []
        self._frame = None
        return [frame]

    def _cut(self, count: int) -> list[memoryview]:
        common = self._common
        frames: list[memoryview] = []
        position, filled = 0, len(self._begun) + count
        common[: len(self._begun)] = self._begun
        while filled - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(common, position)
            if size < 0:
                raise MalformedMessage(f"frame size {size}")
            if size > self.max_frame_bytes:
                if size >> 16 == _TLS_HANDSHAKE:
                    raise FrameTooLarge("it speaks TLS, and the listener does not (security.protocol of the client)")
                raise FrameTooLarge(f"frame of {size} bytes, at most {self.max_frame_bytes} are accepted")
            start = position + _SIZE.size
            position = start + size
            if position > filled:
                self._size, self._filled, self._begun = size, filled - start, b""
                self._frame = self._room_for(common[start:filled])
                return frames
            frames.append(memoryview(bytes(common[start:position])))
        self._begun = bytes(common[position:filled])
        return frames

    def _room_for(self, begun: memoryview) -> memoryview:
        """Memory for more of the frame, with what has come of it: four times as much, so that even of a large frame
        only a third is copied, and never more than the frame."""
        room = memoryview(bytearray(min(self._size, _GROWTH * max(len(begun), len(self._common)))))
        room[: len(begun)] = begun
        return room
