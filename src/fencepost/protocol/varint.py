"""Kafka's varints: unsigned in messages (KIP-482), zigzag in records. Seven bits per byte, lowest first."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.errors import CorruptBatch, MalformedMessage

__all__ = [
    "encode_varint",
    "read_unsigned_varint",
    "read_unsigned_varlong",
    "read_varint",
    "read_varlong",
    "skip_tagged_fields",
    "write_unsigned_varint",
]

_ONE_BYTE: Final = [bytes([value]) for value in range(0x80)]
_BITS_32: Final = 35  # seven bits in each of five bytes
_BITS_64: Final = 70


def read_unsigned_varint(data: bytes | memoryview, position: int, most_bits: int = _BITS_32) -> tuple[int, int]:
    """Return (value, next position) of an unsigned varint of at most five bytes, or `most_bits` divided by seven.

    Raises:
        MalformedMessage: The varint is truncated or too long.
    """
    try:
        byte = data[position]
        if byte < 0x80:  # nearly always
            return byte, position + 1
        value, shift = byte & 0x7F, 7
        while shift < most_bits:
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position + 1
            shift += 7
    except IndexError as error:
        raise MalformedMessage("varint cut short") from error
    raise MalformedMessage(f"varint of more than {most_bits // 7} bytes")


def read_unsigned_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (value, next position) of an unsigned varint of at most ten bytes, of which 64 bits are used.

    Raises:
        MalformedMessage: The varint is truncated or too long.
    """
    value, position = read_unsigned_varint(data, position, _BITS_64)
    return value & 0xFFFFFFFFFFFFFFFF, position


def write_unsigned_varint(value: int) -> bytes:
    """Encode an unsigned value of up to 32 bits, or a zigzag-encoded value of up to 64 bits."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:  # nearly always
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (value, next position) of a zigzag int32, the encoding of a record's lengths, counts and offset deltas.

    As in Kafka, at most five bytes are read and 32 bits of them are used.

    Raises:
        CorruptBatch: The varint is truncated or too long.
    """
    return _read_zigzag(data, position, _BITS_32, 0xFFFFFFFF)


def read_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (value, next position) of a zigzag int64, the encoding of timestamp deltas; at most ten bytes.

    Raises:
        CorruptBatch: The varint is truncated or too long.
    """
    return _read_zigzag(data, position, _BITS_64, 0xFFFFFFFFFFFFFFFF)


def _read_zigzag(data: bytes | memoryview, position: int, most_bits: int, mask: int) -> tuple[int, int]:
    """Read a zigzag varint of at most `most_bits` bits. The limit prevents quadratic time for an endless varint."""
    try:
        byte = data[position]
        if byte < 0x80:  # nearly always
            return (byte >> 1) ^ -(byte & 1), position + 1
        raw, shift = byte & 0x7F, 7
        while shift < most_bits:
            position += 1
            byte = data[position]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= mask
                return (raw >> 1) ^ -(raw & 1), position + 1
            shift += 7
    except IndexError as error:
        raise CorruptBatch("varint cut short") from error
    raise CorruptBatch(f"varint of more than {most_bits // 7} bytes")


def encode_varint(value: int) -> bytes:
    """Encode an int32 or int64 as a zigzag varint."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    return _ONE_BYTE[raw] if raw < 0x80 else write_unsigned_varint(raw)


def skip_tagged_fields(data: bytes | memoryview, position: int) -> int:
    """Return the position after a section of tagged fields, ignoring the fields.

    Raises:
        MalformedMessage: The section is truncated.
    """
    if data[position : position + 1] == b"\x00":  # nearly always
        return position + 1
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise MalformedMessage("tagged fields cut short")
    return position
