"""Transaction markers: the control batches that end a transaction on a partition (KIP-98).

A marker is one record. Its key: version int16 (0), type int16 (0 abort, 1 commit). Its value: version int16 (0),
coordinator epoch int32.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    parse_header,
)
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.protocol.records.walk import walk

__all__ = ["Marker", "control_type", "encode_marker", "parse_marker"]

ABORT: Final = 0
COMMIT: Final = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_KEY_BYTES, _VALUE_BYTES = _KEY.size, _VALUE.size

# The only record of a marker: attributes 0, timestamp delta 0, offset delta 0, and the lengths as zigzag varints.
_RECORD = struct.Struct(">bbbbbhhbhib")
_BODY_BYTES = _RECORD.size - 1
# A batch of one such record, from its length field on: length, magic, attributes, record count, and the record.
_BATCH = struct.Struct(">i4xb4xh34xi" + _RECORD.format[1:])
_BATCH_BYTES = HEADER_BYTES + _RECORD.size
_BATCH_LENGTH = _BATCH_BYTES - LENGTH_PREFIX_BYTES


class Marker(NamedTuple):
    """Contents of a marker. The producer id and epoch are in the batch's header."""

    commit: bool
    coordinator_epoch: int


def encode_marker(
    commit: bool,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytearray:
    """Return a sealed control batch with one COMMIT or ABORT record."""
    key, value = _KEY.pack(0, COMMIT if commit else ABORT), _VALUE.pack(0, coordinator_epoch)
    return encode_pairs(
        ((key, value),),
        timestamp_ms,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(batch: Buffer) -> int | None:
    """Return the type of a control batch's first record (0 abort, 1 commit, others exist); None if it has no records.

    Raises:
        CorruptBatch: The batch is not a control batch, is compressed, or its record does not parse.
    """
    header = parse_header(batch)
    if header.record_count <= 0:
        return None
    key, _ = _first_record(batch)
    return _type_of(key)


def parse_marker(batch: Buffer) -> Marker:
    """Return the marker in a control batch.

    Raises:
        CorruptBatch: The batch is not a transaction marker.
    """
    usual = _usual_marker(batch) if len(batch) == _BATCH_BYTES else None
    if usual is not None:
        return usual
    key, value = _first_record(batch)
    kind = _type_of(key)
    if kind not in (ABORT, COMMIT):
        raise CorruptBatch(f"control record of type {kind} is no transaction marker")
    if value is None or len(value) < _VALUE_BYTES:
        raise CorruptBatch("transaction marker without a value")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"transaction marker of version {version}")
    return Marker(kind == COMMIT, coordinator_epoch)


def _usual_marker(batch: Buffer) -> Marker | None:
    """Parse a marker of the layout that all brokers write; return None for any other batch. Saves time at start-up."""
    length, magic, attributes, count, size, _, *deltas, key_size, key_version, kind, value_size, version, epoch, _ = (
        _BATCH.unpack_from(batch, LENGTH_AT)
    )
    if (
        (length, magic, attributes & (CONTROL | CODEC_MASK), count) == (_BATCH_LENGTH, MAGIC, CONTROL, 1)
        and (size, key_size, value_size) == (_BODY_BYTES * 2, _KEY_BYTES * 2, _VALUE_BYTES * 2)
        and kind in (ABORT, COMMIT)
        and min(*deltas, key_version, version) >= 0
    ):
        return Marker(kind == COMMIT, epoch)
    return None


def _type_of(key: bytes | None) -> int:
    if key is None or len(key) < _KEY_BYTES:
        raise CorruptBatch("control record without a key")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record key of version {version}")
    return int(kind)


def _first_record(batch: Buffer) -> tuple[bytes | None, bytes | None]:
    """Return (key, value) of the first record of an uncompressed control batch."""
    header = parse_header(batch)
    if not header.is_control:
        raise CorruptBatch("not a control batch")
    if header.codec or header.record_count < 1:
        raise CorruptBatch(f"control batch with codec {header.codec} and {header.record_count} records")
    record = next(walk(header, memoryview(batch)[HEADER_BYTES : header.size_bytes]))
    return record.key, record.value
