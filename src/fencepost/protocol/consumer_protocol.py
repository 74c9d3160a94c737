"""What classic members tell each other through JoinGroup and SyncGroup (protocol type "consumer").

Subscription: version int16, topics, user data; v1 adds the partitions owned, v2 the generation they were owned in, v3
the rack. Assignment: version int16, (topic, partitions), user data. Newer versions only append, so any version is read,
as far as its bytes go. Source: `ConsumerProtocolSubscription`, `ConsumerProtocolAssignment` (0-3) of Apache Kafka 4.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Reader, Writer

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "NO_GENERATION",
    "Subscription",
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


class Subscription(NamedTuple):
    """What a member says when it joins. `owned` are (topic, partition) that it still holds, or held."""

    version: int
    topics: Sequence[str]
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Version 3, as Java 3.5 and later write it: readers of older versions stop where theirs ends."""
    writer = Writer()
    writer.int16(subscription.version)
    writer.strings(subscription.topics)
    writer.byte_string(subscription.user_data)
    write_partitions(writer, subscription.owned)
    writer.int32(subscription.generation)
    writer.string(subscription.rack or None)
    return writer.joined()


def decode_subscription(data: bytes) -> Subscription:
    """Raises MalformedMessage."""
    reader = Reader(data)
    version = reader.int16()
    topics = [reader.string() for _ in range(_count(reader))]
    user_data = reader.nullable_bytes() if reader.left else None
    read = Subscription(version, topics, user_data=None if user_data is None else bytes(user_data))
    if version >= _FIRST_WITH_OWNED and reader.left:
        read = read._replace(owned=read_partitions(reader))
    if version >= _FIRST_WITH_GENERATION and reader.left:
        read = read._replace(generation=reader.int32())
    if version >= _FIRST_WITH_RACK and reader.left:
        read = read._replace(rack=reader.nullable_string())
    return read


def encode_assignment(partitions: Iterable[tuple[str, int]], version: int = 0) -> bytes:
    """Without user data. All versions are the same."""
    writer = Writer()
    writer.int16(version)
    write_partitions(writer, partitions)
    writer.byte_string(None)
    return writer.joined()


def decode_assignment(data: bytes) -> list[tuple[str, int]]:
    """(topic, partition); none for empty data, as a leader that left gives. Raises MalformedMessage."""
    if not data:
        return []
    reader = Reader(data)
    reader.int16()
    return read_partitions(reader)


def write_partitions(writer: Writer, partitions: Iterable[tuple[str, int]]) -> None:
    """(topic, partition) by topic, in the order given."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    writer.array_length(len(by_topic))
    for topic, indexes in by_topic.items():
        writer.string(topic)
        writer.int32s(indexes)


def read_partitions(reader: Reader) -> list[tuple[str, int]]:
    """Raises MalformedMessage."""
    partitions = []
    for _ in range(_count(reader)):
        topic = reader.string()
        partitions += [(topic, reader.int32()) for _ in range(_count(reader))]
    return partitions


def _count(reader: Reader) -> int:
    """An array's length; a null array is empty."""
    return max(reader.array_length(), 0)
