"""Encode and decode the records of `__share_group_state`: a share group's progress in a partition, in Kafka's schemas.

Sources: `ShareSnapshotKey` and `ShareSnapshotValue` v0 of Apache Kafka 4.3.1's share coordinator. A key begins with its
type as int16 and is not flexible. A value begins with its version and is flexible. Kafka also writes updates (type 1)
between snapshots. Here every record is a snapshot, because compaction keeps the last record of each key.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.values import Value

__all__ = [
    "ShareSnapshot",
    "ShareStateKey",
    "StateBatch",
    "decode_share_snapshot",
    "decode_share_state_key",
    "encode_share_snapshot",
    "encode_share_state_key",
]

_SNAPSHOT = 0
_LEADER_EPOCH = 0
_COMPLETE_COUNT_TAG = 0


class ShareStateKey(NamedTuple):
    """Key of a share group's state in one partition."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(Value):
    """A range of records in the same state, both offsets included. `state` is the number on the wire."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class ShareSnapshot(Value):
    """The start offset of a share group in a partition, and the delivery state of the records after it.

    An administrator who sets the offset increases `state_epoch`. `complete_count` is the number of records in the
    batches that need no further delivery. Offsets that no batch contains count as never delivered.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = 0
    written_ms: int = 0


def encode_share_state_key(key: ShareStateKey) -> bytes:
    """Encode a key, which begins with its type."""
    writer = Writer()
    writer.int16(_SNAPSHOT)
    writer.string(key.group_id)
    writer.uuid(key.topic_id)
    writer.int32(key.partition)
    return writer.joined()


def decode_share_state_key(data: bytes | memoryview) -> ShareStateKey | None:
    """Decode a key; return None for another type of record.

    Raises:
        MalformedMessage: The bytes are not a key.
    """
    reader = Reader(data)
    if reader.int16() != _SNAPSHOT:
        return None
    key = ShareStateKey(reader.string(), UUID(bytes=bytes(reader.take(16))), reader.int32())
    reader.end()
    return key


def encode_share_snapshot(value: ShareSnapshot) -> bytes:
    """Encode a snapshot, which begins with its version."""
    writer = Writer(flexible=True)
    writer.int16(0)
    writer.int32(0)  # the snapshot epoch, which links Kafka's updates to their snapshot
    writer.int32(value.state_epoch)
    writer.int32(_LEADER_EPOCH)
    writer.int64(value.start_offset)
    writer.int64(value.written_ms)
    writer.int64(value.written_ms)
    writer.array_length(len(value.batches))
    for batch in value.batches:
        writer.int64(batch.first_offset)
        writer.int64(batch.last_offset)
        writer.int8(batch.state)
        writer.int16(batch.delivery_count)
        writer.tags()
    writer.tags([(_COMPLETE_COUNT_TAG, value.complete_count.to_bytes(4, "big", signed=True))])
    return writer.joined()


def decode_share_snapshot(data: bytes | memoryview) -> ShareSnapshot:
    """Decode a snapshot.

    Raises:
        MalformedMessage: The bytes are not a snapshot, or have an unknown version, or its batches are out of order.
    """
    reader = Reader(data)
    reader.version("ShareSnapshotValue", (0,), 0)
    _, state_epoch, _ = reader.int32(), reader.int32(), reader.int32()
    start_offset, _, written_ms = reader.int64(), reader.int64(), reader.int64()
    batches = []
    for _ in range(reader.count()):
        batches.append(StateBatch(reader.int64(), reader.int64(), reader.int8(), reader.int16()))
        reader.skip_tags()
    tagged = reader.tags().get(_COMPLETE_COUNT_TAG)
    reader.end()
    complete = int.from_bytes(tagged or b"", "big", signed=True)
    last = start_offset - 1
    for batch in batches:
        if batch.first_offset <= last or batch.last_offset < batch.first_offset:
            raise MalformedMessage(f"state batches out of order at offset {batch.first_offset}")
        last = batch.last_offset
    return ShareSnapshot(state_epoch, start_offset, tuple(batches), complete, written_ms)
