"""Cut a stream of bytes into frames.

Frames that arrive whole are copied out of a buffer that all connections share. A connection owns memory only for a
frame that has partly arrived. That memory is at most four times the bytes received (or the size of the shared buffer),
whatever size the frame announces. With `rooms`, the memory for the whole frame is allocated at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import FrameTooLarge, MalformedMessage, WireError
from fencepost.protocol.frame import DEFAULT_MAX_FRAME_BYTES

__all__ = ["Receiver", "common_buffer", "refused_size"]

_SIZE = struct.Struct(">i")
_GROWTH = 4

Rooms = Callable[[int], memoryview | None]


def common_buffer(size_bytes: int = 64 * 1024) -> memoryview:
    """Return a receive buffer that all connections of an event loop use in turn."""
    return memoryview(bytearray(size_bytes))


def refused_size(size: int, max_frame_bytes: int, other_protocols: Mapping[int, str]) -> WireError:
    """Return the error for a frame whose announced size is not accepted. For the arguments see `Receiver`."""
    if size < 0:
        return MalformedMessage(f"frame size {size}")
    if other_protocol := other_protocols.get(size >> 16):
        return FrameTooLarge(other_protocol)
    return FrameTooLarge(f"frame of {size} bytes, at most {max_frame_bytes} are accepted")


def _grown(size_bytes: int) -> None:
    """Default for `rooms`: allocate no frame at once, but grow its memory as bytes arrive."""


class Receiver:
    """Collects received bytes and returns whole frames.

    Receive into `space()`, then call `received(count)` before another connection uses `common`. A returned frame shares
    no memory with later input.

    Args:
        max_frame_bytes: Largest accepted frame, in bytes.
        common: Receive buffer shared by all connections of an event loop; default: a buffer of its own.
        other_protocols: Error text by the first 16 bits of the first frame's size, such as those of TLS.
        rooms: Returns memory for a frame of the given size, to allocate it at once, or None to let it grow.
    """

    __slots__ = (
        "_begun",
        "_common",
        "_filled",
        "_frame",
        "_is_first",
        "_other_protocols",
        "_rooms",
        "_size",
        "max_frame_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        common: memoryview | None = None,
        other_protocols: Mapping[int, str] | None = None,
        rooms: Rooms = _grown,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._common = common_buffer() if common is None else common
        self._other_protocols = other_protocols or {}
        self._rooms = rooms
        self._is_first = True
        self._begun = b""  # of a size prefix that has not arrived whole
        self._frame: memoryview | None = None  # memory for the rest of a frame
        self._size = self._filled = 0  # the announced size, and the number of bytes received

    @property
    def held_bytes(self) -> int:
        """Memory allocated for the incomplete frame, in bytes."""
        return 0 if self._frame is None else len(self._frame)

    def space(self) -> memoryview:
        """Return the memory into which to receive next; never empty."""
        return self._common[len(self._begun) :] if self._frame is None else self._frame[self._filled :]

    def feed(self, data: Buffer) -> list[memoryview]:
        """Process `data` as if it had been received."""
        view, frames = memoryview(data), []
        while view:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            frames += self.received(count)
            view = view[count:]
        return frames

    def received(self, count: int) -> list[memoryview]:
        """Process `count` bytes that were written to `space()`; return the frames that are now complete.

        Frames come without their size prefix. After an error the connection must be closed.

        Raises:
            FrameTooLarge: The announced size exceeds `max_frame_bytes`.
            MalformedMessage: The announced size is negative.
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
        is_strange = self._is_first and size >> 16 in self._other_protocols
        if is_strange or not 0 <= size <= self.max_frame_bytes:
            raise refused_size(size, self.max_frame_bytes, self._other_protocols)
        self._is_first = False

    def _room_for(self, begun: memoryview) -> memoryview:
        """Return memory for more of the frame, with the bytes received so far copied into it.

        It holds the whole frame if `rooms` allocates it; otherwise it is four times as large as before, up to the
        frame's size. Growing by four copies at most a third of a large frame.
        """
        room = self._rooms(self._size)
        if room is None:
            room = memoryview(bytearray(min(self._size, _GROWTH * max(len(begun), len(self._common)))))
        room[: len(begun)] = begun
        return room
