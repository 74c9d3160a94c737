"""Encode and decode the records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's schemas.

Sources: `ConsumerGroupMetadata` (key 3), `ConsumerGroupMemberMetadata` (5), `ConsumerGroupTargetAssignmentMetadata`
(6), `ConsumerGroupTargetAssignmentMember` (7), `ConsumerGroupCurrentMemberAssignment` (8) and
`ConsumerGroupRegularExpression` (16) of Apache Kafka 4.3.1's group coordinator. A key begins with its type as int16 and
is not flexible. A value begins with its version, which is always 0, and is flexible.
`ConsumerGroupPartitionMetadata` (4) is not supported: Kafka has not written it since 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.values import Value

__all__ = [
    "ClassicProtocols",
    "ConsumerGroupKey",
    "ConsumerGroupLogKey",
    "ConsumerGroupLogValue",
    "ConsumerGroupValue",
    "CurrentAssignmentKey",
    "CurrentAssignmentValue",
    "MemberKey",
    "MemberValue",
    "RegexKey",
    "RegexValue",
    "TargetKey",
    "TargetMemberKey",
    "TargetMemberValue",
    "TargetValue",
    "TopicIdPartition",
    "decode_consumer_group_key",
    "decode_consumer_group_value",
    "encode_consumer_group_key",
    "encode_consumer_group_value",
    "read_partitions",
    "write_partitions",
]

_METADATA_HASH_TAG = 0
_CLASSIC_TAG = 0
_PRESENT = 1
_TIMESTAMP_TAG = 0
_EPOCHS_TAG = 0
_UNKNOWN_EPOCH = 0


class TopicIdPartition(NamedTuple):
    """A partition of a topic given by its id."""

    topic_id: UUID
    partition: int


class ConsumerGroupKey(Value):
    """Key of a consumer group."""

    group_id: str


class ConsumerGroupValue(Value):
    """A group's epoch, and the hash of its topics' metadata at the last increase of the epoch."""

    epoch: int
    metadata_hash: int = 0


class MemberKey(Value):
    """Key of a member's metadata."""

    group_id: str
    member_id: str


class ClassicProtocols(Value):
    """Protocols of a member that uses the classic protocol: (name, metadata) in the member's order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(Value):
    """Metadata and subscription of a member. `topic_regex` is None if it subscribes by name only.

    `classic` is set for a member of a mixed group that uses the classic protocol.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None


class TargetKey(Value):
    """Key of a group's target assignment epoch."""

    group_id: str


class TargetValue(Value):
    """Group epoch for which the target assignment was computed, and the time of the computation."""

    assignment_epoch: int
    timestamp_ms: int = 0


class TargetMemberKey(Value):
    """Key of a member's target assignment."""

    group_id: str
    member_id: str


class TargetMemberValue(Value):
    """Partitions assigned to a member in the target assignment."""

    partitions: frozenset[TopicIdPartition]


class CurrentAssignmentKey(Value):
    """Key of a member's current assignment."""

    group_id: str
    member_id: str


class CurrentAssignmentValue(Value):
    """Partitions that a member owns or must revoke, each with the member epoch of its assignment."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Mapping[TopicIdPartition, int]
    revoking: Mapping[TopicIdPartition, int]


class RegexKey(Value):
    """Key of a regular expression to which members of a group subscribe."""

    group_id: str
    regex: str


class RegexValue(Value):
    """Topics that matched a regular expression; the version of the topic list and the time of the match."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


ConsumerGroupLogKey = ConsumerGroupKey | MemberKey | TargetKey | TargetMemberKey | CurrentAssignmentKey | RegexKey
ConsumerGroupLogValue = (
    ConsumerGroupValue | MemberValue | TargetValue | TargetMemberValue | CurrentAssignmentValue | RegexValue
)

_OF_GROUP: dict[int, type[ConsumerGroupKey | TargetKey]] = {3: ConsumerGroupKey, 6: TargetKey}
_OF_PART: dict[int, type[MemberKey | TargetMemberKey | CurrentAssignmentKey | RegexKey]] = {
    5: MemberKey,
    7: TargetMemberKey,
    8: CurrentAssignmentKey,
    16: RegexKey,
}
_TYPES: dict[type[ConsumerGroupLogKey], int] = {
    **{key: number for number, key in _OF_GROUP.items()},
    **{key: number for number, key in _OF_PART.items()},
}


def encode_consumer_group_key(key: ConsumerGroupLogKey) -> bytes:
    """Encode a key, which begins with its type."""
    writer = Writer()
    writer.int16(_TYPES[type(key)])
    writer.string(key.group_id)
    if isinstance(key, RegexKey):
        writer.string(key.regex)
    elif isinstance(key, MemberKey | TargetMemberKey | CurrentAssignmentKey):
        writer.string(key.member_id)
    return writer.joined()


def decode_consumer_group_key(data: bytes | memoryview) -> ConsumerGroupLogKey | None:
    """Decode a key; return None for another type of record.

    Raises:
        MalformedMessage: The bytes are not a key.
    """
    reader = Reader(data)
    number = reader.int16()
    key: ConsumerGroupLogKey
    if number in _OF_GROUP:
        key = _OF_GROUP[number](reader.string())
    elif number in _OF_PART:
        key = _OF_PART[number](reader.string(), reader.string())
    else:
        return None
    reader.end()
    return key


def encode_consumer_group_value(value: ConsumerGroupLogValue) -> bytes:
    """Encode a value, which begins with its version."""
    writer = Writer(flexible=True)
    writer.int16(0)
    tags: list[tuple[int, bytes]] = []
    if isinstance(value, ConsumerGroupValue):
        writer.int32(value.epoch)
        if value.metadata_hash:
            tags.append((_METADATA_HASH_TAG, value.metadata_hash.to_bytes(8, "big", signed=True)))
    elif isinstance(value, MemberValue):
        _write_member(writer, value)
        if value.classic is not None:
            tags.append((_CLASSIC_TAG, _classic_bytes(value.classic)))
    elif isinstance(value, TargetValue):
        writer.int32(value.assignment_epoch)
        if value.timestamp_ms:
            tags.append((_TIMESTAMP_TAG, value.timestamp_ms.to_bytes(8, "big", signed=True)))
    elif isinstance(value, TargetMemberValue):
        write_partitions(writer, value.partitions, None)
    elif isinstance(value, CurrentAssignmentValue):
        writer.int32(value.member_epoch)
        writer.int32(value.previous_member_epoch)
        writer.int8(value.state)
        write_partitions(writer, value.assigned, value.assigned)
        write_partitions(writer, value.revoking, value.revoking)
    else:
        writer.strings(value.topics)
        writer.int64(value.version)
        writer.int64(value.timestamp_ms)
    writer.tags(tags)
    return writer.joined()


def decode_consumer_group_value(key: ConsumerGroupLogKey, data: bytes | memoryview) -> ConsumerGroupLogValue:
    """Decode the value of a key's record.

    Raises:
        MalformedMessage: The bytes are not a value of this type, or have an unknown version.
    """
    reader = Reader(data)
    reader.version(type(key).__name__, (0,), 0)
    value: ConsumerGroupLogValue
    if isinstance(key, ConsumerGroupKey):
        epoch = reader.int32()
        value = ConsumerGroupValue(epoch, _int64(reader.tags().get(_METADATA_HASH_TAG)))
    elif isinstance(key, TargetKey):
        epoch = reader.int32()
        value = TargetValue(epoch, _int64(reader.tags().get(_TIMESTAMP_TAG)))
    elif isinstance(key, MemberKey):
        value = _read_member(reader)
    else:
        value = _read_part(reader, key)
        reader.skip_tags()
    reader.end()
    return value


def _read_part(
    reader: Reader, key: TargetMemberKey | CurrentAssignmentKey | RegexKey
) -> TargetMemberValue | CurrentAssignmentValue | RegexValue:
    if isinstance(key, TargetMemberKey):
        return TargetMemberValue(frozenset(read_partitions(reader)))
    if isinstance(key, CurrentAssignmentKey):
        epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
        return CurrentAssignmentValue(epoch, previous, state, read_partitions(reader), read_partitions(reader))
    return RegexValue(tuple(reader.strings()), reader.int64(), reader.int64())


def _read_member(reader: Reader) -> MemberValue:
    plain = MemberValue(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topic_names=tuple(reader.strings()),
        topic_regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
    )
    tagged = reader.tags().get(_CLASSIC_TAG)
    return plain if tagged is None else replace(plain, classic=_read_classic(tagged))


def _classic_bytes(classic: ClassicProtocols) -> bytes:
    inner = Writer(flexible=True)
    inner.int8(_PRESENT)
    inner.int32(classic.session_timeout_ms)
    inner.array_length(len(classic.protocols))
    for name, metadata in classic.protocols:
        inner.string(name)
        inner.byte_string(metadata)
        inner.tags()
    inner.tags()
    return inner.joined()


def _read_classic(data: memoryview) -> ClassicProtocols | None:
    reader = Reader(data, flexible=True)
    if reader.int8() != _PRESENT:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append((reader.string(), reader.byte_string()))
        reader.skip_tags()
    reader.skip_tags()
    reader.end()
    return ClassicProtocols(session_timeout_ms, tuple(protocols))


def _write_member(writer: Writer, value: MemberValue) -> None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.strings(value.topic_names)
    writer.string(value.topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.server_assignor)


def write_partitions(
    writer: Writer, partitions: Iterable[TopicIdPartition], epochs: Mapping[TopicIdPartition, int] | None
) -> None:
    """Write partitions grouped by topic id, with the epochs of their assignment if the record has them."""
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    writer.array_length(len(by_topic))
    for topic_id, indexes in by_topic.items():
        writer.uuid(topic_id)
        writer.int32s(indexes)
        tags: Sequence[tuple[int, bytes]] = ()
        if epochs is not None:
            inner = Writer(flexible=True)
            inner.int32s([epochs[TopicIdPartition(topic_id, index)] for index in indexes])
            tags = [(_EPOCHS_TAG, inner.joined())]
        writer.tags(tags)


def read_partitions(reader: Reader) -> dict[TopicIdPartition, int]:
    """Read partitions with the epochs of their assignment.

    Kafka before 4.3 writes no epochs. The epoch is then 0, which accepts offset commits of every member epoch.
    """
    found: dict[TopicIdPartition, int] = {}
    for _ in range(reader.count()):
        topic_id = UUID(bytes=bytes(reader.take(16)))
        indexes = reader.int32s()
        tagged = reader.tags().get(_EPOCHS_TAG)
        epochs = [_UNKNOWN_EPOCH] * len(indexes) if tagged is None else Reader(tagged, flexible=True).int32s()
        if len(epochs) != len(indexes):
            raise MalformedMessage(f"{len(epochs)} epochs of {len(indexes)} partitions")
        found.update((TopicIdPartition(topic_id, i), epoch) for i, epoch in zip(indexes, epochs, strict=True))
    return found


def _int64(data: memoryview | None) -> int:
    if data is None:
        return 0
    if len(data) != 8:
        raise MalformedMessage(f"an int64 of {len(data)} bytes")
    return int.from_bytes(data, "big", signed=True)
