"""Server-side assignors of consumer groups (KIP-848), as pure functions.

`range` gives each member consecutive partitions of each topic, in the order of member ids. Members with the same topics
therefore get the same partition numbers of each (co-partitioning). `uniform` distributes partitions as evenly as the
subscriptions allow, and moves few of them. Both have the properties of Kafka's assignors (`RangeAssignor`,
`UniformAssignor`). If several assignments are equally good, they may choose another one than Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.values import Value

__all__ = ["ASSIGNORS", "Assignee", "Assignor"]


class Assignee(Value):
    """A member: its subscribed topics that exist, and its present target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    present: frozenset[TopicIdPartition]


Shares = dict[str, frozenset[TopicIdPartition]]
Assignor = Callable[[Sequence[Assignee], Mapping[UUID, int]], Shares]


def assign_range(members: Sequence[Assignee], partitions: Mapping[UUID, int]) -> Shares:
    """Assign runs of each topic's partitions, static members first. `partitions` has the count per topic."""
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))
    shares: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in ordered}
    for topic_id, count in partitions.items():
        subscribers = [member for member in ordered if topic_id in member.topics]
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        start = 0
        for rank, member in enumerate(subscribers):
            end = start + least + (rank < extra)
            shares[member.member_id].update(TopicIdPartition(topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(members: Sequence[Assignee], partitions: Mapping[UUID, int]) -> Shares:
    """Assign even shares that differ little from the present ones."""
    if len({member.topics for member in members}) == 1:
        return _even(members, partitions)
    return _balanced(members, partitions)


def _even(members: Sequence[Assignee], partitions: Mapping[UUID, int]) -> Shares:
    """Assign for equal subscriptions: members keep partitions up to a quota, and the rest fills up the others."""
    topics = members[0].topics
    every = [TopicIdPartition(topic, i) for topic in sorted(topics) for i in range(partitions.get(topic, 0))]
    existing = frozenset(every)
    least, extra = divmod(len(every), len(members))
    shares: dict[str, list[TopicIdPartition]] = {}
    quotas: dict[str, int] = {}
    taken: set[TopicIdPartition] = set()
    # The members with the most partitions get the larger quotas, so that nothing of theirs moves.
    by_size = sorted(members, key=lambda member: (-len(member.present & existing), member.member_id))
    for index, member in enumerate(by_size):
        quotas[member.member_id] = least + (index < extra)
        present = sorted((member.present & existing) - taken)
        shares[member.member_id] = present[: quotas[member.member_id]]
        taken.update(shares[member.member_id])
    free = iter([partition for partition in every if partition not in taken])
    for member in by_size:
        share = shares[member.member_id]
        while len(share) < quotas[member.member_id]:
            share.append(next(free))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _balanced(members: Sequence[Assignee], partitions: Mapping[UUID, int]) -> Shares:
    """Assign for different subscriptions: place free partitions, then move partitions to even out members."""
    subscribers: dict[UUID, list[str]] = {}
    shares: dict[str, set[TopicIdPartition]] = {}
    owner: dict[TopicIdPartition, str] = {}
    for member in sorted(members, key=lambda member: member.member_id):
        shares[member.member_id] = set()
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
        for partition in sorted(member.present):
            known = partition.topic_id in member.topics and partition.partition < partitions.get(partition.topic_id, 0)
            if known and partition not in owner:
                owner[partition] = member.member_id
                shares[member.member_id].add(partition)
    everything = [
        TopicIdPartition(topic_id, index) for topic_id in subscribers for index in range(partitions.get(topic_id, 0))
    ]
    # Partitions with fewer possible members are placed first.
    everything.sort(key=lambda partition: (len(subscribers[partition.topic_id]), partition))
    for partition in everything:
        if partition not in owner:
            owner[partition] = min(subscribers[partition.topic_id], key=lambda name: (len(shares[name]), name))
            shares[owner[partition]].add(partition)
    moved = True
    while moved:  # every move lowers the sum of the squares of the shares' sizes, so this ends
        moved = False
        for partition in everything:
            best = min(subscribers[partition.topic_id], key=lambda name: (len(shares[name]), name))
            present = owner[partition]
            if len(shares[best]) + 1 < len(shares[present]):
                shares[present].discard(partition)
                shares[best].add(partition)
                owner[partition] = best
                moved = True
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
