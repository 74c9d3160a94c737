"""Kafka's consumer group data in the form of assignors: subscriptions, assignments, the assignors' user data.

`protocol/consumer_protocol.py` encodes and decodes subscriptions and assignments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from fencepost.client.partition_assignor import Assignment, Subscription
from fencepost.client.types import TopicPartition
from fencepost.errors import ProtocolError
from fencepost.protocol import consumer_protocol
from fencepost.protocol.consumer_protocol import NO_GENERATION, read_partitions, write_partitions
from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage

SUBSCRIPTION_VERSION: Final = 3


def encode_subscription(wanted: Subscription) -> bytes:
    """Encode a subscription in version 3."""
    owned, generation, rack, user_data = wanted.owned, wanted.generation, wanted.rack, wanted.user_data
    return consumer_protocol.encode_subscription(
        consumer_protocol.JoinSubscription(SUBSCRIPTION_VERSION, wanted.topics, owned, generation, rack, user_data)
    )


def encode_sticky_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode the user data of Java's StickyAssignor, version 1: the previous assignment and its generation."""
    writer = Writer()
    write_partitions(writer, owned)
    writer.int32(generation)
    return writer.joined()


def encode_cooperative_data(generation: int) -> bytes:
    """Encode the user data of Java's CooperativeStickyAssignor: the generation of the owned partitions."""
    return struct.pack(">i", generation)


@contextmanager
def _reading(data: bytes) -> Iterator[Reader]:
    """Yield a reader of the data. Raises ProtocolError if the data is malformed."""
    try:
        yield Reader(data)
    except MalformedMessage as error:
        raise ProtocolError(f"group protocol data of {len(data)} bytes: {error}") from error


def _topic_partitions(partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, index in partitions]


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription of any version. Raises ProtocolError."""
    with _reading(data):
        read = consumer_protocol.decode_subscription(data)
    owned = _topic_partitions(read.owned) if read.owned else ()
    return Subscription(read.topics, owned, read.generation, read.rack, read.user_data)


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment in version 0."""
    return consumer_protocol.encode_assignment(assignment.partitions, user_data=assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment. Empty data, as from a leader that left, has no partitions. Raises ProtocolError."""
    with _reading(data):
        partitions, user_data = consumer_protocol.decode_assignment(data)
        return Assignment(_topic_partitions(partitions), user_data)


def decode_sticky_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """Return (previous assignment, generation) of Java's StickyAssignor. Version 0 has no generation.

    Malformed data counts as none, as in Java: a member with another assignor may have written it.
    """
    if not data:
        return [], NO_GENERATION
    try:
        with _reading(data) as reader:
            return _topic_partitions(read_partitions(reader)), reader.int32() if reader.left else NO_GENERATION
    except ProtocolError:
        return [], NO_GENERATION


def decode_cooperative_data(data: bytes | None) -> int:
    """Return the generation, -1 if there is none."""
    return int(struct.unpack(">i", data)[0]) if data is not None and len(data) == 4 else NO_GENERATION
