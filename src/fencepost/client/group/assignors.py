"""The built-in assignors: range, roundrobin, sticky, cooperative-sticky, by Kafka's protocol names.

Range and round robin return exactly the assignments of Java's assignors, so it does not matter which client leads the
group. The sticky assignors keep the promises of Java's: balance first, then as few moves as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fencepost.arguments import brief_repr
from fencepost.client.group.assignors_sticky import assign_sticky
from fencepost.client.group.assignors_wire import (
    decode_cooperative_data,
    decode_sticky_data,
    encode_cooperative_data,
    encode_sticky_data,
)
from fencepost.client.partition_assignor import Assignment, PartitionAssignor, Subscription
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.errors import ConfigurationError
from fencepost.protocol.wire import MOST_STRING_BYTES

Members = Mapping[str, Subscription]  # by member id
Shares = dict[str, list[TopicPartition]]


def _order(members: Members) -> list[str]:
    """Return static members by instance id, then the others by member id: Java's MemberInfo order (KIP-345)."""
    return sorted(
        members, key=lambda member: (members[member].instance_id is None, members[member].instance_id or member)
    )


def _all_topics(members: Members) -> list[str]:
    return sorted({topic for subscription in members.values() for topic in subscription.topics})


def range_assignor(members: Members, partitions: Mapping[str, int]) -> Shares:
    """Assign each topic's partitions in contiguous runs to its subscribers (Kafka's RangeAssignor without racks)."""
    result: Shares = {member: [] for member in members}
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


def round_robin_assignor(members: Members, partitions: Mapping[str, int]) -> Shares:
    """Assign all partitions to the members in turn, skipping members that do not subscribe (RoundRobinAssignor)."""
    result: Shares = {member: [] for member in members}
    order = _order(members)
    turn = 0
    for topic in _all_topics(members):
        for number in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            result[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return result


def sticky_assignor(members: Members, partitions: Mapping[str, int]) -> Shares:
    """Assign like Java's StickyAssignor.

    Members give up all partitions before they join, so their user data names the old ones.
    """
    held = {}
    for member, wanted in members.items():
        owned, generation = decode_sticky_data(wanted.user_data)
        held[member] = wanted._replace(owned=owned, generation=generation)
    return assign_sticky(held, partitions)


def cooperative_sticky_assignor(members: Members, partitions: Mapping[str, int]) -> Shares:
    """Assign like Java's CooperativeStickyAssignor, before `withhold_moving`."""
    held = {
        member: wanted
        if wanted.generation >= 0
        else wanted._replace(generation=decode_cooperative_data(wanted.user_data))
        for member, wanted in members.items()
    }
    return assign_sticky(held, partitions)


def _assignments(shares: Shares) -> dict[str, Assignment]:
    return {member: Assignment(partitions) for member, partitions in shares.items()}


class RangeAssignor(PartitionAssignor):
    """See range_assignor."""

    name = "range"

    def assign(self, subscriptions: Members, partitions: Mapping[str, int]) -> Mapping[str, Assignment]:
        return _assignments(range_assignor(subscriptions, partitions))


class RoundRobinAssignor(PartitionAssignor):
    """See round_robin_assignor."""

    name = "roundrobin"

    def assign(self, subscriptions: Members, partitions: Mapping[str, int]) -> Mapping[str, Assignment]:
        return _assignments(round_robin_assignor(subscriptions, partitions))


class StickyAssignor(PartitionAssignor):
    """See sticky_assignor. The user data is the last assignment, even if it was given up already."""

    name = "sticky"

    def __init__(self) -> None:
        self._held: Sequence[TopicPartition] = ()
        self._generation = -1

    def assign(self, subscriptions: Members, partitions: Mapping[str, int]) -> Mapping[str, Assignment]:
        return _assignments(sticky_assignor(subscriptions, partitions))

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        return encode_sticky_data(self._held, self._generation) if self._generation >= 0 else None

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self._held, self._generation = assignment.partitions, metadata.generation_id


class CooperativeStickyAssignor(PartitionAssignor):
    """See cooperative_sticky_assignor. The user data is the generation of the last assignment."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = -1

    def assign(self, subscriptions: Members, partitions: Mapping[str, int]) -> Mapping[str, Assignment]:
        return _assignments(cooperative_sticky_assignor(subscriptions, partitions))

    def subscription_user_data(self, topics: Sequence[str]) -> bytes | None:
        return encode_cooperative_data(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self._generation = metadata.generation_id


ASSIGNORS: Final[Mapping[str, type[PartitionAssignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def assignors_of(strategies: Iterable[str | PartitionAssignor]) -> list[PartitionAssignor]:
    """Return the assignors of a member, those given by name as new objects. Raises ConfigurationError."""
    assignors: list[PartitionAssignor] = []
    for given in strategies:
        strategy = _named(given) if isinstance(given, str) else given
        name: object = getattr(strategy, "name", None)
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MOST_STRING_BYTES:
            raise ConfigurationError(
                f"partition_assignment_strategy: {brief_repr(strategy)} has the name {brief_repr(name)}; "
                f"it must be text of 1 to {MOST_STRING_BYTES} bytes"
            )
        if name in (other.name for other in assignors):
            raise ConfigurationError(f"partition_assignment_strategy has two assignors with the name {name!r}")
        assignors.append(strategy)
    return assignors


def _named(name: str) -> PartitionAssignor:
    """Create a built-in assignor by Kafka's protocol name. Raises ConfigurationError."""
    if name not in ASSIGNORS:
        raise ConfigurationError(
            f"partition_assignment_strategy {name!r}: known are {', '.join(sorted(ASSIGNORS))}; "
            "a custom assignor is given as an object of a class derived from fencepost.PartitionAssignor"
        )
    return ASSIGNORS[name]()
