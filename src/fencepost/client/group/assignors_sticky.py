"""The sticky assignment: as balanced as subscriptions allow, moving as little as possible (KIP-54, KIP-341, KIP-429).

Members keep their partitions. Partitions without an owner go to the subscriber with the fewest partitions. Then single
partitions move from members with many to members with few, while a move reduces a difference of two or more. With equal
subscriptions the members' counts differ by at most one, with the fewest moves that reach it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping

from fencepost.client.partition_assignor import Subscription
from fencepost.client.types import TopicPartition

log = logging.getLogger("fencepost.client.group")

Owners = dict[TopicPartition, str]


def assign_sticky(
    members: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Assign every partition of a subscribed topic to one subscriber. Uses the members' `owned` and `generation`."""
    subscribers = {
        topic: [member for member in sorted(members) if topic in members[member].topics]
        for topic in {topic for subscription in members.values() for topic in subscription.topics}
        if partitions.get(topic, 0) > 0
    }
    owners = _current_owners(members, partitions)
    loads = dict.fromkeys(sorted(members), 0)
    for member in owners.values():
        loads[member] += 1
    # Topics with the fewest subscribers first: partitions of other topics have more choices later.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in topics:
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            if partition not in owners:
                taker = min(subscribers[topic], key=lambda member: (loads[member], member))
                owners[partition] = taker
                loads[taker] += 1
    held = {(member, partition) for member, wanted in members.items() for partition in wanted.owned}
    _balance(owners, loads, subscribers, held)
    result: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for partition in sorted(owners):
        result[owners[partition]].append(partition)
    return result


def _current_owners(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Owners:
    """Return the owner of each partition. The claim of the later generation wins; of equal ones, neither."""
    owners: Owners = {}
    disputed: set[TopicPartition] = set()
    generations: dict[TopicPartition, int] = {}
    for member in sorted(members):
        subscription = members[member]
        for partition in subscription.owned:
            if partition.topic not in subscription.topics or partition.partition >= partitions.get(partition.topic, 0):
                continue
            before = generations.get(partition)
            if before is not None and before > subscription.generation:
                continue
            if before == subscription.generation:
                log.warning(
                    "%s and %s both claim %s-%d of generation %d", owners.get(partition), member, *partition, before
                )
                disputed.add(partition)
                continue
            disputed.discard(partition)
            owners[partition], generations[partition] = member, subscription.generation
    return {partition: member for partition, member in owners.items() if partition not in disputed}


def _balance(
    owners: Owners,
    loads: dict[str, int],
    subscribers: Mapping[str, list[str]],
    held: set[tuple[str, TopicPartition]],
) -> None:
    """Move single partitions until no move helps. It ends, because each move reduces the sum of squared loads."""
    belongings: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, member in sorted(owners.items()):
        belongings[member].append(partition)
    for member, own in belongings.items():
        owned = {partition for who, partition in held if who == member}
        own.sort(key=owned.__contains__)  # partitions that are new to the member move first
    while (move := _best_move(belongings, loads, subscribers)) is not None:
        partition, giver, taker = move
        belongings[giver].remove(partition)
        belongings[taker].append(partition)
        owners[partition] = taker
        loads[giver] -= 1
        loads[taker] += 1


def _best_move(
    belongings: Mapping[str, list[TopicPartition]], loads: Mapping[str, int], subscribers: Mapping[str, list[str]]
) -> tuple[TopicPartition, str, str] | None:
    """Return (partition, from, to), or None.

    The giver is the member with the most partitions that can give to a member with at least two less. One move at a
    time from that member prevents moves that are undone later.
    """
    for giver in sorted(loads, key=lambda member: (-loads[member], member)):
        if loads[giver] < 2:
            return None
        takers: dict[str, str] = {}
        for partition in belongings[giver]:
            taker = takers.get(partition.topic)
            if taker is None:
                taker = min(subscribers[partition.topic], key=lambda member: (loads[member], member))
                takers[partition.topic] = taker
            if loads[taker] + 1 < loads[giver]:
                return partition, giver, taker
    return None
