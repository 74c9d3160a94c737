"""A cursor over received bytes and a builder of bytes to send, for the messages that are read and written by hand.

Both take `flexible` once: it decides between the two encodings of strings, byte strings, arrays and tagged fields
(KIP-482).
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.frame import read_unsigned_varint, skip_tagged_fields, write_unsigned_varint

__all__ = ["Reader", "Writer"]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Reader:
    """Reads primitive values one after the other. Every method raises MalformedMessage when the bytes end too early."""

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: memoryview, flexible: bool, position: int = 0) -> None:
        self.data = data
        self.flexible = flexible
        self.position = position

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Several fixed-size integers at once."""
        try:
            values = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise MalformedMessage(f"message cut short at byte {self.position}") from error
        self.position += layout.size
        return values

    def int8(self) -> int:
        if self.position >= len(self.data):
            raise MalformedMessage(f"message cut short at byte {self.position}")
        value = self.data[self.position]
        self.position += 1
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        return int(self.unpack(_INT16)[0])

    def int32(self) -> int:
        return int(self.unpack(_INT32)[0])

    def int64(self) -> int:
        return int(self.unpack(_INT64)[0])

    def uuid(self) -> UUID | None:
        """A topic id; None for the zero UUID."""
        raw = bytes(self._take(16))
        return UUID(bytes=raw) if any(raw) else None

    def array_length(self) -> int:
        """The number of elements, -1 for null. More elements than bytes left is malformed: each takes one at least."""
        if self.flexible:
            length, self.position = read_unsigned_varint(self.data, self.position)
            length -= 1
        else:
            length = self.int32()
        if length > len(self.data) - self.position:
            raise MalformedMessage(f"array of {length} elements in {len(self.data) - self.position} bytes")
        return length

    def nullable_string(self) -> str | None:
        if self.flexible:
            length, self.position = read_unsigned_varint(self.data, self.position)
            length -= 1
        else:
            length = self.int16()
        if length < 0:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("string is not UTF-8") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessage("null where a string must be")
        return value

    def nullable_bytes(self) -> memoryview | None:
        """A slice of the input, not a copy."""
        if self.flexible:
            length, self.position = read_unsigned_varint(self.data, self.position)
            length -= 1
        else:
            length = self.int32()
        return None if length < 0 else self._take(length)

    def tagged_fields(self) -> None:
        """Skip the tagged fields of a structure, if this encoding has any."""
        if self.flexible:
            self.position = skip_tagged_fields(self.data, self.position)

    def _take(self, length: int) -> memoryview:
        end = self.position + length
        if end > len(self.data):
            raise MalformedMessage(f"{length} bytes wanted at byte {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken


class Writer:
    """Collects primitive values; `buffers()` gives them with large byte strings left in place, uncopied."""

    __slots__ = ("_done", "_open", "flexible")

    def __init__(self, flexible: bool) -> None:
        self.flexible = flexible
        self._done: list[bytes | bytearray | memoryview] = []
        self._open = bytearray()

    def pack(self, layout: struct.Struct, *values: int) -> None:
        self._open += layout.pack(*values)

    def int16(self, value: int) -> None:
        self._open += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._open += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._open += _INT64.pack(value)

    def uuid(self, value: UUID | None) -> None:
        self._open += bytes(16) if value is None else value.bytes

    def array_length(self, length: int) -> None:
        """-1 writes a null array."""
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)

    def string(self, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        length = -1 if encoded is None else len(encoded)
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT16.pack(length)
        if encoded:
            self._open += encoded

    def records(self, value: bytes | bytearray | memoryview | None) -> None:
        """A byte string that goes out as the very buffer given; the caller leaves it unchanged until it is sent."""
        length = -1 if value is None else len(value)
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)
        if value:
            self._done += (self._open, value)
            self._open = bytearray()

    def tagged_fields(self) -> None:
        """An empty section, where this encoding has one."""
        if self.flexible:
            self._open.append(0)

    def buffers(self) -> list[bytes | bytearray | memoryview]:
        """Everything written, in order."""
        return [*self._done, self._open] if self._open else list(self._done)
