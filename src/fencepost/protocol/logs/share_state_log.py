"""Records of `__share_group_state`: how far a share group has come in a partition, typed <-> bytes, in Kafka's schemas.

Sources: `ShareSnapshotKey` and `ShareSnapshotValue` v0 of Apache Kafka 4.3.1's share coordinator. A key begins with its
type as int16 and is not flexible; a value begins with its version and is. Kafka also writes updates (type 1) between
its snapshots; here every record is a snapshot, since compaction keeps the last one of each key.
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
    """Names a partition as a share group reads it."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(Value):
    """Records in the same state, both offsets included; `state` as on the wire."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class ShareSnapshot(Value):
    """Where the group begins to read, and what is known of the records behind that.

    `state_epoch` rises when an administrator sets the offset. `complete_count`: how many of the batches' records need
    not be delivered again. Offsets that no batch names are as if they had never been delivered.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = 0
    written_ms: int = 0


def encode_share_state_key(key: ShareStateKey) -> bytes:
    """The key's bytes, type first."""
    writer = Writer()
    writer.int16(_SNAPSHOT)
    writer.string(key.group_id)
    writer.uuid(key.topic_id)
    writer.int32(key.partition)
    return writer.joined()


def decode_share_state_key(data: bytes | memoryview) -> ShareStateKey | None:
    """The typed key; None for another type of record. Raises MalformedMessage for bytes that are none."""
    reader = Reader(data)
    if reader.int16() != _SNAPSHOT:
        return None
    key = ShareStateKey(reader.string(), UUID(bytes=bytes(reader.take(16))), reader.int32())
    reader.end()
    return key


def encode_share_snapshot(value: ShareSnapshot) -> bytes:
    """The value's bytes, version first."""
    writer = Writer(flexible=True)
    writer.int16(0)
    writer.int32(0)  # the epoch of snapshots, by which Kafka tells to which one an update belongs
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
    """The typed value. Raises MalformedMessage for bytes that are none, or of an unknown version."""
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
