"""A record's headers section: a count, then key and value of each; lengths are zigzag varints (-1: null value)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.protocol.errors import CorruptBatch

__all__ = ["Header", "encode_headers", "encode_varint", "parse_headers"]

Header = tuple[str, bytes | None]

_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def encode_headers(headers: Sequence[Header] | Mapping[str, bytes | None]) -> bytes:
    """The encoded section, count included. Keys may repeat; their order is kept."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    parts = [encode_varint(len(pairs))]
    for key, value in pairs:
        encoded = key.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (encode_varint(-1),) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def parse_headers(section: bytes) -> list[Header]:
    """The headers in their order. Raises CorruptBatch, also for a key that is not UTF-8."""
    count, position = _read_varint(section, 0)
    found: list[Header] = []
    for _ in range(count):
        length, position = _read_varint(section, position)
        end = position + length
        if length < 0 or end > len(section):
            raise CorruptBatch(f"header key of {length} bytes")
        try:
            key = section[position:end].decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch("header key is not UTF-8") from error
        length, position = _read_varint(section, end)
        if length > len(section) - position:
            raise CorruptBatch(f"header value of {length} bytes")
        found.append((key, None if length < 0 else section[position : position + length]))
        position += max(length, 0)
    return found


def encode_varint(value: int) -> bytes:
    """A zigzag varint, as lengths and deltas of a record are written (int32 or int64)."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    if raw < 0x80:
        return _ONE_BYTE[raw]
    output = bytearray()
    while raw >= 0x80:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
    return bytes(output)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise CorruptBatch("varint cut short or too long")
