"""The sticky assignment: as balanced as subscriptions allow, moving as little as possible (KIP-54, KIP-341, KIP-429).

Members keep what they hold; what nobody holds goes to the least loaded subscriber; then single partitions move from
loaded to less loaded members for as long as a move makes a difference of two or more smaller. With equal subscriptions
the result differs by at most one partition per member, with the fewest moves that reach it.
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
    """Every partition of a subscribed topic to exactly one subscriber. `owned` and `generation` of members count."""
    subscribers = {
        topic: [member for member in sorted(members) if topic in members[member].topics]
        for topic in {topic for subscription in members.values() for topic in subscription.topics}
        if partitions.get(topic, 0) > 0
    }
    owners = _kept(members, partitions)
    loads = dict.fromkeys(sorted(members), 0)
    for member in owners.values():
        loads[member] += 1
    # Those with the fewest possible takers first: later partitions can still go elsewhere.
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


def _kept(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Owners:
    """Return the owner of each partition. The claim of the later generation wins; of equal ones, neither."""
    owners: Owners = {}
    disputed: set[TopicPartition] = set()
    generations: dict[TopicPartition, int] = {}
    for member in sorted(members):
        wanted = members[member]
        for partition in wanted.owned:
            if partition.topic not in wanted.topics or partition.partition >= partitions.get(partition.topic, 0):
                continue
            before = generations.get(partition)
            if before is not None and before > wanted.generation:
                continue
            if before == wanted.generation:
                log.warning(
                    "%s and %s both claim %s-%d of generation %d", owners.get(partition), member, *partition, before
                )
                disputed.add(partition)
                continue
            disputed.discard(partition)
            owners[partition], generations[partition] = member, wanted.generation
    return {partition: member for partition, member in owners.items() if partition not in disputed}


def _balance(
    owners: Owners,
    loads: dict[str, int],
    subscribers: Mapping[str, list[str]],
    held: set[tuple[str, TopicPartition]],
) -> None:
    """Move single partitions until no move helps. Ends: each move makes the sum of squared loads smaller."""
    belongings: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, member in sorted(owners.items()):
        belongings[member].append(partition)
    for member, mine in belongings.items():
        owned = {partition for who, partition in held if who == member}
        mine.sort(key=owned.__contains__)  # partitions that are new to the member move first
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
    """(partition, from, to): from the most loaded member that can give to a member with at least two less.

    One move at a time from the top, so that nobody gives away what comes back to it later.
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
