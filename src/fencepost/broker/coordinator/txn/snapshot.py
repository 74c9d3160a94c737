"""Snapshot of all transactional ids of one partition of the transaction log.

A start reads only the records after it.

Layout, big endian: `FPTX`, version int16 (3), CRC-32C uint32 of all that follows, partition int32, offset int64,
highest producer id int64, count of packed ids int32, count of others int32. Then per packed id: length of the name
uint16, the name in UTF-8, length of the packed state uint16, the packed state (`compact_idle_ids.py`). Then per other
id: length of the key uint16, the key, length of the value int32, the value, as they are in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from fencepost.protocol.crc import crc32c

__all__ = ["CorruptTransactionSnapshot", "IdsSnapshot", "decode", "encode"]

_MAGIC = b"FPTX"
_VERSION = 3
_HEAD = struct.Struct(">4shI")
_COUNTS = struct.Struct(">iqqii")
_LENGTH = struct.Struct(">H")
_LONG_LENGTH = struct.Struct(">i")


class CorruptTransactionSnapshot(ValueError):
    """The bytes are not a valid snapshot. The log is read instead."""


class IdsSnapshot(NamedTuple):
    """Ids and their states."""

    highest_producer_id: int
    """Highest producer id ever in the log, as far as known."""
    idle: Sequence[tuple[str, bytes]]
    """Names and packed states."""
    awake: Sequence[tuple[bytes, bytes]]
    """Keys and values of log records."""


def encode(partition: int, offset: int, snapshot: IdsSnapshot) -> bytes:
    """Return the bytes of a snapshot that replaces all records of the partition below the offset."""
    parts = [_COUNTS.pack(partition, offset, snapshot.highest_producer_id, len(snapshot.idle), len(snapshot.awake))]
    for name, packed in snapshot.idle:
        encoded = name.encode()
        parts += (_LENGTH.pack(len(encoded)), encoded, _LENGTH.pack(len(packed)), packed)
    for key, value in snapshot.awake:
        parts += (_LENGTH.pack(len(key)), key, _LONG_LENGTH.pack(len(value)), value)
    body = b"".join(parts)
    return _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body


def decode(data: bytes, partition: int) -> tuple[int, IdsSnapshot]:
    """Return offset and snapshot. Raises CorruptTransactionSnapshot, also for another partition's snapshot."""
    try:
        magic, version, crc = _HEAD.unpack_from(data)
        if (magic, version) != (_MAGIC, _VERSION):
            raise CorruptTransactionSnapshot(f"{magic!r} of version {version}")
        if crc != crc32c(memoryview(data)[_HEAD.size :]):
            raise CorruptTransactionSnapshot("the CRC is not that of the bytes")
        found, offset, highest, idle_count, awake_count = _COUNTS.unpack_from(data, _HEAD.size)
        if found != partition:
            raise CorruptTransactionSnapshot(f"it is of partition {found}")
        position = _HEAD.size + _COUNTS.size
        idle = []
        for _ in range(idle_count):
            start = position + 2 + (data[position] << 8 | data[position + 1])
            end = start + 2 + (data[start] << 8 | data[start + 1])
            idle.append((data[position + 2 : start].decode(), data[start + 2 : end]))
            position = end
        awake = []
        for _ in range(awake_count):
            (size,) = _LENGTH.unpack_from(data, position)
            start = position + _LENGTH.size + size
            (value_size,) = _LONG_LENGTH.unpack_from(data, start)
            end = start + _LONG_LENGTH.size + value_size
            awake.append((data[start - size : start], data[start + _LONG_LENGTH.size : end]))
            position = end
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptTransactionSnapshot(str(error)) from error
    if position != len(data):
        raise CorruptTransactionSnapshot(f"{len(data)} bytes, {position} were expected")
    return offset, IdsSnapshot(highest, idle, awake)
