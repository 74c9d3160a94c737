"""Kafka's consumer group protocol data ("consumer" protocol, versions 0 and up) and two of its assignors.

Subscription: version int16, topics, user data. Assignment: version int16, (topic, partitions), user data. Both are read
in any version, because newer ones only append; version 0 is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError, ProtocolError

Members = Mapping[str, Sequence[str]]  # member id -> topics it subscribes to
Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def range_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Each topic's partitions in contiguous runs over its subscribers, sorted by member id (Kafka's RangeAssignor)."""
    result: Assignment = {member: [] for member in members}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        subscribers = sorted(member for member, topics in members.items() if topic in topics)
        count = partitions.get(topic, 0)
        each, extra = divmod(count, len(subscribers))
        at = 0
        for position, member in enumerate(subscribers):
            size = each + (1 if position < extra else 0)
            result[member] += [TopicPartition(topic, number) for number in range(at, at + size)]
            at += size
    return result


def round_robin_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """All partitions dealt out in turn to the members, skipping those that do not subscribe (RoundRobinAssignor)."""
    result: Assignment = {member: [] for member in members}
    order = sorted(members)
    turn = 0
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        for number in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]]:
                turn += 1
            result[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return result


ASSIGNORS: Final[dict[str, Assignor]] = {"range": range_assignor, "roundrobin": round_robin_assignor}


def assignor(name: str) -> Assignor:
    """By Kafka's protocol name. Raises ConfigurationError."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ConfigurationError(f"partition_assignment_strategy {name!r}: known are {', '.join(sorted(ASSIGNORS))}")
    return found


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Version 0."""
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_string, topics)) + struct.pack(">i", -1)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """Version 0."""
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    parts = [struct.pack(">hi", 0, len(topics))]
    for topic, numbers in topics.items():
        parts.append(_string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts) + struct.pack(">i", -1)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        try:
            found = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise ProtocolError(f"group protocol data cut short: {len(self._data)} bytes") from error
        self._at += struct.calcsize(form)
        return found

    def string(self) -> str:
        (length,) = self.numbers(">h")
        if length < 0 or self._at + length > len(self._data):
            raise ProtocolError(f"group protocol data: a text of {length} bytes")
        text = self._data[self._at : self._at + length].decode()
        self._at += length
        return text


def decode_subscription(data: bytes) -> list[str]:
    """The topics. Raises ProtocolError."""
    reader = _Reader(bytes(data))
    _, count = reader.numbers(">hi")
    return [reader.string() for _ in range(count)]


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions; none for empty data, as a leader that left gives. Raises ProtocolError."""
    if not data:
        return []
    reader = _Reader(bytes(data))
    _, count = reader.numbers(">hi")
    found = []
    for _ in range(count):
        topic = reader.string()
        (numbers,) = reader.numbers(">i")
        found += [TopicPartition(topic, number) for number in reader.numbers(f">{numbers}i")]
    return found
