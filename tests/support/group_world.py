"""Consumers of one group against a coordinator in memory, with everything that may go wrong between the two.

A consumer keeps what a real one keeps: member id, epoch, what it owns, what it was told. Answers may be lost, it may
be slow to give back, stop and come back, die; the coordinator may be started again from its log. `owned_twice` is what
must never be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost.broker.coordinator.group.base.requests import AssignmentReply
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.consumer.requests import ConsumerHeartbeat
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from tests.unit.broker.coordinator.group.group_driver import Driver, FakeTopics

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 6_000
# The last one: the group went on as a classic one without the member.
REJOINS = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
Partitions = frozenset[TopicIdPartition]


@dataclass(slots=True)
class ConsumerActor:
    """One consumer. `lazy`: it hears what to give back and does not do it."""

    member_id: str
    topics: tuple[str, ...]
    instance: str | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = frozenset()
    assigned: Partitions = frozenset()
    lazy: bool = False
    whole: bool = field(default=True)  # the next heartbeat says everything

    def rejoin(self) -> None:
        self.epoch, self.owned, self.assigned, self.whole = 0, frozenset(), frozenset(), True


class GroupWorld:
    """The coordinator and its consumers."""

    def __init__(self, topics: FakeTopics, given: Mapping[str, object] | None = None) -> None:
        timing = {"group.consumer.session.timeout.ms": SESSION_MS, "group.consumer.heartbeat.interval.ms": 1_000}
        self.driver = Driver(given or timing, topics=topics)
        self.consumers: list[ConsumerActor] = []
        self.heartbeats = 0

    @property
    def topics(self) -> FakeTopics:
        return self.driver.topics

    @property
    def group(self) -> ConsumerGroup | None:
        return self.driver.coordinator.kind(ConsumerGroups).find(GROUP)

    def ask(self, consumer: ConsumerActor, epoch: int | None = None) -> AssignmentReply:
        """The heartbeat that the consumer would send now."""
        joins = consumer.whole
        request = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=consumer.member_id,
            member_epoch=consumer.epoch if epoch is None else epoch,
            instance_id=consumer.instance,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            topic_names=consumer.topics if joins else None,
            topic_regex=consumer.regex if joins else None,
            server_assignor=consumer.assignor if joins else None,
            owned=consumer.owned,
        )
        self.heartbeats += 1
        return self.driver.done(self.driver.coordinator.heartbeat(self.driver.now_ms, ConsumerGroups, request))

    def beat(self, consumer: ConsumerActor, *, lost: bool = False) -> AssignmentReply:
        """A heartbeat; if its answer is `lost`, the next one says everything."""
        reply = self.ask(consumer)
        if lost:
            consumer.whole = True
        elif reply.error_code in REJOINS:
            consumer.rejoin()
        elif not reply.error_code:
            consumer.epoch, consumer.whole = reply.member_epoch, False
            if reply.assignment is not None:
                consumer.assigned = reply.assignment
            self.take(consumer)
        return reply

    def take(self, consumer: ConsumerActor) -> None:
        """Give back what is not its own any more, then take what it was told; a lazy one only listens."""
        if consumer.lazy and consumer.owned - consumer.assigned:
            return
        consumer.owned = consumer.assigned

    def restart(self) -> None:
        before = self.driver.coordinator.snapshot()
        self.driver = self.driver.restarted()
        if self.driver.coordinator.snapshot() != before:
            raise AssertionError("the log does not give the same groups again")

    def live(self) -> list[ConsumerActor]:
        """The consumers that the coordinator counts as members: others have lost what they think they own."""
        group = self.group
        return [member for member in self.consumers if group is not None and member.member_id in group.members]

    def owned_twice(self) -> dict[TopicIdPartition, int]:
        """Partitions that two members own, in their own view or in the coordinator's."""
        own = Counter(partition for consumer in self.live() for partition in consumer.owned)
        group = self.group
        members = group.members.values() if group is not None else ()
        in_coordinator = Counter(p for member in members for p in {*member.assigned, *member.revoking})
        return {partition: count for partition, count in (own | in_coordinator).items() if count > 1}

    def settle(self, rounds: int = 60) -> None:
        """Everybody does what a healthy consumer does until the group is stable and everybody has what it was told."""
        for consumer in self.consumers:
            consumer.lazy = False
        for _ in range(rounds):
            for consumer in self.consumers:
                self.beat(consumer)
                if twice := self.owned_twice():
                    raise AssertionError(f"owned twice: {twice}")
            self.driver.wait(500)
            if self.settled():
                return
        raise AssertionError(f"not stable after {rounds} rounds: {self.group and self.group.state}")

    def settled(self) -> bool:
        group = self.group
        return (
            group is not None
            and group.state == ConsumerGroupState.STABLE
            and all(
                member.member_id in group.members
                and member.owned == frozenset(group.members[member.member_id].assigned)
                for member in self.consumers
            )
        )

    def unassigned(self, names: Sequence[str]) -> set[TopicIdPartition]:
        """The partitions of these topics that nobody owns."""
        everything = set()
        for name in names:
            found = self.topics.find(name)
            if found is not None:
                everything |= {TopicIdPartition(found[0], index) for index in range(found[1])}
        return everything.difference(*(member.owned for member in self.consumers))
