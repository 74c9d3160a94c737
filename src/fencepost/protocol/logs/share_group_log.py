"""Encode and decode the records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's schemas.

Sources: `ShareGroupMemberMetadata` (key 10), `ShareGroupMetadata` (11) and `ShareGroupCurrentMemberAssignment` (14) of
Apache Kafka 4.3.1's group coordinator. A key begins with its type as int16 and is not flexible. A value begins with its
version, which is always 0, and is flexible. Two kinds of records are not written. The target assignment (12, 13)
follows from the members and the topics. The list of partitions with initialized state (15) follows from the share state
itself.
"""

from __future__ import annotations

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition, read_partitions, write_partitions
from fencepost.values import Value

__all__ = [
    "ShareCurrentKey",
    "ShareCurrentValue",
    "ShareGroupKey",
    "ShareGroupLogKey",
    "ShareGroupLogValue",
    "ShareGroupValue",
    "ShareMemberKey",
    "ShareMemberValue",
    "decode_share_group_key",
    "decode_share_group_value",
    "encode_share_group_key",
    "encode_share_group_value",
]

_MEMBER, _GROUP, _CURRENT = 10, 11, 14
_STABLE = 0


class ShareGroupKey(Value):
    """Key of a share group."""

    group_id: str


class ShareGroupValue(Value):
    """A group's epoch, and the hash of its topics' metadata at the last increase of the epoch."""

    epoch: int
    metadata_hash: int = 0


class ShareMemberKey(Value):
    """Key of a member's metadata."""

    group_id: str
    member_id: str


class ShareMemberValue(Value):
    """Metadata and subscription of a member."""

    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]


class ShareCurrentKey(Value):
    """Key of a member's current assignment."""

    group_id: str
    member_id: str


class ShareCurrentValue(Value):
    """Partitions assigned to a member, with its member epoch and the previous one."""

    epoch: int
    previous_epoch: int
    assigned: frozenset[TopicIdPartition]


ShareGroupLogKey = ShareGroupKey | ShareMemberKey | ShareCurrentKey
ShareGroupLogValue = ShareGroupValue | ShareMemberValue | ShareCurrentValue

_TYPES: dict[type[ShareGroupLogKey], int] = {ShareMemberKey: _MEMBER, ShareGroupKey: _GROUP, ShareCurrentKey: _CURRENT}


def encode_share_group_key(key: ShareGroupLogKey) -> bytes:
    """Encode a key, which begins with its type."""
    writer = Writer()
    writer.int16(_TYPES[type(key)])
    writer.string(key.group_id)
    if not isinstance(key, ShareGroupKey):
        writer.string(key.member_id)
    return writer.joined()


def decode_share_group_key(data: bytes | memoryview) -> ShareGroupLogKey | None:
    """Decode a key; return None for another type of record.

    Raises:
        MalformedMessage: The bytes are not a key.
    """
    reader = Reader(data)
    number = reader.int16()
    key: ShareGroupLogKey
    if number == _GROUP:
        key = ShareGroupKey(reader.string())
    elif number == _MEMBER:
        key = ShareMemberKey(reader.string(), reader.string())
    elif number == _CURRENT:
        key = ShareCurrentKey(reader.string(), reader.string())
    else:
        return None
    reader.end()
    return key


def encode_share_group_value(value: ShareGroupLogValue) -> bytes:
    """Encode a value, which begins with its version."""
    writer = Writer(flexible=True)
    writer.int16(0)
    if isinstance(value, ShareGroupValue):
        writer.int32(value.epoch)
        writer.int64(value.metadata_hash)
    elif isinstance(value, ShareMemberValue):
        writer.string(value.rack_id)
        writer.string(value.client_id)
        writer.string(value.client_host)
        writer.strings(value.topic_names)
    else:
        writer.int32(value.epoch)
        writer.int32(value.previous_epoch)
        writer.int8(_STABLE)
        write_partitions(writer, value.assigned, None)
    writer.tags()
    return writer.joined()


def decode_share_group_value(key: ShareGroupLogKey, data: bytes | memoryview) -> ShareGroupLogValue:
    """Decode the value of a key's record.

    Raises:
        MalformedMessage: The bytes are not a value of this type, or have an unknown version.
    """
    reader = Reader(data)
    reader.version(type(key).__name__, (0,), 0)
    value: ShareGroupLogValue
    if isinstance(key, ShareGroupKey):
        value = ShareGroupValue(reader.int32(), reader.int64())
    elif isinstance(key, ShareMemberKey):
        value = ShareMemberValue(reader.nullable_string(), reader.string(), reader.string(), tuple(reader.strings()))
    else:
        epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
        value = ShareCurrentValue(epoch, previous_epoch, frozenset(read_partitions(reader)))
    reader.skip_tags()
    reader.end()
    return value
