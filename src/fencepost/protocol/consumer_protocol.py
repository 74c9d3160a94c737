"""Subscriptions and assignments that classic group members exchange in JoinGroup and SyncGroup (type "consumer").

Subscription: version int16, topics, user data. Version 1 adds the owned partitions, version 2 the generation in which
they were owned, version 3 the rack. Assignment: version int16, (topic, partitions), user data. Each version only
appends fields, so a reader of any version takes the fields that the bytes contain.
Source: `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment` (versions 0-3) of Apache Kafka 4.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Reader, Writer

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "NO_GENERATION",
    "JoinSubscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "read_partitions",
    "write_partitions",
]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_FIRST_WITH_OWNED, _FIRST_WITH_GENERATION, _FIRST_WITH_RACK = 1, 2, 3


class JoinSubscription(NamedTuple):
    """Subscription of a joining member. `owned` lists the (topic, partition) pairs that it owned last."""

    version: int
    topics: Sequence[str]
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None


def encode_subscription(subscription: JoinSubscription) -> bytes:
    """Encode with the fields of version 3, as Java clients since 3.5 do; older readers ignore the later fields."""
    writer = Writer()
    writer.int16(subscription.version)
    writer.strings(subscription.topics)
    writer.byte_string(subscription.user_data)
    write_partitions(writer, subscription.owned)
    writer.int32(subscription.generation)
    writer.string(subscription.rack or None)
    return writer.joined()


def decode_subscription(data: bytes) -> JoinSubscription:
    """Decode a subscription of any version.

    Raises:
        MalformedMessage: The bytes are not a subscription.
    """
    reader = Reader(data)
    version = reader.int16()
    topics = [reader.string() for _ in range(_count(reader))]
    user_data = reader.nullable_bytes() if reader.left else None
    read = JoinSubscription(version, topics, user_data=None if user_data is None else bytes(user_data))
    if version >= _FIRST_WITH_OWNED and reader.left:
        read = read._replace(owned=read_partitions(reader))
    if version >= _FIRST_WITH_GENERATION and reader.left:
        read = read._replace(generation=reader.int32())
    if version >= _FIRST_WITH_RACK and reader.left:
        read = read._replace(rack=reader.nullable_string())
    return read


def encode_assignment(partitions: Iterable[tuple[str, int]], version: int = 0, user_data: bytes | None = None) -> bytes:
    """Encode an assignment. All versions have the same layout."""
    writer = Writer()
    writer.int16(version)
    write_partitions(writer, partitions)
    writer.byte_string(user_data)
    return writer.joined()


def decode_assignment(data: bytes) -> tuple[list[tuple[str, int]], bytes | None]:
    """Return the assigned (topic, partition) pairs, and the user data of the leader's assignor.

    Empty data means no partitions. A member receives it if the group leader assigned nothing to it.

    Raises:
        MalformedMessage: The bytes are not an assignment.
    """
    if not data:
        return [], None
    reader = Reader(data)
    reader.int16()
    partitions = read_partitions(reader)
    user_data = reader.nullable_bytes() if reader.left else None
    return partitions, None if user_data is None else bytes(user_data)


def write_partitions(writer: Writer, partitions: Iterable[tuple[str, int]]) -> None:
    """Write (topic, partition) pairs grouped by topic, in the given order."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    writer.array_length(len(by_topic))
    for topic, indexes in by_topic.items():
        writer.string(topic)
        writer.int32s(indexes)


def read_partitions(reader: Reader) -> list[tuple[str, int]]:
    """Read (topic, partition) pairs.

    Raises:
        MalformedMessage: The bytes are not a list of partitions.
    """
    partitions = []
    for _ in range(_count(reader)):
        topic = reader.string()
        partitions += [(topic, reader.int32()) for _ in range(_count(reader))]
    return partitions


def _count(reader: Reader) -> int:
    """Return an array's length. A null array counts as empty."""
    return max(reader.array_length(), 0)
