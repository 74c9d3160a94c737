"""Looking into one batch, and writing one anew: for compaction, for timestamps, and for keys that must be there.

A record (format v2, all varints zigzag): length, attributes int8, timestamp delta, offset delta, key length, key, value
length, value, headers. What appends and serves batches never comes here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from fencepost.broker.files import Buffer
from fencepost.protocol.batch import HEADER_BYTES, BatchHeader
from fencepost.protocol.errors import CompressionError, CorruptBatch

__all__ = ["Record", "pack_header", "rebuild", "records_of"]

DECOMPRESSED_MAX: Final = 1 << 30
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM: Final = 21
_LENGTH_PREFIX: Final = 12
_DELETE_HORIZON: Final = 0x40
_CODEC: Final = 0x07
_PLAIN: Final = frozenset(range(0, 0x80, 2))  # bytes that are a whole varint of a number that is not negative


class Record(NamedTuple):
    """One record. `rest` is all behind its timestamp delta, as it stands in the batch."""

    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool
    attributes: int
    rest: bytes


def records_of(header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    """The records of one batch, markers too. Raises CorruptBatch."""
    section = bytes(batch[HEADER_BYTES:])
    if header.codec and header.record_count:
        from fencepost.protocol.compression import decompress

        try:
            section = bytes(decompress(header.compression, section, DECOMPRESSED_MAX))
        except CompressionError as error:
            raise CorruptBatch(f"its records cannot be decompressed: {error}") from error
    try:
        yield from _walk(header, section)
    except IndexError as error:
        raise CorruptBatch("a record is cut short") from error


def _walk(header: BatchHeader, section: bytes) -> Iterator[Record]:
    append_time = header.max_timestamp if header.timestamp_type == "log_append_time" else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at = 0
    for _ in range(header.record_count):
        # Most of these numbers are one byte: a call for each would be most of the time.
        length, body = (section[at] >> 1, at + 1) if section[at] in _PLAIN else _varint(section, at)
        end = body + length
        if length < 0 or end > len(section):
            raise CorruptBatch("a record is cut short")
        at = body + 1
        time_delta, rest = (section[at] >> 1, at + 1) if section[at] in _PLAIN else _varint(section, at)
        offset_delta, at = (section[rest] >> 1, rest + 1) if section[rest] in _PLAIN else _varint(section, rest)
        key_size, at = (section[at] >> 1, at + 1) if section[at] in _PLAIN else _varint(section, at)
        key = None
        if key_size >= 0:
            key = section[at : at + key_size]
            at += key_size
        timestamp = base_timestamp + time_delta if append_time is None else append_time
        # The sign of the value's length is its lowest bit.
        yield Record(base_offset + offset_delta, timestamp, key, not section[at] & 1, section[body], section[rest:end])
        at = end


def rebuild(header: BatchHeader, records: Sequence[Record], *, horizon_ms: int = -1) -> bytes:
    """The batch with only these of its records, at their offsets; without records only its header is left.

    `horizon_ms`: the delete horizon (KIP-534), which takes the place of the base timestamp; -1: the batch has none.
    """
    if not records:
        # An empty batch says who wrote up to which offset and sequence, and nothing else.
        bare = header.attributes & ~(_DELETE_HORIZON | _CODEC)
        return pack_header(header._replace(attributes=bare, base_timestamp=-1, record_count=0), b"")
    append_time = header.timestamp_type == "log_append_time"
    base = horizon_ms if horizon_ms >= 0 else header.base_timestamp
    section = bytearray()
    for record in records:
        body = bytearray((record.attributes,))
        _put(body, record.timestamp - base)
        _put(section, len(body) + len(record.rest))
        section += body
        section += record.rest
    packed: Buffer = section
    if header.codec:
        from fencepost.protocol.compression import compress

        packed = compress(header.compression, section)
    attributes = header.attributes & ~_DELETE_HORIZON
    changed = header._replace(
        attributes=attributes | _DELETE_HORIZON if horizon_ms >= 0 else attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp if append_time else max(record.timestamp for record in records),
        record_count=len(records),
    )
    return pack_header(changed, packed) + bytes(packed)


def pack_header(header: BatchHeader, section: Buffer) -> bytes:
    """The 61 bytes in front of that records section; length and CRC are set."""
    length = HEADER_BYTES - _LENGTH_PREFIX + len(section)
    packed = _HEADER.pack(*header._replace(batch_length=length, crc=0))
    return _HEADER.pack(*header._replace(batch_length=length, crc=crc32c(section, crc32c(packed[_CRC_FROM:]))))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7


def _put(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
