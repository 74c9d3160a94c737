"""Cuts a stream into frames: whole ones are copied out of a common buffer, others received into memory of their own.
A connection has memory of its own only for the frame that it is in the middle of: four times what has come of it at
most (and the size of the common buffer), whatever size was announced. Or `rooms` has all of it at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import FrameTooLarge, MalformedMessage
from fencepost.protocol.frame import DEFAULT_MAX_FRAME_BYTES

__all__ = ["Receiver", "common_buffer"]

_SIZE = struct.Struct(">i")
_GROWTH = 4

Rooms = Callable[[int], memoryview | None]


def common_buffer(size_bytes: int = 64 * 1024) -> memoryview:
    """What all connections of an event loop receive into, one after the other."""
    return memoryview(bytearray(size_bytes))


def _grown(size_bytes: int) -> None:
    """What a frame needs is taken as it comes."""


class Receiver:
    """Receive into `space()`, then tell `received(count)` before `common` is used for another connection. A frame given
    out shares no memory with later input.

    `strangers`: what to say where the first frame's size begins with such 16 bits, as those of another protocol do.
    `rooms`: the memory of a frame of that size, where it is to be taken at once.
    """

    __slots__ = (
        "_begun",
        "_common",
        "_filled",
        "_frame",
        "_is_first",
        "_rooms",
        "_size",
        "_strangers",
        "max_frame_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        common: memoryview | None = None,
        strangers: Mapping[int, str] | None = None,
        rooms: Rooms = _grown,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._common = common_buffer() if common is None else common
        self._strangers = strangers or {}
        self._rooms = rooms
        self._is_first = True
        self._begun = b""  # of a size prefix
        self._frame: memoryview | None = None  # room for what comes next of a frame
        self._size = self._filled = 0  # of which so much has come

    @property
    def held_bytes(self) -> int:
        """Memory that is held for the frame that has not come whole."""
        return 0 if self._frame is None else len(self._frame)

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return self._common[len(self._begun) :] if self._frame is None else self._frame[self._filled :]

    def feed(self, data: Buffer) -> list[memoryview]:
        """As if `data` had been received."""
        view, frames = memoryview(data), []
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            frames += self.received(count)
            view = view[count:]
        return frames

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
            self._check(size)
            start = position + _SIZE.size
            position = start + size
            if position > filled:
                self._size, self._filled, self._begun = size, filled - start, b""
                self._frame = self._room_for(common[start:filled])
                return frames
            frames.append(memoryview(bytes(common[start:position])))
        self._begun = bytes(common[position:filled])
        return frames

    def _check(self, size: int) -> None:
        if size < 0:
            raise MalformedMessage(f"frame size {size}")
        if (self._is_first or size > self.max_frame_bytes) and (stranger := self._strangers.get(size >> 16)):
            raise FrameTooLarge(stranger)
        if size > self.max_frame_bytes:
            raise FrameTooLarge(f"frame of {size} bytes, at most {self.max_frame_bytes} are accepted")
        self._is_first = False

    def _room_for(self, begun: memoryview) -> memoryview:
        """Memory for more of the frame, with what has come of it: all of it where `rooms` has some, else four times as
        much, so that even of a large frame only a third is copied, and never more than the frame."""
        room = self._rooms(self._size)
        if room is None:
            room = memoryview(bytearray(min(self._size, _GROWTH * max(len(begun), len(self._common)))))
        room[: len(begun)] = begun
        return room
