"""Kafka's consumer group protocol data ("consumer" protocol): subscriptions, assignments, the assignors' user data.

Subscription: version int16, topics, user data; v1 adds the partitions owned, v2 the generation they were owned in, v3
the rack. Assignment: version int16, (topic, partitions), user data. Newer versions only append, so any version is read.
Version 3 is written, as Java 3.5 and later do; readers of version 0 and 1 stop where their version ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import ProtocolError
from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage

SUBSCRIPTION_VERSION: Final = 3
NO_GENERATION: Final = -1


class Subscription(NamedTuple):
    """What a member says when it joins. `owned` are partitions it still holds (cooperative) or held (sticky)."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None
    instance_id: str | None = None  # not in the data: JoinGroup's answer names it


def _write_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> None:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    writer.array_length(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.int32s(numbers)


def encode_subscription(wanted: Subscription) -> bytes:
    """Version 3."""
    writer = Writer()
    writer.int16(SUBSCRIPTION_VERSION)
    writer.strings(wanted.topics)
    writer.byte_string(wanted.user_data)
    _write_partitions(writer, wanted.owned)
    writer.int32(wanted.generation)
    writer.string(wanted.rack or None)
    return writer.joined()


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Version 0: all later ones are the same."""
    writer = Writer()
    writer.int16(0)
    _write_partitions(writer, partitions)
    writer.byte_string(None)
    return writer.joined()


def encode_sticky_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """User data of Java's StickyAssignor, version 1: the previous assignment and its generation."""
    writer = Writer()
    _write_partitions(writer, owned)
    writer.int32(generation)
    return writer.joined()


def encode_cooperative_data(generation: int) -> bytes:
    """User data of Java's CooperativeStickyAssignor: the generation of what is owned."""
    return struct.pack(">i", generation)


@contextmanager
def _reading(data: bytes) -> Iterator[Reader]:
    """Raises ProtocolError for what does not fit."""
    try:
        yield Reader(data)
    except MalformedMessage as error:
        raise ProtocolError(f"group protocol data of {len(data)} bytes: {error}") from error


def _count(reader: Reader) -> int:
    """An array's length; a null array is empty."""
    return max(reader.array_length(), 0)


def _read_partitions(reader: Reader) -> list[TopicPartition]:
    found = []
    for _ in range(_count(reader)):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(_count(reader))]
    return found


def decode_subscription(data: bytes) -> Subscription:
    """Any version. Raises ProtocolError."""
    with _reading(data) as reader:
        version = reader.int16()
        topics = [reader.string() for _ in range(_count(reader))]
        user_data = reader.nullable_bytes() if reader.left else None
        found = Subscription(topics, user_data=None if user_data is None else bytes(user_data))
        if version >= 1 and reader.left:
            found = found._replace(owned=_read_partitions(reader))
        if version >= 2 and reader.left:
            found = found._replace(generation=reader.int32())
        if version >= 3 and reader.left:
            found = found._replace(rack=reader.nullable_string())
    return found


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions; none for empty data, as a leader that left gives. Raises ProtocolError."""
    if not data:
        return []
    with _reading(data) as reader:
        reader.int16()
        return _read_partitions(reader)


def decode_sticky_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """(previous assignment, generation) of Java's StickyAssignor; version 0 has no generation.

    Data that cannot be read counts as none, as in Java: another assignor's member may have written it.
    """
    if not data:
        return [], NO_GENERATION
    try:
        with _reading(data) as reader:
            return _read_partitions(reader), reader.int32() if reader.left else NO_GENERATION
    except ProtocolError:
        return [], NO_GENERATION


def decode_cooperative_data(data: bytes | None) -> int:
    """The generation, -1 when there is none."""
    return int(struct.unpack(">i", data)[0]) if data is not None and len(data) == 4 else NO_GENERATION
