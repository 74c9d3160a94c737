"""Batches of the internal topics: a few small records, uncompressed, written and read without the column kernels.

Layout of a record (Kafka's format v2): length, attributes (one byte, 0), timestamp delta, offset delta, key length,
key, value length, value, header count; lengths, deltas and counts are zigzag varints, length -1 is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.protocol.batch import HEADER_BYTES, BatchHeader, seal
from fencepost.protocol.compression import decompress
from fencepost.protocol.errors import CorruptBatch

__all__ = ["InternalRecord", "encode_internal_batch", "read_internal_records"]

InternalRecord = tuple[bytes, bytes | None]
_LARGEST_BATCH = 64 * 1024 * 1024


def encode_internal_batch(
    records: Sequence[InternalRecord],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A sealed batch of (key, value) records that all carry the same time."""
    section = bytearray()
    for delta, (key, value) in enumerate(records):
        body = bytearray(1)
        _write(body, 0)
        _write(body, delta)
        _write(body, len(key))
        body += key
        _write(body, -1 if value is None else len(value))
        body += value or b""
        _write(body, 0)
        _write(section, len(body))
        section += body
    return seal(
        section,
        record_count=len(records),
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def read_internal_records(header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of each record of one batch that is not a control batch. Raises CorruptBatch."""
    section: bytes | memoryview = batch[HEADER_BYTES:]
    if header.compression != "none":
        section = memoryview(decompress(header.compression, section, _LARGEST_BATCH))
    position = 0
    for _ in range(header.record_count):
        length, start = _read(section, position)
        position = start + length
        delta, key, value = _read_record(section, start)
        yield header.base_offset + delta, key, value


def _read_record(section: bytes | memoryview, start: int) -> tuple[int, bytes, bytes | None]:
    _, position = _read(section, start + 1)
    delta, position = _read(section, position)
    size, position = _read(section, position)
    key = bytes(section[position : position + max(size, 0)])
    position += max(size, 0)
    size, position = _read(section, position)
    return delta, key, None if size < 0 else bytes(section[position : position + size])


def _write(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _read(data: bytes | memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise CorruptBatch("a record of an internal topic is cut short")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
