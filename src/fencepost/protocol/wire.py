"""Readers and writers for the value types of Kafka's messages; the generated modules in `protocol.messages` call them.

A reader takes (data, position) and returns (value, next position). A writer appends to a bytearray. "compact" means
the encodings of flexible versions (KIP-482). Generated code reads short compact values inline. A longer length is
compared with the bytes left before memory is allocated, so a forged length cannot allocate more than the message's
own size. Readers raise MalformedMessage, struct.error, IndexError or UnicodeDecodeError for invalid bytes, which
`protocol.codec` turns into MalformedMessage. Writers raise ValueError for values that the wire cannot represent.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Final, TypeVar
from uuid import UUID

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import read_unsigned_varint, skip_tagged_fields, write_unsigned_varint

__all__ = [
    "MOST_STRING_BYTES",
    "UNPACK_INT32S",
    "Codec",
    "check_end",
    "need",
    "new",
    "read_array",
    "read_bytes",
    "read_compact_array",
    "read_compact_bytes",
    "read_compact_int8s",
    "read_compact_int16s",
    "read_compact_int32s",
    "read_compact_int64s",
    "read_compact_nullable_array",
    "read_compact_nullable_int32s",
    "read_compact_nullable_string",
    "read_compact_string",
    "read_compact_strings",
    "read_int32s",
    "read_nullable",
    "read_nullable_array",
    "read_nullable_string",
    "read_string",
    "read_strings",
    "read_tag",
    "read_unsigned_varint",
    "skip_tagged_fields",
    "uuid_of",
    "uuid_text",
    "write_array",
    "write_bytes",
    "write_compact_array",
    "write_compact_bytes",
    "write_compact_int8s",
    "write_compact_int16s",
    "write_compact_int32s",
    "write_compact_int64s",
    "write_compact_nullable_array",
    "write_compact_nullable_int32s",
    "write_compact_nullable_string",
    "write_compact_string",
    "write_int32s",
    "write_nullable",
    "write_nullable_array",
    "write_nullable_string",
    "write_string",
    "write_tags",
    "write_uuid",
]

T = TypeVar("T")
Read = Callable[[bytes, int], tuple[T, int]]
ReadMany = Callable[[bytes, int, int], tuple[list[T], int]]
Write = Callable[[bytearray, T], None]
Codec = Mapping[int, tuple[Read[T], Write[T]]]
"""The reader and the writer of a message, by version."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
MOST_STRING_BYTES: Final = 32_767  # Kafka's limit, which also applies to the compact encoding
_SHORT = 126  # the longest compact length whose varint is one byte
_INT32S = tuple(Struct(f">{count}i") for count in range(_SHORT + 1))

UNPACK_INT32S = tuple(Struct(f">{size - 1}i" if size else "").unpack_from for size in range(_SHORT + 2))
"""Readers of a compact int32 array, indexed by the array's first byte, which is the number of elements plus 1."""

new = object.__new__
"""Create an instance without setting its defaults, for a reader that sets every field."""


def need(value: T | None, name: str) -> T:
    """Return the value of a field that must not be null in this version.

    Raises:
        ValueError: The value is None.
    """
    if value is None:
        raise ValueError(f"{name} is null, which this version cannot say")
    return value


# --- lengths ---


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length or count, -1 for null."""
    first = data[at]
    if first < 0x80:
        return first - 1, at + 1
    second = data[at + 1]
    if second < 0x80:
        return (second << 7 | first & 0x7F) - 1, at + 2
    length, at = read_unsigned_varint(data, at)
    return length - 1, at


def _write_compact_length(out: bytearray, length: int) -> None:
    if length <= _SHORT:
        out.append(length + 1)
    else:
        out += write_unsigned_varint(length + 1)


def _check_count(data: bytes, at: int, count: int, least: int) -> None:
    """Raise MalformedMessage if `count` elements of at least `least` bytes cannot fit in the bytes left."""
    if count < 0:
        raise MalformedMessage("null where an array must be")
    if count * least > len(data) - at:
        raise MalformedMessage(f"an array of {count} elements in {len(data) - at} bytes")


# --- strings, byte strings, UUIDs ---


def _no_string(data: bytes, at: int, size: int) -> MalformedMessage:
    """Return an error that explains why no string of `size` bytes can be read at `at`."""
    if size < 0:
        return MalformedMessage("null where a string must be")
    if size > len(data) - at:
        return MalformedMessage(f"a string of {size} bytes in {len(data) - at}")
    return MalformedMessage(f"a string of {size} bytes, at most {MOST_STRING_BYTES} are allowed")


def read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(data, at)
    at += 2
    end = at + size
    if size < 0 or end > len(data):
        raise _no_string(data, at, size)
    return data[at:end].decode(), end


def read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, at)
    return (None, at + 2) if size < 0 else read_string(data, at)


def read_compact_string(data: bytes, at: int) -> tuple[str, int]:
    size, at = _compact_length(data, at)
    end = at + size
    if not 0 <= size <= MOST_STRING_BYTES or end > len(data):
        raise _no_string(data, at, size)
    return data[at:end].decode(), end


def read_compact_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    return (None, at + 1) if data[at] == 0 else read_compact_string(data, at)


def _check_string(size: int) -> None:
    if size > MOST_STRING_BYTES:
        raise ValueError(f"a string of {size} bytes, at most {MOST_STRING_BYTES} are allowed")


def write_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    size = len(encoded)
    _check_string(size)
    out += _INT16.pack(size)
    out += encoded


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    size = len(encoded)
    if size <= _SHORT:  # nearly always
        out.append(size + 1)
    else:
        _check_string(size)
        out += write_unsigned_varint(size + 1)
    out += encoded


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def _blob(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0:
        raise MalformedMessage("null where bytes must be")
    end = at + size
    if end > len(data):
        raise MalformedMessage(f"{size} bytes wanted, {len(data) - at} are left")
    return data[at:end], end


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    return _blob(data, at + 4, _INT32.unpack_from(data, at)[0])


def read_compact_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _compact_length(data, at)
    return _blob(data, at, size)


def write_bytes(out: bytearray, value: bytes) -> None:
    out += _INT32.pack(len(value))
    out += value


def write_compact_bytes(out: bytearray, value: bytes) -> None:
    _write_compact_length(out, len(value))
    out += value


@lru_cache(maxsize=4096)  # the same few topics are named in message after message
def uuid_of(raw: bytes) -> UUID | None:
    """Return the UUID of 16 bytes; None for the zero UUID."""
    if len(raw) < 16:
        raise MalformedMessage("a UUID cut short")
    return UUID(bytes=raw) if any(raw) else None


def uuid_text(value: UUID) -> str:
    """Return the UUID as Kafka and its tools print it: base64 for addresses, without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def write_uuid(out: bytearray, value: UUID | None) -> None:
    out += bytes(16) if value is None else value.bytes


# --- arrays: `least` is the size of the smallest element in bytes, `read` reads a given number of elements ---


def read_array(data: bytes, at: int, read: ReadMany[T], least: int) -> tuple[list[T], int]:
    (count,) = _INT32.unpack_from(data, at)
    _check_count(data, at + 4, count, least)
    return read(data, at + 4, count)


def read_nullable_array(data: bytes, at: int, read: ReadMany[T], least: int) -> tuple[list[T] | None, int]:
    (count,) = _INT32.unpack_from(data, at)
    return (None, at + 4) if count < 0 else read_array(data, at, read, least)


def read_compact_array(data: bytes, at: int, read: ReadMany[T], least: int) -> tuple[list[T], int]:
    count, at = _compact_length(data, at)
    _check_count(data, at, count, least)
    return read(data, at, count)


def read_compact_nullable_array(data: bytes, at: int, read: ReadMany[T], least: int) -> tuple[list[T] | None, int]:
    return (None, at + 1) if data[at] == 0 else read_compact_array(data, at, read, least)


def read_strings(data: bytes, at: int, count: int) -> tuple[list[str], int]:
    values = []
    while count:
        count -= 1
        value, at = read_string(data, at)
        values.append(value)
    return values, at


def read_compact_strings(data: bytes, at: int, count: int) -> tuple[list[str], int]:
    values = []
    while count:
        count -= 1
        size = data[at]
        if 0 < size < 0x80:  # nearly always
            end = at + size
            values.append(data[at + 1 : end].decode())
            at = end
        else:
            value, at = read_compact_string(data, at)
            values.append(value)
    return values, at


def write_array(out: bytearray, values: Sequence[T], write: Write[T]) -> None:
    out += _INT32.pack(len(values))
    for value in values:
        write(out, value)


def write_nullable_array(out: bytearray, values: Sequence[T] | None, write: Write[T]) -> None:
    if values is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_array(out, values, write)


def write_compact_array(out: bytearray, values: Sequence[T], write: Write[T]) -> None:
    count = len(values)
    if count <= _SHORT:  # nearly always
        out.append(count + 1)
    else:
        out += write_unsigned_varint(count + 1)
    for value in values:
        write(out, value)


def write_compact_nullable_array(out: bytearray, values: Sequence[T] | None, write: Write[T]) -> None:
    if values is None:
        out.append(0)
    else:
        write_compact_array(out, values, write)


# --- arrays of integers, which are read as tuples ---


def _int32s(data: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    _check_count(data, at, count, 4)
    return unpack_from(f">{count}i", data, at), at + 4 * count


def read_int32s(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    return _int32s(data, at + 4, _INT32.unpack_from(data, at)[0])


def read_compact_int32s(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _compact_length(data, at)
    return _int32s(data, at, count)


def read_compact_nullable_int32s(data: bytes, at: int) -> tuple[tuple[int, ...] | None, int]:
    return (None, at + 1) if data[at] == 0 else read_compact_int32s(data, at)


def read_compact_int8s(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _compact_length(data, at)
    _check_count(data, at, count, 1)
    return unpack_from(f">{count}b", data, at), at + count


def read_compact_int16s(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _compact_length(data, at)
    _check_count(data, at, count, 2)
    return unpack_from(f">{count}h", data, at), at + 2 * count


def read_compact_int64s(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _compact_length(data, at)
    _check_count(data, at, count, 8)
    return unpack_from(f">{count}q", data, at), at + 8 * count


def write_int32s(out: bytearray, values: Sequence[int]) -> None:
    out += _INT32.pack(len(values))
    out += Struct(f">{len(values)}i").pack(*values)


def write_compact_int32s(out: bytearray, values: Sequence[int]) -> None:
    count = len(values)
    if count <= _SHORT:
        out.append(count + 1)
        out += _INT32S[count].pack(*values)
    else:
        out += write_unsigned_varint(count + 1)
        out += Struct(f">{count}i").pack(*values)


def write_compact_nullable_int32s(out: bytearray, values: Sequence[int] | None) -> None:
    if values is None:
        out.append(0)
    else:
        write_compact_int32s(out, values)


def write_compact_int64s(out: bytearray, values: Sequence[int]) -> None:
    _write_compact_length(out, len(values))
    out += Struct(f">{len(values)}q").pack(*values)


def write_compact_int16s(out: bytearray, values: Sequence[int]) -> None:
    _write_compact_length(out, len(values))
    out += Struct(f">{len(values)}h").pack(*values)


def write_compact_int8s(out: bytearray, values: Sequence[int]) -> None:
    out += write_unsigned_varint(len(values) + 1)
    out += Struct(f">{len(values)}b").pack(*values)


# --- structures that may be null (KIP-893), tagged fields (KIP-482) ---


def read_nullable(data: bytes, at: int, read: Read[T]) -> tuple[T | None, int]:
    return (None, at + 1) if data[at] >= 0x80 else read(data, at + 1)


def write_nullable(out: bytearray, value: T | None, write: Write[T]) -> None:
    if value is None:
        out.append(0xFF)
    else:
        out.append(1)
        write(out, value)


def read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """Return (tag, end of its value, start of its value)."""
    tag, size = data[at], data[at + 1]
    if tag < 0x80 and size < 0x80:  # nearly always
        at += 2
    else:
        tag, at = read_unsigned_varint(data, at)
        size, at = read_unsigned_varint(data, at)
    if size > len(data) - at:
        raise MalformedMessage(f"a tagged field of {size} bytes in {len(data) - at}")
    return tag, at + size, at


def check_end(at: int, end: int) -> None:
    """Raise MalformedMessage if a tagged field does not end where its size says."""
    if at != end:
        raise MalformedMessage(f"a tagged field ends at {at}, not at {end}")


def write_tags(out: bytearray, tags: Sequence[tuple[int, bytes | bytearray]]) -> None:
    """Write the tagged fields that differ from their defaults, sorted by tag."""
    out.append(len(tags))
    for tag, value in tags:
        out += write_unsigned_varint(tag)
        out += write_unsigned_varint(len(value))
        out += value
