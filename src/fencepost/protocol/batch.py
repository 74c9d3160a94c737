"""Record batch, magic 2 (KIP-98): the 61 byte header, its CRC, and the few places that are stamped afterwards.

Nothing here looks into the records section; `columns.py` does. Integers are big-endian. The layout, by byte positions:

     0 base_offset int64        12 partition_leader_epoch int32     27 base_timestamp int64      51 producer_epoch int16
     8 batch_length int32       16 magic int8                       35 max_timestamp int64       53 base_sequence int32
       (bytes behind it)        17 crc uint32 (CRC-32C of 21...)    43 producer_id int64         57 record_count int32
                                21 attributes int16                                              61 records
                                23 last_offset_delta int32

The CRC starts behind itself, so a broker assigns base_offset and partition_leader_epoch without recomputing it.
This module imports neither numpy nor numba: a broker must start fast.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from fencepost.protocol.errors import CorruptBatch, UnsupportedCompression, UnsupportedMagic

__all__ = [
    "CODECS",
    "HEADER_BYTES",
    "LENGTH_PREFIX_BYTES",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Buffer",
    "add_sequence",
    "iter_batches",
    "parse_header",
    "seal",
    "seal_in_place",
    "set_base_offset_and_leader_epoch",
    "set_log_append_time",
    "set_producer",
    "verify_crc",
]

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12  # base_offset and batch_length, which batch_length does not count
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")  # by their number in the attributes

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_BEFORE_CRC = struct.Struct(">qiib")
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")

_LENGTH_AT, _LEADER_EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 12, 16, 17, 21
_MAX_TIMESTAMP_AT, _PRODUCER_AT = 35, 43

_CODEC_MASK, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
_MIN_LENGTH_V2 = HEADER_BYTES - LENGTH_PREFIX_BYTES
_MAX_SEQUENCE = 2**31 - 1


def add_sequence(sequence: int, count: int) -> int:
    """`sequence` + `count`, wrapping to 0 after 2**31 - 1 as Kafka does (never negative)."""
    return (sequence + count) % (_MAX_SEQUENCE + 1)


class BatchHeader(NamedTuple):
    """One parsed header. Timestamps are milliseconds since 1970 (-1: none); sizes are bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, length prefix included."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; -1 for a batch without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """The compression's number, 0 to 7; 5 to 7 are not defined."""
        return self.attributes & _CODEC_MASK

    @property
    def compression(self) -> str:
        """none, gzip, snappy, lz4 or zstd. Raises UnsupportedCompression for a number beyond these."""
        codec = self.attributes & _CODEC_MASK
        if codec >= len(CODECS):
            raise UnsupportedCompression(f"compression codec {codec}")
        return CODECS[codec]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Set by compaction: base_timestamp then holds the delete horizon (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON)

    @property
    def timestamp_type(self) -> str:
        """create_time or log_append_time."""
        return "log_append_time" if self.attributes & _LOG_APPEND_TIME else "create_time"


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch that starts at `position`.

    Checks what is needed to walk on: 61 bytes are there, magic is 2, the length covers the header. Counts and deltas
    are given as found, because what is wrong with them has different answers on the wire. Raises CorruptBatch
    (UnsupportedMagic for magic 0 and 1).
    """
    if len(buffer) - position < HEADER_BYTES or position < 0:
        if position >= 0 and len(buffer) - position > _MAGIC_AT:
            _check_magic(buffer[position + _MAGIC_AT])
        raise CorruptBatch(f"{len(buffer) - position} bytes cannot hold a record batch header")
    _check_magic(buffer[position + _MAGIC_AT])
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.batch_length < _MIN_LENGTH_V2:
        raise CorruptBatch(f"batch length {header.batch_length} is less than the header")
    return header


def iter_batches(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of `buffer` with its header; the memoryviews share the buffer's memory.

    A last batch that is cut short raises CorruptBatch, or ends the walk with `allow_partial` (a fetch may end in one).
    """
    view = memoryview(buffer)
    position, size = 0, len(view)
    while position < size:
        remaining = size - position
        if allow_partial and remaining < HEADER_BYTES:
            if remaining > _MAGIC_AT:
                _check_magic(view[position + _MAGIC_AT])
            return
        header = parse_header(view, position)
        if header.size_bytes > remaining:
            if allow_partial:
                return
            raise CorruptBatch(f"batch of {header.size_bytes} bytes, {remaining} are there")
        yield header, view[position : position + header.size_bytes]
        position += header.size_bytes


def verify_crc(batch: Buffer) -> bool:
    """Whether the stored CRC-32C is that of the bytes. `batch` is exactly one batch."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        return False
    (stored,) = _CRC.unpack_from(view, _CRC_AT)
    return bool(stored == crc32c(view[_ATTRIBUTES_AT:]))


def seal(
    records_section: Buffer,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: str = "none",
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
) -> bytearray:
    """A whole batch: header, the given (already compressed) records section, CRC. Raises UnsupportedCompression."""
    batch = bytearray(HEADER_BYTES) + records_section
    seal_in_place(
        batch,
        record_count=record_count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        compression=compression,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        log_append_time=log_append_time,
        last_offset_delta=last_offset_delta,
    )
    return batch


def seal_in_place(
    batch: bytearray | memoryview,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: str = "none",
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
) -> None:
    """Write header and CRC into the first 61 bytes of `batch`, whose records section is already in place."""
    if len(batch) < HEADER_BYTES:
        raise ValueError(f"{len(batch)} bytes leave no room for the header")
    attributes = (
        _codec_number(compression)
        | (_LOG_APPEND_TIME if log_append_time else 0)
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
    )
    _BEFORE_CRC.pack_into(batch, 0, base_offset, len(batch) - LENGTH_PREFIX_BYTES, partition_leader_epoch, MAGIC)
    _FROM_ATTRIBUTES.pack_into(
        batch,
        _ATTRIBUTES_AT,
        attributes,
        record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _stamp_crc(batch)


def set_base_offset_and_leader_epoch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """What a broker assigns on append. Outside the CRC, which stays valid."""
    (batch_length,) = _LEADER_EPOCH.unpack_from(batch, _LENGTH_AT)
    _OFFSET_AND_LENGTH.pack_into(batch, 0, base_offset, batch_length)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def set_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    """Stamp a sealed batch with another producer's identity (a retry after an epoch bump) and recompute the CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    attributes = attributes | _TRANSACTIONAL if transactional else attributes & ~_TRANSACTIONAL
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _stamp_crc(batch)


def set_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """What a broker does on a topic with message.timestamp.type=LogAppendTime. Recomputes the CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _stamp_crc(batch)


def _stamp_crc(batch: bytearray | memoryview) -> None:
    with memoryview(batch) as view:
        _CRC.pack_into(batch, _CRC_AT, crc32c(view[_ATTRIBUTES_AT:]))


def _codec_number(compression: str) -> int:
    if compression not in CODECS:
        raise UnsupportedCompression(f"compression {compression!r}; Kafka knows {', '.join(CODECS)}")
    return CODECS.index(compression)


def _check_magic(magic: int) -> None:
    if magic == MAGIC:
        return
    if magic in (0, 1):
        raise UnsupportedMagic(f"message set of magic {magic}, written before Kafka 0.11; only magic 2 is supported")
    raise CorruptBatch(f"magic {magic}")
