"""A cursor over bytes and a builder of bytes: for messages and log records that are read and written by hand.

Both take `flexible` once: it decides between the two encodings of strings, byte strings, arrays and tagged fields
(KIP-482). The generated modules in `protocol.messages` are made of the functions in `wire.py` instead, which need bytes
of their own; a Reader never copies what it passes on, and fetched records stay where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import read_unsigned_varint, skip_tagged_fields, write_unsigned_varint

__all__ = ["Buffer", "Reader", "Writer"]

Buffer = bytes | bytearray | memoryview

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Reader:
    """Reads values one after the other. Every method raises MalformedMessage for bytes that end too early, or lie."""

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: bytes | bytearray | memoryview, flexible: bool = False, position: int = 0) -> None:
        self.data = memoryview(data)
        self.flexible = flexible
        self.position = position

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self.data) - self.position

    def take(self, size: int) -> memoryview:
        """The next bytes, as a slice of the input."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise MalformedMessage(f"{size} bytes wanted at byte {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise MalformedMessage(f"{self.left} bytes too many")

    # --- numbers ---

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Several fixed-size values at once."""
        try:
            values = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise MalformedMessage(f"cut short at byte {self.position}") from error
        self.position += layout.size
        return values

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, layout: struct.Struct) -> int:
        value: int
        try:
            (value,) = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise MalformedMessage(f"cut short at byte {self.position}") from error
        self.position += layout.size
        return value

    def unsigned_varint(self) -> int:
        value, self.position = read_unsigned_varint(self.data, self.position)
        return value

    def version(self, name: str, known: Collection[int], flexible_from: int) -> int:
        """The version that a log record begins with; from `flexible_from` on its fields are flexible."""
        version = self.int16()
        if version not in known:
            raise MalformedMessage(f"{name} version {version} is not known")
        self.flexible = version >= flexible_from
        return version

    def uuid(self) -> UUID | None:
        """A topic id; None for the zero UUID."""
        raw = bytes(self.take(16))
        return UUID(bytes=raw) if any(raw) else None

    # --- arrays, strings, byte strings; a negative length is null ---

    def _length(self, fixed: struct.Struct) -> int:
        """One more than it is, as a varint; as it is, in that layout, where the encoding is not flexible."""
        if not self.flexible:
            return self._number(fixed)
        length, self.position = read_unsigned_varint(self.data, self.position)
        return length - 1

    def array_length(self) -> int:
        """The number of elements, -1 for null. More elements than bytes left is malformed: each takes one at least."""
        length = self._length(_INT32)
        if length > len(self.data) - self.position:
            raise MalformedMessage(f"a count of {length} elements in {self.left} bytes")
        return length

    def count(self) -> int:
        """The number of elements of an array that is not null."""
        length = self.array_length()
        if length < 0:
            raise MalformedMessage("null where an array must be")
        return length

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.count())]

    def int32s(self) -> list[int]:
        return list(self.unpack(struct.Struct(f">{self.count()}i")))

    def nullable_string(self) -> str | None:
        length = self._length(_INT16)
        if length < 0:
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("string is not UTF-8") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessage("null where a string must be")
        return value

    def nullable_bytes(self) -> memoryview | None:
        """A slice of the input, not a copy."""
        length = self._length(_INT32)
        return None if length < 0 else self.take(length)

    def byte_string(self) -> bytes:
        """A copy."""
        value = self.nullable_bytes()
        if value is None:
            raise MalformedMessage("null where bytes must be")
        return bytes(value)

    # --- tagged fields, where this encoding has any ---

    def skip_tags(self) -> None:
        if self.flexible:
            self.position = skip_tagged_fields(self.data, self.position)

    def tags(self) -> dict[int, memoryview]:
        """What is in each tagged field, by its tag."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self.take(self.unsigned_varint())
        return fields


class Writer:
    """Collects values; `buffers()` gives them with large byte strings left in place, uncopied."""

    __slots__ = ("_done", "_open", "flexible")

    def __init__(self, flexible: bool = False) -> None:
        self.flexible = flexible
        self._done: list[bytes | bytearray | memoryview] = []
        self._open = bytearray()

    def pack(self, layout: struct.Struct, *values: int) -> None:
        self._open += layout.pack(*values)

    def int8(self, value: int) -> None:
        self._open += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._open += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._open += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._open += _INT64.pack(value)

    def unsigned_varint(self, value: int) -> None:
        self._open += write_unsigned_varint(value)

    def uuid(self, value: UUID | None) -> None:
        self._open += bytes(16) if value is None else value.bytes

    def array_length(self, length: int) -> None:
        """-1 writes a null array."""
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)

    def strings(self, values: Sequence[str]) -> None:
        self.array_length(len(values))
        for value in values:
            self.string(value)

    def int32s(self, values: Sequence[int]) -> None:
        self.array_length(len(values))
        self._open += struct.pack(f">{len(values)}i", *values)

    def string(self, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        length = -1 if encoded is None else len(encoded)
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT16.pack(length)
        if encoded:
            self._open += encoded

    def byte_string(self, value: bytes | memoryview | None) -> None:
        self.array_length(-1 if value is None else len(value))
        if value:
            self._open += value

    def records(self, value: bytes | bytearray | memoryview | None) -> None:
        """A byte string that goes out as the very buffer given; the caller leaves it unchanged until it is sent."""
        length = -1 if value is None else len(value)
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)
        if value:
            self._done += (self._open, value)
            self._open = bytearray()

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """The tagged fields in the order of their tags, where this encoding has any."""
        if not self.flexible:
            return
        self._open += write_unsigned_varint(len(fields))
        for tag, value in fields:
            self._open += write_unsigned_varint(tag)
            self._open += write_unsigned_varint(len(value))
            self._open += value

    def buffers(self) -> list[bytes | bytearray | memoryview]:
        """Everything written, in order."""
        return [*self._done, self._open] if self._open else list(self._done)

    def joined(self) -> bytes:
        """Everything written, as one copy."""
        return b"".join((*self._done, self._open))
