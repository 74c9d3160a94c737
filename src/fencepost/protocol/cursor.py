"""A reader and a writer for the messages and log records that are encoded by hand.

`flexible` selects the encoding of strings, byte strings, arrays and tagged fields (KIP-482). The generated modules in
`protocol.messages` use the functions of `wire.py` instead, which need their input as `bytes`. A `Reader` does not copy
the slices that it returns, so fetched records stay in the receive buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import read_unsigned_varint, skip_tagged_fields, write_unsigned_varint
from fencepost.protocol.wire import uuid_of

__all__ = ["Buffer", "Reader", "Writer"]

Buffer = bytes | bytearray | memoryview

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UUID_BYTES = 16
_ONE_BYTE = 0x80
"""A varint below it has one byte."""


class Reader:
    """Reads values one after the other.

    Every method raises MalformedMessage if the bytes end too early or are not valid.
    """

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: bytes | bytearray | memoryview, flexible: bool = False, position: int = 0) -> None:
        self.data = memoryview(data)
        self.flexible = flexible
        self.position = position

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self.data) - self.position

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes as a slice of the input."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise MalformedMessage(f"{size} bytes wanted at byte {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def end(self) -> None:
        """Raise MalformedMessage if bytes are left."""
        if self.left:
            raise MalformedMessage(f"{self.left} bytes too many")

    # --- numbers ---

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read several values of fixed size."""
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
        """Read the version at the start of a log record. Versions from `flexible_from` on have flexible fields."""
        version = self.int16()
        if version not in known:
            raise MalformedMessage(f"{name} version {version} is not known")
        self.flexible = version >= flexible_from
        return version

    def uuid(self) -> UUID | None:
        """Read a topic id; None for the zero UUID."""
        return uuid_of(bytes(self.take(_UUID_BYTES)))

    # --- arrays, strings, byte strings; a negative length is null ---

    def _length(self, fixed: struct.Struct) -> int:
        """Read a length: a varint of length + 1 if flexible, otherwise a number in the layout `fixed`. -1 is null."""
        if not self.flexible:
            return self._number(fixed)
        data, position = self.data, self.position
        if position < len(data) and (first := data[position]) < _ONE_BYTE:  # nearly always
            self.position = position + 1
            return first - 1
        length, self.position = read_unsigned_varint(data, position)
        return length - 1

    def array_length(self) -> int:
        """Read the number of elements, -1 for null.

        Each element takes at least one byte, so more elements than bytes left are malformed.
        """
        length = self._length(_INT32)
        if length > len(self.data) - self.position:
            raise MalformedMessage(f"a count of {length} elements in {self.left} bytes")
        return length

    def count(self) -> int:
        """Read the number of elements of an array that must not be null."""
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
        """Read bytes as a slice of the input, without a copy."""
        length = self._length(_INT32)
        return None if length < 0 else self.take(length)

    def byte_string(self) -> bytes:
        """Read bytes that must not be null, as a copy."""
        value = self.nullable_bytes()
        if value is None:
            raise MalformedMessage("null where bytes must be")
        return bytes(value)

    # --- tagged fields; an encoding that is not flexible has none ---

    def skip_tags(self) -> None:
        if self.flexible:
            data, position = self.data, self.position
            has_none = position < len(data) and not data[position]  # nearly always
            self.position = position + 1 if has_none else skip_tagged_fields(data, position)

    def tags(self) -> dict[int, memoryview]:
        """Read the tagged fields; return the bytes of each by its tag."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            fields[tag] = self.take(self.unsigned_varint())
        return fields


class Writer:
    """Collects values. `buffers()` returns them without copying large byte strings."""

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
        """Write the length of an array; -1 writes a null array."""
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)

    def strings(self, values: Sequence[str]) -> None:
        self.array_length(len(values))
        for value in values:
            self.string(value)

    def int32s(self, values: Sequence[int]) -> None:
        count = len(values)
        self.array_length(count)
        self._open += struct.pack(f">{count}i", *values)

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
        """Write a byte string without copying it. The caller must not change the buffer until it has been sent."""
        length = -1 if value is None else len(value)
        self._open += write_unsigned_varint(length + 1) if self.flexible else _INT32.pack(length)
        if value:
            self._done += (self._open, value)
            self._open = bytearray()

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """Write the tagged fields, sorted by tag. An encoding that is not flexible has none."""
        if not self.flexible:
            return
        self._open += write_unsigned_varint(len(fields))
        for tag, value in fields:
            self._open += write_unsigned_varint(tag)
            self._open += write_unsigned_varint(len(value))
            self._open += value

    def buffers(self) -> list[bytes | bytearray | memoryview]:
        """Return everything written, in order."""
        return [*self._done, self._open] if self._open else list(self._done)

    def joined(self) -> bytes:
        """Return everything written, as one copy."""
        return b"".join((*self._done, self._open))
