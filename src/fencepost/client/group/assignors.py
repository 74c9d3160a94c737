"""The assignors that a group's leader runs: range, roundrobin, sticky, cooperative-sticky, by Kafka's protocol names.

Range and round robin give exactly what Java's do (a member that leads next, in whatever language, changes nothing).
The sticky assignors give what Java's promise: balance first, then as few moves as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from fencepost.client.group.assignors_sticky import assign_sticky, withhold_moving
from fencepost.client.group.assignors_wire import (
    Subscription,
    decode_cooperative_data,
    decode_sticky_data,
    encode_cooperative_data,
    encode_sticky_data,
)
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError

Members = Mapping[str, Subscription]  # by member id
Assignment = dict[str, list[TopicPartition]]


class Assignor(NamedTuple):
    """One strategy. `cooperative`: members keep what they own while the group rebalances (KIP-429)."""

    name: str
    assign: Callable[[Members, Mapping[str, int]], Assignment]  # members, partitions per topic
    cooperative: bool = False


def _order(members: Members) -> list[str]:
    """Static members first, by instance id, then the others by member id: Java's MemberInfo order (KIP-345)."""
    return sorted(
        members, key=lambda member: (members[member].instance_id is None, members[member].instance_id or member)
    )


def _all_topics(members: Members) -> list[str]:
    return sorted({topic for subscription in members.values() for topic in subscription.topics})


def range_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Each topic's partitions in contiguous runs over its subscribers (Kafka's RangeAssignor without racks)."""
    result: Assignment = {member: [] for member in members}
    order = _order(members)
    for topic in _all_topics(members):
        subscribers = [member for member in order if topic in members[member].topics]
        each, extra = divmod(partitions.get(topic, 0), len(subscribers))
        at = 0
        for position, member in enumerate(subscribers):
            size = each + (1 if position < extra else 0)
            result[member] += [TopicPartition(topic, number) for number in range(at, at + size)]
            at += size
    return result


def round_robin_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """All partitions dealt out in turn to the members, skipping those that do not subscribe (RoundRobinAssignor)."""
    result: Assignment = {member: [] for member in members}
    order = _order(members)
    turn = 0
    for topic in _all_topics(members):
        for number in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            result[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return result


def sticky_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """StickyAssignor: what members held is in their user data, because they gave it up before they joined."""
    held = {}
    for member, wanted in members.items():
        owned, generation = decode_sticky_data(wanted.user_data)
        held[member] = wanted._replace(owned=owned, generation=generation)
    return assign_sticky(held, partitions)


def cooperative_sticky_assignor(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """CooperativeStickyAssignor: a partition that moves is given to nobody until its owner has given it up."""
    held = {
        member: wanted
        if wanted.generation >= 0
        else wanted._replace(generation=decode_cooperative_data(wanted.user_data))
        for member, wanted in members.items()
    }
    return withhold_moving(held, assign_sticky(held, partitions))


ASSIGNORS: Final[dict[str, Assignor]] = {
    strategy.name: strategy
    for strategy in (
        Assignor("range", range_assignor),
        Assignor("roundrobin", round_robin_assignor),
        Assignor("sticky", sticky_assignor),
        Assignor("cooperative-sticky", cooperative_sticky_assignor, cooperative=True),
    )
}


def assignor(name: str) -> Assignor:
    """By Kafka's protocol name. Raises ConfigurationError."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ConfigurationError(f"partition_assignment_strategy {name!r}: known are {', '.join(sorted(ASSIGNORS))}")
    return found


def user_data(name: str, held: list[TopicPartition], generation: int) -> bytes | None:
    """Return the user data of a subscription, as Java's assignor of that name encodes it.

    `held` is the last assignment, also when it was given up already.
    """
    if name == "sticky":
        return encode_sticky_data(held, generation) if generation >= 0 else None
    if name == "cooperative-sticky":
        return encode_cooperative_data(generation)
    return None
