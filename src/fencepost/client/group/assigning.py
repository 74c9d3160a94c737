"""Calls the assignors of a member, built-in and custom, and checks the assignments that they return."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fencepost.arguments import brief_repr
from fencepost.client.calling import SLOW_PROVIDER_MS, SlowCalls
from fencepost.client.group.assignors import Members, assignors_of
from fencepost.client.net.runtime import Runtime
from fencepost.client.net.tasks import within
from fencepost.client.partition_assignor import Assignment, PartitionAssignor
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import GroupConfigurationError, KafkaTimeoutError, ProtocolError

log = logging.getLogger("fencepost.client.group")

MOST_SHOWN: Final = 5  # number of partitions in a warning

Assignments = dict[str, Assignment]  # by member id


class Assignors:
    """The assignors of one member. Their methods run in a thread of their own, because they may take long."""

    def __init__(self, config: ConsumerConfig, runtime: Runtime) -> None:
        """Create the assignors of the settings. Raises ConfigurationError."""
        strategies = assignors_of(config.partition_assignment_strategy)
        self._all = {strategy.name: strategy for strategy in strategies}
        # As in Java, the member is cooperative only if every strategy is. Otherwise cooperative strategies work
        # eagerly.
        self.cooperative = bool(strategies) and all(strategy.cooperative for strategy in strategies)
        self._runtime = runtime
        self._group_id = config.group_id or ""
        self._limit_ms = config.session_timeout_ms
        waits = "its group waits meanwhile, and reads nothing that moves"
        self._slow = SlowCalls(f"consumer {config.client_id!r}", waits, runtime.now_ms)

    async def user_data(self, topics: Sequence[str]) -> dict[str, bytes | None]:
        """Return the user data of the member's subscription for each assignor, by name in order of preference."""
        return {name: await self._user_data_of(strategy, topics) for name, strategy in self._all.items()}

    async def _user_data_of(self, strategy: PartitionAssignor, topics: Sequence[str]) -> bytes | None:
        data = await self._call(strategy, strategy.subscription_user_data, list(topics))
        if data is not None and not isinstance(data, bytes):
            raise self._failure(strategy, f"subscription_user_data() returned {type(data).__name__} instead of bytes")
        return data

    async def assign(self, name: str | None, members: Members, partitions: Mapping[str, int]) -> Assignments:
        """Return the leader's assignment of all members. Raises GroupConfigurationError if it cannot be used."""
        strategy = self._chosen(name)
        returned = await self._call(strategy, strategy.assign, dict(members), dict(partitions))
        try:
            assignments = checked_assignments(members, partitions, returned)
        except ValueError as error:
            raise self._failure(strategy, f"assign() cannot be used, and nothing was assigned: {error}") from None
        idle = unassigned(members, partitions, assignments, cooperative=strategy.cooperative)
        if idle:
            log.warning(
                "group %r: the assignor %r leaves %s unassigned and unread: %s%s",
                self._group_id,
                strategy.name,
                counted_noun(len(idle), "partition"),
                ", ".join(map(_shown, idle[:MOST_SHOWN])),
                ", ..." if len(idle) > MOST_SHOWN else "",
            )
        return withhold_moving(members, assignments) if strategy.cooperative else assignments

    async def assigned(self, name: str | None, assignment: Assignment, metadata: GroupMetadata) -> None:
        """Pass the member's assignment to the chosen assignor.

        Failures are only logged: the assignment is valid anyway.
        """
        strategy = self._chosen(name)
        try:
            await self._call(strategy, strategy.on_assignment, assignment, metadata)
        except GroupConfigurationError:
            log.exception("group %r: on_assignment of the assignor %r failed", self._group_id, strategy.name)

    def _chosen(self, name: str | None) -> PartitionAssignor:
        if name not in self._all:
            offered = ", ".join(self._all)
            raise ProtocolError(f"group {self._group_id!r}: the coordinator chose assignor {name!r} among {offered}")
        return self._all[name]

    async def _call(self, strategy: PartitionAssignor, method: Callable[..., Any], *arguments: object) -> Any:
        """Call a method of an assignor.

        Raises:
            GroupConfigurationError: The method failed, or took longer than session_timeout_ms.
        """
        begun_ms, running = self._runtime.now_ms(), True

        async def run() -> Any:
            nonlocal running
            try:
                return await self._runtime.run_callback(lambda: method(*arguments))
            finally:
                running = False

        try:
            return await within(self._runtime, run(), self._limit_ms, method.__name__)
        except KafkaTimeoutError as error:
            if not running:
                raise self._failure(strategy, f"{method.__name__}() failed: {error!r}") from error
            raise self._failure(
                strategy,
                f"{method.__name__}() has not returned within session_timeout_ms={self._limit_ms}, "
                "after which the coordinator removes this member",
            ) from None
        except Exception as error:
            raise self._failure(strategy, f"{method.__name__}() failed: {error!r}") from error
        finally:
            took_ms = self._runtime.now_ms() - begun_ms
            self._slow.record_call(f"assignor {strategy.name!r},", method, took_ms, SLOW_PROVIDER_MS)

    def _failure(self, strategy: PartitionAssignor, problem: str) -> GroupConfigurationError:
        return GroupConfigurationError(f"group {self._group_id!r}: assignor {strategy.name!r}: {problem}")


def checked_assignments(members: Members, partitions: Mapping[str, int], returned: object) -> Assignments:
    """Return the assignment of every member. Raises ValueError if members would share partitions, or cannot read them.

    `returned` is the result of an assignor.
    """
    if not isinstance(returned, Mapping):
        raise ValueError(f"it returned {type(returned).__name__} instead of a dict of Assignment by member id")
    result: Assignments = dict.fromkeys(members, Assignment())
    owners: dict[TopicPartition, str] = {}
    for member, assignment in returned.items():
        if member not in members:
            raise ValueError(f"{member!r} is no member of the group, whose members are {', '.join(members)}")
        if not isinstance(assignment, Assignment):
            raise ValueError(f"{member!r} gets {brief_repr(assignment)} instead of an Assignment")
        if assignment.user_data is not None and not isinstance(assignment.user_data, bytes):
            raise ValueError(f"the user data of {member!r} is {type(assignment.user_data).__name__} instead of bytes")
        topic_partitions = [_checked(member, each) for each in assignment.partitions]
        for partition in topic_partitions:
            if partition in owners:
                raise ValueError(f"{_shown(partition)} is assigned twice, to {owners[partition]!r} and {member!r}")
            if partition.topic not in members[member].topics:
                raise ValueError(f"{member!r} gets {_shown(partition)} and does not subscribe to {partition.topic!r}")
            if not 0 <= partition.partition < partitions.get(partition.topic, 0):
                count = partitions.get(partition.topic, 0)
                raise ValueError(
                    f"{member!r} gets {_shown(partition)}, and {partition.topic!r} has "
                    f"{counted_noun(count, 'partition')}"
                )
            owners[partition] = member
        result[member] = Assignment(topic_partitions, assignment.user_data)
    return result


def _checked(member: str, given: object) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int):
        return TopicPartition(*given)
    raise ValueError(f"{member!r} gets {brief_repr(given)}, which is no (topic, partition)")


def _shown(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def unassigned(
    members: Members, partitions: Mapping[str, int], assignments: Assignments, *, cooperative: bool
) -> list[TopicPartition]:
    """Return the partitions of subscribed topics without a member, in order.

    A cooperative assignor may itself withhold partitions from their new owner, as Java's do. These still have their old
    owner.
    """
    taken = {partition for assignment in assignments.values() for partition in assignment.partitions}
    if cooperative:
        taken |= {partition for wanted in members.values() for partition in wanted.owned}
    topics = sorted({topic for wanted in members.values() for topic in wanted.topics})
    every = (TopicPartition(topic, number) for topic in topics for number in range(partitions.get(topic, 0)))
    return [partition for partition in every if partition not in taken]


def withhold_moving(members: Members, assignments: Assignments) -> Assignments:
    """Remove partitions that another member still owns.

    That member revokes them first, and the next rebalance assigns them.
    """
    claimed: dict[TopicPartition, set[str]] = defaultdict(set)
    for member, wanted in members.items():
        for partition in wanted.owned:
            claimed[partition].add(member)
    return {
        member: Assignment(
            [partition for partition in given.partitions if member in claimed[partition] or not claimed[partition]],
            given.user_data,
        )
        for member, given in assignments.items()
    }
