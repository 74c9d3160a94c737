"""Encode and decode the records of `__consumer_offsets`, in Kafka's schemas.

Sources: `OffsetCommitKey` (0-1), `OffsetCommitValue` (0-4, topic id as tagged field 0), `GroupMetadataKey` (2) and
`GroupMetadataValue` (0-4) of Apache Kafka 4.3.1's group coordinator. A key and a value each begin with their version as
int16. The version of the key is the type of the record. Version 4 of a value is the first flexible one.

All versions are read. As in Kafka 4.3.1, these versions are written: offset keys as version 1; offset values as version
1 if they have an expiry time (OffsetCommit v2-4 with a retention), otherwise as version 4; group values as version 3.
`consumer_group_log.py` has the records of consumer groups (KIP-848). For these and for the records of other newer
group types (key versions 3 and up) `decode_key` returns an `UnknownKey`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.varint import write_unsigned_varint
from fencepost.values import Value

__all__ = [
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "StoredMember",
    "UnknownKey",
    "decode_group_value",
    "decode_key",
    "decode_offset_value",
    "encode_group_value",
    "encode_key",
    "encode_offset_value",
]

_OFFSET_KEY_VERSIONS = (0, 1)
_OFFSET_KEY_WRITTEN = 1
_GROUP_KEY_VERSION = 2
_VALUE_VERSIONS = range(5)
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0
_HALF = struct.Struct(">h")
_OFFSET = struct.Struct(">hq")  # version and offset
_OFFSET_AND_EPOCH = struct.Struct(">hqi")
_LONG = struct.Struct(">q")
_NO_TAGS = b"\x00"
_TOPIC_ID_HEAD = bytes((1, _TOPIC_ID_TAG, 16))


class OffsetCommitKey(Value):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class OffsetCommitValue(Value):
    """A committed offset. Times are milliseconds since 1970; -1 means absent, as in Kafka."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: UUID | None = None


class GroupMetadataKey(Value):
    """Key of a classic group."""

    group_id: str


class StoredMember(Value):
    """A member of a stable generation. `subscription` and `assignment` are bytes that the clients encoded."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(Value):
    """A classic group after its last completed rebalance. `protocol_type` is "" if the group never had a member."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = -1
    members: Sequence[StoredMember] = ()


class UnknownKey(Value):
    """A key of a record type that this module does not decode."""

    version: int


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Encode a key, which begins with its version."""
    group_id = key.group_id.encode()
    size = len(group_id)
    if isinstance(key, GroupMetadataKey):
        return struct.pack(f">hh{size}s", _GROUP_KEY_VERSION, size, group_id)
    topic = key.topic.encode()
    length = len(topic)
    layout = f">hh{size}sh{length}si"
    return struct.pack(layout, _OFFSET_KEY_WRITTEN, size, group_id, length, topic, key.partition)


def decode_key(data: bytes | memoryview) -> OffsetCommitKey | GroupMetadataKey | UnknownKey:
    """Decode a key.

    Raises:
        MalformedMessage: The bytes are not a key.
    """
    reader = Reader(data)
    version = reader.int16()
    key: OffsetCommitKey | GroupMetadataKey
    if version in _OFFSET_KEY_VERSIONS:
        key = OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    elif version == _GROUP_KEY_VERSION:
        key = GroupMetadataKey(reader.string())
    else:
        return UnknownKey(version)
    reader.end()
    return key


def encode_offset_value(value: OffsetCommitValue, version: int | None = None) -> bytes:
    """Encode a value, which begins with its version; default: the version that Kafka 4.3.1 chooses.

    Fields that the version does not have are dropped.

    Raises:
        ValueError: The version does not exist.
    """
    if version is None:
        version = _FLEXIBLE if value.expire_timestamp_ms == -1 else 1
    if version not in _VALUE_VERSIONS:
        raise ValueError(f"OffsetCommitValue has no version {version}")
    metadata = value.metadata.encode()
    size, tags = len(metadata), b""
    if version < _FLEXIBLE:
        length = _HALF.pack(size)
    else:
        length = write_unsigned_varint(size + 1)
        tags = _NO_TAGS if value.topic_id is None else _TOPIC_ID_HEAD + value.topic_id.bytes
    if version >= 3:
        head = _OFFSET_AND_EPOCH.pack(version, value.offset, value.leader_epoch)
    else:
        head = _OFFSET.pack(version, value.offset)
    expiry = _LONG.pack(value.expire_timestamp_ms) if version == 1 else b""
    return b"".join((head, length, metadata, _LONG.pack(value.commit_timestamp_ms), expiry, tags))


def decode_offset_value(data: bytes | memoryview) -> OffsetCommitValue:
    """Decode a committed offset.

    Raises:
        MalformedMessage: The bytes are not a value, or have an unknown version.
    """
    reader = Reader(data)
    version = reader.version("OffsetCommitValue", _VALUE_VERSIONS, _FLEXIBLE)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG)
    reader.end()
    if topic_id is not None and len(topic_id) != 16:
        raise MalformedMessage(f"a topic id of {len(topic_id)} bytes")
    return OffsetCommitValue(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        None if topic_id is None else UUID(bytes=bytes(topic_id)),
    )


def encode_group_value(value: GroupMetadataValue, version: int = 3) -> bytes:
    """Encode a classic group; the bytes begin with the version.

    Raises:
        ValueError: The version does not exist.
    """
    if version not in _VALUE_VERSIONS:
        raise ValueError(f"GroupMetadataValue has no version {version}")
    writer = Writer(flexible=version >= _FLEXIBLE)
    writer.int16(version)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    if version >= 2:
        writer.int64(value.current_state_timestamp_ms)
    writer.array_length(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        if version >= 3:
            writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        if version >= 1:
            writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.byte_string(member.subscription)
        writer.byte_string(member.assignment)
        writer.tags()
    writer.tags()
    return writer.joined()


def decode_group_value(data: bytes | memoryview) -> GroupMetadataValue:
    """Decode a classic group.

    Version 0 has no rebalance timeout. The session timeout is used instead, as in Kafka.

    Raises:
        MalformedMessage: The bytes are not a value, or have an unknown version.
    """
    reader = Reader(data)
    version = reader.version("GroupMetadataValue", _VALUE_VERSIONS, _FLEXIBLE)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    current_state_timestamp_ms = reader.int64() if version >= 2 else -1
    members = [_read_member(reader, version) for _ in range(reader.count())]
    reader.skip_tags()
    reader.end()
    return GroupMetadataValue(protocol_type, generation, protocol, leader, current_state_timestamp_ms, tuple(members))


def _read_member(reader: Reader, version: int) -> StoredMember:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.byte_string()
    assignment = reader.byte_string()
    reader.skip_tags()
    return StoredMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
