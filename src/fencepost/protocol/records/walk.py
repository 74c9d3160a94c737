"""Read a batch record by record, and rebuild it: for compaction, timestamps and internal topics.

A record (format v2, all varints zigzag): length, attributes int8, timestamp delta, offset delta, key length, key, value
length, value, headers. Here each record becomes an object, in plain Python. `check.py` checks appended batches, and
`decoding.py` turns fetched batches into columns.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CompressionError, CorruptBatch
from fencepost.protocol.records.batch import CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, BatchHeader, pack_header
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from fencepost.protocol.records.plain import time_delta
from fencepost.protocol.records.spans import timestamp_of
from fencepost.protocol.varint import encode_varint, read_varint, read_varlong

__all__ = ["WalkedRecord", "pairs_of", "rebuild", "rebuilding", "record_sizes", "records_of", "section_of", "walk"]

_PLAIN: Final = frozenset(range(0, 0x80, 2))  # bytes that are a whole varint of a non-negative number


class WalkedRecord(NamedTuple):
    """One record.

    `rest` is everything after its timestamp delta, as encoded; `value_at` is the value's length in it.
    """

    offset: int
    timestamp: int
    key: bytes | None
    attributes: int
    rest: bytes
    value_at: int

    @property
    def has_value(self) -> bool:
        """False for a tombstone."""
        return not self.rest[self.value_at] & 1  # the sign of a zigzag number is its lowest bit

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone.

        Raises:
            CorruptBatch: The length does not fit.
        """
        size, start = read_varint(self.rest, self.value_at)
        if size > len(self.rest) - start:
            raise CorruptBatch(f"a value of {size} bytes, {len(self.rest) - start} are there")
        return None if size < 0 else self.rest[start : start + size]


def records_of(header: BatchHeader, batch: memoryview) -> Iterator[WalkedRecord]:
    """Yield the records of one batch, including markers.

    Raises:
        CorruptBatch: The batch does not parse.
    """
    return walk(header, section_of(header, batch))


def pairs_of(header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield (offset, key, value) of the records of an internal topic's batch; a null key becomes an empty one.

    Raises:
        CorruptBatch: The batch does not parse.
    """
    return ((record.offset, record.key or b"", record.value) for record in records_of(header, batch))


def section_of(header: BatchHeader, batch: memoryview, most_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Return the decompressed records section.

    Raises:
        CorruptBatch: The section cannot be decompressed, or the result would exceed `most_bytes`.
    """
    section = batch[HEADER_BYTES:]
    if not header.codec or not header.record_count:
        return section
    try:
        return decompress(header.compression, section, most_bytes)
    except CompressionError as error:
        raise CorruptBatch(f"its records cannot be decompressed: {error}") from error


def walk(header: BatchHeader, section: Buffer) -> Iterator[WalkedRecord]:
    """Yield the records of a decompressed section.

    Raises:
        CorruptBatch: The section does not parse.
    """
    try:
        yield from _walk(header, bytes(section))
    except IndexError as error:
        raise CorruptBatch("a record is cut short") from error


def record_sizes(section: Buffer, count: int) -> Iterator[int]:
    """Yield the size in bytes of each record of a decompressed section, without the size itself.

    Raises:
        CorruptBatch: A record is cut short.
    """
    whole, at = memoryview(section), 0
    for _ in range(count):
        try:
            length, at = read_varint(whole, at)
        except IndexError as error:
            raise CorruptBatch("a record is cut short") from error
        yield length
        at += length


def _walk(header: BatchHeader, section: bytes) -> Iterator[WalkedRecord]:
    append_time = header.max_timestamp if header.timestamp_type == "log_append_time" else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    at = 0
    for _ in range(header.record_count):
        # Inlined, because most of these numbers are one byte and calls would take most of the time.
        length, body = (section[at] >> 1, at + 1) if section[at] in _PLAIN else read_varint(section, at)
        end = body + length
        if length < 0 or end > len(section):
            raise CorruptBatch("a record is cut short")
        at = body + 1
        delta, rest = (section[at] >> 1, at + 1) if section[at] in _PLAIN else read_varlong(section, at)
        offset_delta, at = (section[rest] >> 1, rest + 1) if section[rest] in _PLAIN else read_varint(section, rest)
        key_size, at = (section[at] >> 1, at + 1) if section[at] in _PLAIN else read_varint(section, at)
        key = None
        if key_size >= 0:
            key = section[at : at + key_size]
            at += key_size
        timestamp = timestamp_of(base_timestamp, delta) if append_time is None else append_time
        if at >= end:
            raise CorruptBatch("a record is cut short")
        yield WalkedRecord(base_offset + offset_delta, timestamp, key, section[body], section[rest:end], at - rest)
        at = end


def rebuild(header: BatchHeader, records: Sequence[WalkedRecord], *, horizon_ms: int = -1) -> bytes:
    """Return the batch with only these of its records, at their offsets. Without records only the header is left.

    `horizon_ms` is the delete horizon (KIP-534), which replaces the base timestamp; -1: the batch has none.
    """
    work = rebuilding(header, records, horizon_ms=horizon_ms, at_once=max(len(records), 1))
    while True:
        try:
            next(work)
        except StopIteration as done:
            return bytes(done.value)


def rebuilding(
    header: BatchHeader, records: Sequence[WalkedRecord], *, horizon_ms: int, at_once: int
) -> Generator[tuple[()], None, bytes]:
    """Rebuild in steps of `at_once` records; like `rebuild`."""
    if not records:
        # An empty batch only records the producer's last offset and sequence.
        bare = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
        return pack_header(header._replace(attributes=bare, base_timestamp=-1, record_count=0), b"")
    append_time = header.timestamp_type == "log_append_time"
    base = horizon_ms if horizon_ms >= 0 else header.base_timestamp
    section = bytearray()
    latest = records[0].timestamp
    for number, record in enumerate(records, 1):
        body = bytes((record.attributes,)) + encode_varint(time_delta(record.timestamp, base))
        section += encode_varint(len(body) + len(record.rest))
        section += body
        section += record.rest
        latest = max(latest, record.timestamp)
        if number % at_once == 0:
            yield ()
    packed = compress(header.compression, section) if header.codec else section
    attributes = header.attributes & ~DELETE_HORIZON
    changed = header._replace(
        attributes=attributes | DELETE_HORIZON if horizon_ms >= 0 else attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp if append_time else latest,
        record_count=len(records),
    )
    return pack_header(changed, packed) + bytes(packed)
