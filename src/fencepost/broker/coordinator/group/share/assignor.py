"""Who of a share group is to read which partition (KIP-932): a pure function of its members and topics.

As Kafka's simple assignor promises: each subscriber of a topic gets at least one of its partitions, each partition gets
at least one subscriber, and both are spread evenly. Which of the even ways comes out is not Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

__all__ = ["ASSIGNOR_NAME", "assign"]

ASSIGNOR_NAME = "simple"


def assign(
    subscriptions: Mapping[str, Iterable[UUID]], partitions: Mapping[UUID, int]
) -> dict[str, frozenset[TopicIdPartition]]:
    """What each member gets. `subscriptions`: the topics of each member; `partitions`: how many each topic has."""
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscriptions}
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(subscriptions):
        for topic_id in subscriptions[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    turn = 0  # goes on from topic to topic, or the first member would get every topic's odd partition
    for topic_id in sorted(subscribers):
        readers, count = subscribers[topic_id], partitions[topic_id]
        places = max(count, len(readers)) if count else 0
        for place in range(places):
            shares[readers[(turn + place) % len(readers)]].add(TopicIdPartition(topic_id, place % count))
        turn += places
    return {member_id: frozenset(share) for member_id, share in shares.items()}
