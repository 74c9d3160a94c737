"""Record batch, magic 2 (KIP-98): the 61-byte header, its CRC, and the fields that are set after sealing.

This module does not read the records section; `columns.py` and `walk.py` do. Integers are big-endian. The layout, by
byte positions:

     0 base_offset int64        12 partition_leader_epoch int32     27 base_timestamp int64      51 producer_epoch int16
     8 batch_length int32       16 magic int8                       35 max_timestamp int64       53 base_sequence int32
       (bytes after it)         17 crc uint32 (CRC-32C of 21...)    43 producer_id int64         57 record_count int32
                                21 attributes int16                                              61 records
                                23 last_offset_delta int32

The CRC does not cover the bytes before it, so a broker sets base_offset and partition_leader_epoch without computing it
again. This module does not import numpy, to keep a broker's start-up fast.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Required, TypedDict, Unpack

from fencepost.protocol.crc import crc32c
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch, UnsupportedCompression, UnsupportedMagic

__all__ = [
    "CODECS",
    "CODEC_MASK",
    "CONTROL",
    "CRC_FROM",
    "DELETE_HORIZON",
    "HEADER_BYTES",
    "LENGTH",
    "LENGTH_AT",
    "LENGTH_PREFIX_BYTES",
    "LOG_APPEND_TIME",
    "LOG_FIELDS_BYTES",
    "MAGIC",
    "MAGIC_AT",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "PARTITION_LEADER_EPOCH_AT",
    "TRANSACTIONAL",
    "WALK",
    "BatchHeader",
    "HeaderFields",
    "Stamp",
    "add_sequence",
    "iter_batches",
    "pack_header",
    "parse_header",
    "says_log_append_time",
    "says_transactional",
    "seal",
    "seal_in_place",
    "set_producer",
    "verify_crc",
    "with_log_fields",
]


HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12  # base_offset and batch_length, which batch_length does not count
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")  # indexed by their number in the attributes

_CODEC_NUMBERS: Final = {name: number for number, name in enumerate(CODECS)}

# Attributes. The codec's number is the lowest three bits.
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40

LENGTH_AT, PARTITION_LEADER_EPOCH_AT, MAGIC_AT, _CRC_AT, CRC_FROM = 8, 12, 16, 17, 21
_ATTRIBUTES_AT, _PRODUCER_AT = CRC_FROM, 43

_HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH: Final = struct.Struct(">i")
WALK: Final = struct.Struct(">qiibIhi")
"""base_offset to last_offset_delta: enough to go from batch to batch, and cheaper than a whole header."""
_LOG_FIELDS = struct.Struct(">qii")
LOG_FIELDS_BYTES: Final = _LOG_FIELDS.size  # the fields that the log sets, before the magic byte
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

_MIN_LENGTH_V2 = HEADER_BYTES - LENGTH_PREFIX_BYTES
_MAX_SEQUENCE = 2**31 - 1


def add_sequence(sequence: int, count: int) -> int:
    """Return `sequence` + `count`, which wraps to 0 after 2**31 - 1 as in Kafka and is never negative."""
    return (sequence + count) % (_MAX_SEQUENCE + 1)


class BatchHeader(NamedTuple):
    """A parsed header. Timestamps are milliseconds since 1970 (-1: none); sizes are bytes."""

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
        """Size of the whole batch in bytes, length prefix included."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 for a batch without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """Number of the compression codec, 0 to 7; 5 to 7 are not defined."""
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> str:
        """Name of the compression codec: none, gzip, snappy, lz4 or zstd.

        Raises:
            UnsupportedCompression: The number is not defined.
        """
        codec = self.attributes & CODEC_MASK
        if codec >= len(CODECS):
            raise UnsupportedCompression(f"compression codec {codec}")
        return CODECS[codec]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """True after compaction set base_timestamp to the delete horizon (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def timestamp_type(self) -> str:
        """Either "create_time" or "log_append_time"."""
        return "log_append_time" if self.attributes & LOG_APPEND_TIME else "create_time"


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header of the batch that starts at `position`.

    Only what is needed to find the next batch is checked: 61 bytes are there, magic is 2, the length covers the header.
    Counts and deltas are not checked, because errors in them have different error codes on the wire.

    Raises:
        UnsupportedMagic: The magic is 0 or 1.
        CorruptBatch: The header is not valid.
    """
    if len(buffer) - position < HEADER_BYTES or position < 0:
        if position >= 0 and len(buffer) - position > MAGIC_AT:
            _check_magic(buffer[position + MAGIC_AT])
        raise CorruptBatch(f"{len(buffer) - position} bytes cannot hold a record batch header")
    # At start-up a broker parses every batch of its logs here, so the code avoids every call that it can.
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        _check_magic(buffer[position + MAGIC_AT])
    if header.batch_length < _MIN_LENGTH_V2:
        raise CorruptBatch(f"batch length {header.batch_length} is less than the header")
    return header


def iter_batches(buffer: Buffer, *, allow_partial: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch of `buffer` with its header. The memoryviews share the buffer's memory.

    Args:
        buffer: Batches, one after the other.
        allow_partial: End at a truncated last batch, which a fetch response may contain, instead of raising.

    Raises:
        CorruptBatch: A header is not valid, or the last batch is truncated.
    """
    view = memoryview(buffer)
    position, size = 0, len(view)
    while position < size:
        remaining = size - position
        if allow_partial and remaining < HEADER_BYTES:
            if remaining > MAGIC_AT:
                _check_magic(view[position + MAGIC_AT])
            return
        header = parse_header(view, position)
        if header.size_bytes > remaining:
            if allow_partial:
                return
            raise CorruptBatch(f"batch of {header.size_bytes} bytes, {remaining} are there")
        yield header, view[position : position + header.size_bytes]
        position += header.size_bytes


def verify_crc(batch: Buffer) -> bool:
    """Return true if the stored CRC-32C matches. `batch` is exactly one batch."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        return False
    (stored,) = _CRC.unpack_from(view, _CRC_AT)
    return bool(stored == crc32c(view[CRC_FROM:]))


class Stamp(TypedDict, total=False):
    """Header fields that do not follow from the records. The comments give the defaults."""

    producer_id: int  # -1
    producer_epoch: int  # -1
    base_sequence: int  # -1
    transactional: bool
    control: bool
    base_offset: int  # 0
    partition_leader_epoch: int  # -1
    log_append_time: bool
    last_offset_delta: int  # the number of records less 1
    sealed: bool  # False: skip the CRC, because `set_producer` follows and computes it


class HeaderFields(Stamp, total=False):
    """All fields of a batch header. Timestamps are milliseconds since 1970."""

    record_count: Required[int]
    base_timestamp: Required[int]
    max_timestamp: Required[int]
    compression: str  # none


def seal(records_section: Buffer, **fields: Unpack[HeaderFields]) -> bytearray:
    """Return a batch made of a header, the given records section, already compressed, and the CRC.

    Raises:
        UnsupportedCompression: Kafka does not define the codec.
    """
    batch = bytearray(HEADER_BYTES) + records_section
    seal_in_place(batch, **fields)
    return batch


def seal_in_place(
    batch: bytearray | memoryview,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: str = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    log_append_time: bool = False,
    last_offset_delta: int | None = None,
    sealed: bool = True,
) -> None:
    """Write header and CRC into the first 61 bytes of `batch`, which already contains the records section."""
    size = len(batch)
    if size < HEADER_BYTES:
        raise ValueError(f"{size} bytes leave no room for the header")
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LENGTH_PREFIX_BYTES,
        partition_leader_epoch,
        MAGIC,
        0,
        (0 if compression == "none" else _codec_number(compression))
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0),
        record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    if sealed:
        _stamp_crc(batch)


def says_log_append_time(batch: Buffer) -> bool:
    """Return true if the header has the LogAppendTime bit. `batch` may be invalid."""
    return len(batch) > _ATTRIBUTES_AT + 1 and bool(batch[_ATTRIBUTES_AT + 1] & LOG_APPEND_TIME)


def says_transactional(batch: Buffer) -> bool:
    """Return true if the header has the transactional bit. `batch` may be invalid."""
    return len(batch) > _ATTRIBUTES_AT + 1 and bool(batch[_ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def set_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    """Set a batch's producer fields and its CRC. A retry after an epoch bump does this again."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _stamp_crc(batch)


def pack_header(header: BatchHeader, section: Buffer) -> bytes:
    """Return the 61-byte header for a records section, with its length and CRC."""
    length = _MIN_LENGTH_V2 + len(section)
    packed = _HEADER.pack(*header._replace(batch_length=length, crc=0))
    return _HEADER.pack(*header._replace(batch_length=length, crc=crc32c(section, crc32c(packed[CRC_FROM:]))))


def with_log_fields(
    header: BatchHeader, batch: Buffer, base_offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[bytes, memoryview]:
    """Return the two parts of a batch with the fields that the log sets, and the time of the append unless it is -1.

    The CRC does not cover the offset and the leader epoch. With a time of the append, it is computed anew.
    """
    view = memoryview(batch)
    if append_time_ms < 0:
        return _LOG_FIELDS.pack(base_offset, header.batch_length, leader_epoch), view[LOG_FIELDS_BYTES:]
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=append_time_ms)
    stamped = stamped._replace(base_offset=base_offset, partition_leader_epoch=leader_epoch)
    return pack_header(stamped, view[HEADER_BYTES:]), view[HEADER_BYTES:]


def _stamp_crc(batch: bytearray | memoryview) -> None:
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))


def _codec_number(compression: str) -> int:
    number = _CODEC_NUMBERS.get(compression)
    if number is None:
        raise UnsupportedCompression(f"compression {compression!r}; Kafka knows {', '.join(CODECS)}")
    return number


def _check_magic(magic: int) -> None:
    if magic == MAGIC:
        return
    if magic in (0, 1):
        raise UnsupportedMagic(f"message set of magic {magic}, written before Kafka 0.11; only magic 2 is supported")
    raise CorruptBatch(f"magic {magic}")
