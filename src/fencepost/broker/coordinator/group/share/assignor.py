"""Assignor of share groups (KIP-932): a pure function of members, topics and the present assignment.

As in Kafka's simple assignor, every partition of a topic has the same number of readers: the lowest number that gives
each subscriber at least one partition. Members get equally many partitions, and keep those that they have. If this is
not possible, the members with the latest heartbeats get one more. A new reader goes first to the partition whose
readers sent their heartbeats longest ago, because the coordinator notices a dead member only when its session ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from uuid import UUID

from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

__all__ = ["ASSIGNOR_NAME", "assign"]

ASSIGNOR_NAME = "simple"

_NOTHING: frozenset[TopicIdPartition] = frozenset()


class _Topic:
    """One topic during the assignment. `quotas`: the number of partitions that each subscriber gets."""

    def __init__(self, quotas: dict[str, int], sharing: int, count: int, last_heartbeat_ms: Mapping[str, int]) -> None:
        self.quotas = quotas
        self.given: dict[str, set[int]] = {member_id: set() for member_id in quotas}
        self._sharing = sharing
        self._readers: list[list[str]] = [[] for _ in range(count)]
        self._last_heartbeat_ms = last_heartbeat_ms

    def keep(self, had: Mapping[str, list[int]]) -> None:
        """Let members keep their partitions, up to their quota and to the number of readers of a partition."""
        recent = sorted(had, key=lambda member_id: (-self._last_heartbeat_ms[member_id], member_id))
        present: list[list[str]] = [[] for _ in self._readers]
        for member_id in recent:
            for index in had[member_id]:
                present[index].append(member_id)
        # Partitions with few readers first, so that a member with a low quota keeps those that no other member reads.
        for index in sorted(range(len(present)), key=lambda index: (len(present[index]), index)):
            for member_id in present[index]:
                if len(self._readers[index]) < self._sharing and self._has_room(member_id):
                    self._give(index, member_id)

    def fill(self) -> None:
        """Give every partition its number of readers, as long as members with free quota do not read it yet."""
        short = [self._need(index) for index, readers in enumerate(self._readers) if len(readers) < self._sharing]
        free = [self._claim(member_id) for member_id in self.quotas if self._has_room(member_id)]
        heapq.heapify(short)
        heapq.heapify(free)
        while short:
            index = heapq.heappop(short)[-1]
            passed = []
            while free and index in self.given[free[0][-1]]:
                passed.append(heapq.heappop(free))
            if free:
                taker = heapq.heappop(free)[-1]
                self._give(index, taker)
                if self._has_room(taker):
                    heapq.heappush(free, self._claim(taker))
                if len(self._readers[index]) < self._sharing:
                    heapq.heappush(short, self._need(index))
            for claim in passed:
                heapq.heappush(free, claim)

    def _need(self, index: int) -> tuple[int, int, int]:
        """Return the sort key of a partition. The lowest key gets a reader first."""
        readers = self._readers[index]
        return (len(readers), max((self._last_heartbeat_ms[each] for each in readers), default=-1), index)

    def _claim(self, member_id: str) -> tuple[int, int, str]:
        """Return the sort key of a member. The lowest key is given a partition first."""
        return (len(self.given[member_id]), -self._last_heartbeat_ms[member_id], member_id)

    def _has_room(self, member_id: str) -> bool:
        return len(self.given[member_id]) < self.quotas[member_id]

    def _give(self, index: int, member_id: str) -> None:
        self._readers[index].append(member_id)
        self.given[member_id].add(index)


def assign(
    subscriptions: Mapping[str, Iterable[UUID]],
    partitions: Mapping[UUID, int],
    present: Mapping[str, frozenset[TopicIdPartition]],
    last_heartbeat_ms: Mapping[str, int],
) -> dict[str, frozenset[TopicIdPartition]]:
    """Assign the partitions of all topics.

    Args:
        subscriptions: The topics of each member.
        partitions: The number of partitions of each topic.
        present: The current partitions of members. A member that joins may be missing.
        last_heartbeat_ms: Time of each member's last heartbeat, in ms of any clock.
    """
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscriptions}
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(subscriptions):
        for topic_id in subscriptions[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id in sorted(subscribers):
        members, count = subscribers[topic_id], partitions[topic_id]
        if count == 0:
            continue
        had = {
            member_id: [
                each.partition
                for each in sorted(present.get(member_id, _NOTHING))
                if each.topic_id == topic_id and each.partition < count
            ]
            for member_id in members
        }
        sharing = -(-len(members) // count)
        sizes = {member_id: len(share) for member_id, share in shares.items()}
        topic = _Topic(_quotas(had, count * sharing, sizes, last_heartbeat_ms), sharing, count, last_heartbeat_ms)
        topic.keep(had)
        topic.fill()
        for member_id, indexes in topic.given.items():
            shares[member_id].update(TopicIdPartition(topic_id, index) for index in indexes)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _quotas(
    had: Mapping[str, list[int]], count: int, sizes: Mapping[str, int], last_heartbeat_ms: Mapping[str, int]
) -> dict[str, int]:
    """Divide `count` partitions among the members. `sizes`: the number of partitions of other topics that each has."""
    least, extra = divmod(count, len(had))

    def order(member_id: str) -> tuple[int, bool, int, str]:
        keeps = len(had[member_id]) > least
        # A partition moves only if the sizes would differ by two otherwise.
        return (sizes[member_id] - keeps, not keeps, -last_heartbeat_ms[member_id], member_id)

    more = set(sorted(had, key=order)[:extra])
    return {member_id: least + (member_id in more) for member_id in had}
