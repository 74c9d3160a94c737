"""Kafka's consumer group protocol data ("consumer" protocol): subscriptions, assignments, the assignors' user data.

Subscription: version int16, topics, user data; v1 adds the partitions owned, v2 the generation they were owned in, v3
the rack. Assignment: version int16, (topic, partitions), user data. Newer versions only append, so any version is read.
Version 3 is written, as Java 3.5 and later do; readers of version 0 and 1 stop where their version ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import ProtocolError

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


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _nullable(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    parts = [struct.pack(">i", len(topics))]
    for topic, numbers in topics.items():
        parts.append(_string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def encode_subscription(wanted: Subscription) -> bytes:
    """Version 3."""
    return b"".join(
        (
            struct.pack(">hi", SUBSCRIPTION_VERSION, len(wanted.topics)),
            *map(_string, wanted.topics),
            _nullable(wanted.user_data),
            _partitions(wanted.owned),
            struct.pack(">i", wanted.generation),
            struct.pack(">h", -1) if not wanted.rack else _string(wanted.rack),
        )
    )


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Version 0: all later ones are the same."""
    return struct.pack(">h", 0) + _partitions(partitions) + _nullable(None)


def encode_sticky_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """User data of Java's StickyAssignor, version 1: the previous assignment and its generation."""
    return _partitions(owned) + struct.pack(">i", generation)


def encode_cooperative_data(generation: int) -> bytes:
    """User data of Java's CooperativeStickyAssignor: the generation of what is owned."""
    return struct.pack(">i", generation)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def numbers(self, form: str) -> tuple[int, ...]:
        try:
            found = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise ProtocolError(f"group protocol data cut short: {len(self._data)} bytes") from error
        self._at += struct.calcsize(form)
        return found

    def count(self) -> int:
        """An array's length; a null array is empty."""
        (found,) = self.numbers(">i")
        if found > self.left:
            raise ProtocolError(f"group protocol data: {found} entries in {self.left} bytes")
        return max(found, 0)

    def string(self) -> str:
        (length,) = self.numbers(">h")
        if length < 0 or length > self.left:
            raise ProtocolError(f"group protocol data: a text of {length} bytes")
        return self._take(length).decode()

    def nullable_string(self) -> str | None:
        (length,) = struct.unpack_from(">h", self._data, self._at) if self.left >= 2 else (0,)
        if length < 0:
            self._at += 2
            return None
        return self.string()

    def nullable_bytes(self) -> bytes | None:
        (length,) = self.numbers(">i")
        if length < 0:
            return None
        if length > self.left:
            raise ProtocolError(f"group protocol data: {length} bytes of user data in {self.left}")
        return self._take(length)

    def _take(self, length: int) -> bytes:
        data = self._data[self._at : self._at + length]
        self._at += length
        return data

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, number) for number in self.numbers(f">{self.count()}i")]
        return found


def decode_subscription(data: bytes) -> Subscription:
    """Any version. Raises ProtocolError."""
    reader = _Reader(bytes(data))
    (version,) = reader.numbers(">h")
    topics = [reader.string() for _ in range(reader.count())]
    found = Subscription(topics, user_data=reader.nullable_bytes() if reader.left else None)
    if version >= 1 and reader.left:
        found = found._replace(owned=reader.partitions())
    if version >= 2 and reader.left:
        found = found._replace(generation=reader.numbers(">i")[0])
    if version >= 3 and reader.left:
        found = found._replace(rack=reader.nullable_string())
    return found


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions; none for empty data, as a leader that left gives. Raises ProtocolError."""
    if not data:
        return []
    reader = _Reader(bytes(data))
    reader.numbers(">h")
    return reader.partitions()


def decode_sticky_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """(previous assignment, generation) of Java's StickyAssignor; version 0 has no generation.

    Data that cannot be read counts as none, as in Java: another assignor's member may have written it.
    """
    if not data:
        return [], NO_GENERATION
    reader = _Reader(bytes(data))
    try:
        owned = reader.partitions()
        generation = reader.numbers(">i")[0] if reader.left else NO_GENERATION
    except (ProtocolError, UnicodeDecodeError):
        return [], NO_GENERATION
    return owned, generation


def decode_cooperative_data(data: bytes | None) -> int:
    """The generation, -1 when there is none."""
    return int(struct.unpack(">i", data)[0]) if data is not None and len(data) == 4 else NO_GENERATION
