"""Encode and decode the records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's schemas.

Sources: `StreamsGroupMetadata` (key 17), `StreamsGroupMemberMetadata` (19), `StreamsGroupTargetAssignmentMetadata`
(20), `StreamsGroupTargetAssignmentMember` (21), `StreamsGroupCurrentMemberAssignment` (22) and `StreamsGroupTopology`
(23) of Apache Kafka 4.3.1's group coordinator. A key begins with its type as int16 and is not flexible. A value begins
with its version, which is always 0, and is flexible.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage
from fencepost.values import Value

__all__ = [
    "CopartitionGroup",
    "Endpoint",
    "InternalTopic",
    "StreamsCurrentKey",
    "StreamsCurrentValue",
    "StreamsGroupKey",
    "StreamsGroupLogKey",
    "StreamsGroupLogValue",
    "StreamsGroupValue",
    "StreamsMemberKey",
    "StreamsMemberValue",
    "StreamsTargetKey",
    "StreamsTargetMemberKey",
    "StreamsTargetValue",
    "StreamsTaskId",
    "StreamsTopologyKey",
    "Subtopology",
    "Tasks",
    "Topology",
    "decode_streams_group_key",
    "decode_streams_group_value",
    "encode_streams_group_key",
    "encode_streams_group_value",
]

_T = TypeVar("_T")
_UINT16: Final = struct.Struct(">H")
_EPOCHS_TAG = _TIMESTAMP_TAG = _VALIDATED_TAG = 0
_CONFIGS_TAG = 1
_UNKNOWN_EPOCH = 0

Pairs = tuple[tuple[str, str], ...]
"""(name, value) pairs, in order."""


class StreamsTaskId(NamedTuple):
    """A task: one subtopology on one partition of its source topics."""

    subtopology: str
    partition: int


class Tasks(Value):
    """Tasks of a member: active tasks with the epochs of their assignment, standby and warm-up tasks.

    A target assignment has no epochs; they are 0.
    """

    active: Mapping[StreamsTaskId, int]
    standby: frozenset[StreamsTaskId] = frozenset()
    warmup: frozenset[StreamsTaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


class Endpoint(Value):
    """Address of an instance for interactive queries."""

    host: str
    port: int


class InternalTopic(Value):
    """A topic that the group creates.

    0 partitions means that the number is derived from other topics. A replication factor of 0 means the broker's
    default.
    """

    name: str
    partitions: int
    replication_factor: int
    configs: Pairs = ()


class CopartitionGroup(Value):
    """Topics that must have the same number of partitions, as indexes into the subtopology's lists."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(Value):
    """A part of a topology that runs in its own tasks."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_regexes: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def is_stateful(self) -> bool:
        """True if the tasks have state, which a standby task can replicate."""
        return bool(self.changelog_topics)


class StreamsGroupKey(Value):
    """Key of a streams group."""

    group_id: str


class StreamsGroupValue(Value):
    """A group's epoch and the metadata hash, validated topology epoch and assignment settings that belong to it."""

    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: Pairs = ()


class StreamsMemberKey(Value):
    """Key of a member's metadata."""

    group_id: str
    member_id: str


class StreamsMemberValue(Value):
    """Metadata of a member. Members with the same `process_id` share their state."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None = None
    client_tags: Pairs = ()


class StreamsTargetKey(Value):
    """Key of a group's target assignment epoch."""

    group_id: str


class StreamsTargetValue(Value):
    """Group epoch for which the target assignment was computed, and the time of the computation."""

    assignment_epoch: int
    timestamp_ms: int = 0


class StreamsTargetMemberKey(Value):
    """Key of a member's target assignment, whose value is `Tasks`."""

    group_id: str
    member_id: str


class StreamsCurrentKey(Value):
    """Key of a member's current assignment."""

    group_id: str
    member_id: str


class StreamsCurrentValue(Value):
    """Tasks that a member owns or must revoke."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: Tasks
    revoking: Tasks


class StreamsTopologyKey(Value):
    """Key of a group's topology."""

    group_id: str


class Topology(Value):
    """Topology of an application, as its members reported it when they joined."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


StreamsGroupLogKey = (
    StreamsGroupKey
    | StreamsMemberKey
    | StreamsTargetKey
    | StreamsTargetMemberKey
    | StreamsCurrentKey
    | StreamsTopologyKey
)
StreamsGroupLogValue = (
    StreamsGroupValue | StreamsMemberValue | StreamsTargetValue | Tasks | StreamsCurrentValue | Topology
)

_OF_GROUP: dict[int, type[StreamsGroupKey | StreamsTargetKey | StreamsTopologyKey]] = {
    17: StreamsGroupKey,
    20: StreamsTargetKey,
    23: StreamsTopologyKey,
}
_OF_MEMBER: dict[int, type[StreamsMemberKey | StreamsTargetMemberKey | StreamsCurrentKey]] = {
    19: StreamsMemberKey,
    21: StreamsTargetMemberKey,
    22: StreamsCurrentKey,
}
_TYPES: dict[type[StreamsGroupLogKey], int] = {
    **{key: number for number, key in _OF_GROUP.items()},
    **{key: number for number, key in _OF_MEMBER.items()},
}


def encode_streams_group_key(key: StreamsGroupLogKey) -> bytes:
    """Encode a key, which begins with its type."""
    writer = Writer()
    writer.int16(_TYPES[type(key)])
    writer.string(key.group_id)
    if isinstance(key, StreamsMemberKey | StreamsTargetMemberKey | StreamsCurrentKey):
        writer.string(key.member_id)
    return writer.joined()


def decode_streams_group_key(data: bytes | memoryview) -> StreamsGroupLogKey | None:
    """Decode a key; return None for another type of record.

    Raises:
        MalformedMessage: The bytes are not a key.
    """
    reader = Reader(data)
    number = reader.int16()
    key: StreamsGroupLogKey
    if number in _OF_GROUP:
        key = _OF_GROUP[number](reader.string())
    elif number in _OF_MEMBER:
        key = _OF_MEMBER[number](reader.string(), reader.string())
    else:
        return None
    reader.end()
    return key


def encode_streams_group_value(value: StreamsGroupLogValue) -> bytes:
    """Encode a value, which begins with its version."""
    writer = Writer(flexible=True)
    writer.int16(0)
    tags: list[tuple[int, bytes]] = []
    if isinstance(value, StreamsGroupValue):
        writer.int32(value.epoch)
        writer.int64(value.metadata_hash)
        if value.validated_topology_epoch != -1:
            tags.append((_VALIDATED_TAG, value.validated_topology_epoch.to_bytes(4, "big", signed=True)))
        if value.assignment_configs:
            inner = Writer(flexible=True)
            _write_pairs(inner, value.assignment_configs)
            tags.append((_CONFIGS_TAG, inner.joined()))
    elif isinstance(value, StreamsMemberValue):
        _write_member(writer, value)
    elif isinstance(value, StreamsTargetValue):
        writer.int32(value.assignment_epoch)
        if value.timestamp_ms:
            tags.append((_TIMESTAMP_TAG, value.timestamp_ms.to_bytes(8, "big", signed=True)))
    elif isinstance(value, Tasks):
        _write_tasks(writer, value, with_epochs=False)
    elif isinstance(value, StreamsCurrentValue):
        writer.int32(value.member_epoch)
        writer.int32(value.previous_member_epoch)
        writer.int8(value.state)
        _write_tasks(writer, value.assigned, with_epochs=True)
        _write_tasks(writer, value.revoking, with_epochs=True)
    else:
        writer.int32(value.epoch)
        _write_all(writer, value.subtopologies, _write_subtopology)
    writer.tags(tags)
    return writer.joined()


def decode_streams_group_value(key: StreamsGroupLogKey, data: bytes | memoryview) -> StreamsGroupLogValue:
    """Decode the value of a key's record.

    Raises:
        MalformedMessage: The bytes are not a value of this type, or have an unknown version.
    """
    reader = Reader(data)
    reader.version(type(key).__name__, (0,), 0)
    value: StreamsGroupLogValue
    if isinstance(key, StreamsGroupKey):
        epoch, metadata_hash, tags = reader.int32(), reader.int64(), reader.tags()
        validated = _int(tags.get(_VALIDATED_TAG), 4, -1)
        value = StreamsGroupValue(epoch, metadata_hash, validated, _tagged_pairs(tags.get(_CONFIGS_TAG)))
    elif isinstance(key, StreamsTargetKey):
        epoch = reader.int32()
        value = StreamsTargetValue(epoch, _int(reader.tags().get(_TIMESTAMP_TAG), 8, 0))
    else:
        if isinstance(key, StreamsMemberKey):
            value = _read_member(reader)
        elif isinstance(key, StreamsTargetMemberKey):
            value = _read_tasks(reader)
        elif isinstance(key, StreamsCurrentKey):
            epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
            value = StreamsCurrentValue(epoch, previous, state, _read_tasks(reader), _read_tasks(reader))
        else:
            value = Topology(reader.int32(), _read_all(reader, _read_subtopology))
        reader.skip_tags()
    reader.end()
    return value


def _write_all(writer: Writer, items: Sequence[_T], write: Callable[[Writer, _T], None]) -> None:
    writer.array_length(len(items))
    for item in items:
        write(writer, item)


def _read_all(reader: Reader, read: Callable[[Reader], _T]) -> tuple[_T, ...]:
    return tuple(read(reader) for _ in range(reader.count()))


def _write_pairs(writer: Writer, pairs: Pairs) -> None:
    writer.array_length(len(pairs))
    for name, value in pairs:
        writer.string(name)
        writer.string(value)
        writer.tags()


def _read_pairs(reader: Reader) -> Pairs:
    found = []
    for _ in range(reader.count()):
        found.append((reader.string(), reader.string()))
        reader.skip_tags()
    return tuple(found)


def _tagged_pairs(data: memoryview | None) -> Pairs:
    return () if data is None else _read_pairs(Reader(data, flexible=True))


def _write_member(writer: Writer, value: StreamsMemberValue) -> None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.int32(value.rebalance_timeout_ms)
    writer.int32(value.topology_epoch)
    writer.string(value.process_id)
    writer.int8(-1 if value.endpoint is None else 1)
    if value.endpoint is not None:
        writer.string(value.endpoint.host)
        writer.pack(_UINT16, value.endpoint.port)
        writer.tags()
    _write_pairs(writer, value.client_tags)


def _read_member(reader: Reader) -> StreamsMemberValue:
    return StreamsMemberValue(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        rebalance_timeout_ms=reader.int32(),
        topology_epoch=reader.int32(),
        process_id=reader.string(),
        endpoint=_read_endpoint(reader),
        client_tags=_read_pairs(reader),
    )


def _read_endpoint(reader: Reader) -> Endpoint | None:
    if reader.int8() < 0:
        return None
    host = reader.string()
    (port,) = reader.unpack(_UINT16)
    reader.skip_tags()
    return Endpoint(host, port)


def _write_tasks(writer: Writer, tasks: Tasks, *, with_epochs: bool) -> None:
    _write_task_ids(writer, tasks.active, tasks.active if with_epochs else None)
    _write_task_ids(writer, tasks.standby, None)
    _write_task_ids(writer, tasks.warmup, None)


def _write_task_ids(writer: Writer, tasks: Iterable[StreamsTaskId], epochs: Mapping[StreamsTaskId, int] | None) -> None:
    by_subtopology: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        by_subtopology.setdefault(subtopology, []).append(partition)
    writer.array_length(len(by_subtopology))
    for subtopology, partitions in by_subtopology.items():
        writer.string(subtopology)
        writer.int32s(partitions)
        tags: Sequence[tuple[int, bytes]] = ()
        if epochs is not None:
            inner = Writer(flexible=True)
            inner.int32s([epochs[StreamsTaskId(subtopology, partition)] for partition in partitions])
            tags = [(_EPOCHS_TAG, inner.joined())]
        writer.tags(tags)


def _read_tasks(reader: Reader) -> Tasks:
    active, standby, warmup = (_read_task_ids(reader) for _ in range(3))
    return Tasks(active, frozenset(standby), frozenset(warmup))


def _read_task_ids(reader: Reader) -> dict[StreamsTaskId, int]:
    found: dict[StreamsTaskId, int] = {}
    for _ in range(reader.count()):
        subtopology, partitions = reader.string(), reader.int32s()
        tagged = reader.tags().get(_EPOCHS_TAG)
        epochs = [_UNKNOWN_EPOCH] * len(partitions) if tagged is None else Reader(tagged, flexible=True).int32s()
        if len(epochs) != len(partitions):
            raise MalformedMessage(f"{len(epochs)} epochs of {len(partitions)} tasks")
        found.update((StreamsTaskId(subtopology, p), epoch) for p, epoch in zip(partitions, epochs, strict=True))
    return found


def _write_topic(writer: Writer, topic: InternalTopic) -> None:
    writer.string(topic.name)
    writer.int32(topic.partitions)
    writer.int16(topic.replication_factor)
    _write_pairs(writer, topic.configs)
    writer.tags()


def _read_topic(reader: Reader) -> InternalTopic:
    topic = InternalTopic(reader.string(), reader.int32(), reader.int16(), _read_pairs(reader))
    reader.skip_tags()
    return topic


def _write_int16s(writer: Writer, numbers: Sequence[int]) -> None:
    _write_all(writer, numbers, Writer.int16)


def _write_copartition_group(writer: Writer, group: CopartitionGroup) -> None:
    _write_int16s(writer, group.source_topics)
    _write_int16s(writer, group.source_regexes)
    _write_int16s(writer, group.repartition_source_topics)
    writer.tags()


def _read_copartition_group(reader: Reader) -> CopartitionGroup:
    group = CopartitionGroup(*(_read_all(reader, Reader.int16) for _ in range(3)))
    reader.skip_tags()
    return group


def _write_subtopology(writer: Writer, value: Subtopology) -> None:
    writer.string(value.subtopology_id)
    writer.strings(value.source_topics)
    writer.strings(value.source_regexes)
    _write_all(writer, value.changelog_topics, _write_topic)
    writer.strings(value.repartition_sink_topics)
    _write_all(writer, value.repartition_source_topics, _write_topic)
    _write_all(writer, value.copartition_groups, _write_copartition_group)
    writer.tags()


def _read_subtopology(reader: Reader) -> Subtopology:
    value = Subtopology(
        subtopology_id=reader.string(),
        source_topics=tuple(reader.strings()),
        source_regexes=tuple(reader.strings()),
        changelog_topics=_read_all(reader, _read_topic),
        repartition_sink_topics=tuple(reader.strings()),
        repartition_source_topics=_read_all(reader, _read_topic),
        copartition_groups=_read_all(reader, _read_copartition_group),
    )
    reader.skip_tags()
    return value


def _int(data: memoryview | None, size: int, otherwise: int) -> int:
    if data is None:
        return otherwise
    if len(data) != size:
        raise MalformedMessage(f"an integer of {len(data)} bytes, not {size}")
    return int.from_bytes(data, "big", signed=True)
