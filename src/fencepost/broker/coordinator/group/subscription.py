"""What a coordinator reads of the consumer protocol: subscriptions, and in groups that change over, assignments.

Source: `ConsumerProtocolSubscription` (0-3) and `ConsumerProtocolAssignment` (0-3) of Apache Kafka 4.x. Each version of
either begins as version 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fencepost.protocol.cursor import Reader, Writer
from fencepost.protocol.errors import MalformedMessage

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "Subscription",
    "encode_assignment",
    "read_assignment",
    "read_subscription",
    "subscribed_topics",
]

CONSUMER_PROTOCOL_TYPE = "consumer"
_FIRST_WITH_OWNED = 1
_FIRST_WITH_RACK = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer says when it joins; `owned` are (topic, partition), of versions below 1 none."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, int], ...] = ()
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription | None:
    """The subscription; None for bytes that are none."""
    try:
        reader = Reader(data)
        version = reader.int16()
        topics = tuple(reader.strings())
        user_data = reader.int32()
        if user_data > 0:
            reader.take(user_data)
        owned = _partitions(reader) if version >= _FIRST_WITH_OWNED else ()
        rack_id = None
        if version >= _FIRST_WITH_RACK:
            reader.int32()  # the generation that the partitions are of
            rack_id = reader.nullable_string()
    except MalformedMessage:
        return None  # the bytes are the client's business; not being able to read them is an answer
    return Subscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> tuple[tuple[str, int], ...] | None:
    """(topic, partition) of an assignment; None for bytes that are none. No bytes are an empty assignment."""
    if not data:
        return ()
    try:
        reader = Reader(data)
        reader.int16()
        return _partitions(reader)
    except MalformedMessage:
        return None  # as above


def encode_assignment(version: int, partitions: Iterable[tuple[str, int]]) -> bytes:
    """An assignment without user data, in the version of its member's subscription."""
    writer = Writer()
    writer.int16(version)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    writer.array_length(len(by_topic))
    for topic, indexes in by_topic.items():
        writer.string(topic)
        writer.int32s(indexes)
    writer.int32(-1)
    return writer.joined()


def _partitions(reader: Reader) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for _ in range(reader.count()):
        topic = reader.string()
        found.extend((topic, index) for index in reader.int32s())
    return tuple(found)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in the given subscriptions; None if one of them is not readable.

    Every version of ConsumerProtocolSubscription begins as version 0: int16 version, then an array of topic names.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        found = _topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str] | None:
    try:
        reader = Reader(subscription)
        return None if reader.int16() < 0 else reader.strings()
    except MalformedMessage:
        return None  # the bytes are the client's business; not being able to read them is an answer
