"""Headers section of a record: a count, then key and value of each. Lengths are zigzag varints (-1: null value)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.varint import encode_varint, read_varint

__all__ = ["Header", "encode_headers", "parse_headers"]

Header = tuple[str, bytes | None]


def encode_headers(headers: Sequence[Header] | Mapping[str, bytes | None]) -> bytes:
    """Encode the section, count included. Keys may repeat; their order is preserved."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    parts = [encode_varint(len(pairs))]
    for key, value in pairs:
        encoded = key.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (encode_varint(-1),) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def parse_headers(section: bytes) -> list[Header]:
    """Return the headers in order. Bytes of a key that are not UTF-8 become U+FFFD, as in Kafka's clients.

    Raises:
        CorruptBatch: The section does not parse.
    """
    count, position = read_varint(section, 0)
    headers: list[Header] = []
    for _ in range(count):
        length, position = read_varint(section, position)
        end = position + length
        if length < 0 or end > len(section):
            raise CorruptBatch(f"header key of {length} bytes")
        key = section[position:end].decode(errors="replace")
        length, position = read_varint(section, end)
        if length > len(section) - position:
            raise CorruptBatch(f"header value of {length} bytes")
        headers.append((key, None if length < 0 else section[position : position + length]))
        position += max(length, 0)
    return headers
