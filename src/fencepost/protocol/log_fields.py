"""The fields that records of coordinators' topics are made of: Kafka's primitive types, as written in a log."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from uuid import UUID

from fencepost.protocol.errors import MalformedMessage

__all__ = ["FieldReader", "FieldWriter"]


class FieldWriter:
    """Kafka's primitive types, big-endian; with `flexible`, lengths are varints of length + 1 and tags exist."""

    __slots__ = ("_flexible", "data")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self.data = bytearray()

    def int16(self, value: int) -> None:
        self.data += struct.pack(">h", value)

    def int32(self, value: int) -> None:
        self.data += struct.pack(">i", value)

    def int64(self, value: int) -> None:
        self.data += struct.pack(">q", value)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def length(self, count: int) -> None:
        if self._flexible:
            self.varint(count + 1)
        else:
            self.int32(count)

    def string(self, value: str) -> None:
        encoded = value.encode()
        if self._flexible:
            self.varint(len(encoded) + 1)
        else:
            self.int16(len(encoded))
        self.data += encoded

    def nullable_string(self, value: str | None) -> None:
        if value is not None:
            self.string(value)
        elif self._flexible:
            self.varint(0)
        else:
            self.int16(-1)

    def byte_string(self, value: bytes) -> None:
        self.length(len(value))
        self.data += value

    def int8(self, value: int) -> None:
        self.data += struct.pack(">b", value)

    def uuid(self, value: UUID) -> None:
        self.data += value.bytes

    def strings(self, values: Sequence[str]) -> None:
        self.length(len(values))
        for value in values:
            self.string(value)

    def int32s(self, values: Sequence[int]) -> None:
        self.length(len(values))
        for value in values:
            self.int32(value)

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        if not self._flexible:
            return
        self.varint(len(fields))
        for tag, value in fields:
            self.varint(tag)
            self.varint(len(value))
            self.data += value


class FieldReader:
    """The counterpart of FieldWriter. Every read that does not fit raises MalformedMessage."""

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes | memoryview, *, flexible: bool = False) -> None:
        self._data = memoryview(data)
        self._position = 0
        self._flexible = flexible

    def version(self, name: str, known: Collection[int], flexible_from: int) -> int:
        """The version that a value begins with; from `flexible_from` on its fields are flexible."""
        version = self.int16()
        if version not in known:
            raise MalformedMessage(f"{name} version {version} is not known")
        self._flexible = version >= flexible_from
        return version

    def _take(self, size: int) -> memoryview:
        start = self._position
        if size < 0 or start + size > len(self._data):
            raise MalformedMessage(f"{size} bytes wanted at {start} of {len(self._data)}")
        self._position = start + size
        return self._data[start : start + size]

    def skip(self, size: int) -> None:
        self._take(size)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedMessage("a varint of more than five bytes")

    def length(self) -> int:
        count = self.varint() - 1 if self._flexible else self.int32()
        # Every element takes at least a byte: a larger count is damage, and must not become a huge loop.
        if not 0 <= count <= len(self._data) - self._position:
            raise MalformedMessage(f"a count of {count}")
        return count

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessage("null where a string is required")
        return value

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self._flexible else self.int16()
        if size == -1:
            return None
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"a string that is not UTF-8: {error}") from error

    def byte_string(self) -> bytes:
        return bytes(self._take(self.length()))

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self._take(16)))

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.length())]

    def int32s(self) -> list[int]:
        return [self.int32() for _ in range(self.length())]

    def tags(self) -> dict[int, memoryview]:
        if not self._flexible:
            return {}
        fields = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self._take(self.varint())
        return fields

    def end(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise MalformedMessage(f"{left} bytes too many")
