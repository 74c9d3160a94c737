"""Groups whose members bring their own assignor, on both brokers, and beside a consumer of librdkafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import confluent_kafka.admin
import pytest

import fencepost
from fencepost import Assignment, GroupMetadata, Subscription, TopicPartition
from fencepost.errors import GroupConfigurationError
from tests.conformance.test_client_consumer_groups import ConfluentMember, member
from tests.support.brokers import BrokerUnderTest
from tests.support.consumers import RebalanceLog, fill, poll_until, poll_values


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Weighted(fencepost.PartitionAssignor):
    """Gives each member as many partitions as the number in its user data, in order of these numbers."""

    name = "weighted"

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.assignments: list[tuple[int, bytes | None, int]] = []  # partitions, user data, generation
        self.threads: set[threading.Thread] = set()

    def subscription_user_data(self, topics: Sequence[str]) -> bytes:
        self.threads.add(threading.current_thread())
        return b"%d" % self.weight

    def assign(self, subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]) -> dict[str, Assignment]:
        ((topic, count),) = partitions.items()
        left = iter([TopicPartition(topic, number) for number in range(count)])
        heavy_first = sorted(subscriptions, key=lambda member: -int(subscriptions[member].user_data or b"0"))
        return {
            member: Assignment(
                list(islice(left, int(subscriptions[member].user_data or b"0"))),
                b"for " + (subscriptions[member].user_data or b""),
            )
            for member in heavy_first
        }

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.assignments.append((len(assignment.partitions), assignment.user_data, metadata.generation_id))


class CooperativeWeighted(Weighted):
    """The same, with members that read on during a rebalance."""

    name = "kept"
    cooperative = True


def sizes(*consumers: fencepost.Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def protocol_of(broker: BrokerUnderTest, group: str) -> str:
    """The group's assignor as librdkafka's admin sees it."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([group])[group].result()
    return str(described.partition_assignor)


@pytest.mark.parametrize("kind", [Weighted, CooperativeWeighted])
def test_a_group_with_a_custom_assignor(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, kind: type[Weighted]
) -> None:
    """The leader sees the user data of all, and each member the leader's data, before its listener's call."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    fill(broker, topic, 40, 4)
    strategies, rebalances = [kind(4), kind(1)], RebalanceLog()
    first, second = (
        closing.enter_context(
            member(broker, group, {"partition_assignment_strategy": [strategy], "enable_auto_commit": True})
        )
        for strategy in strategies
    )
    first.subscribe([topic], rebalances)
    poll_values(first, 40)
    assert strategies[0].assignments[0][:2] == (4, b"for 4")
    strategies[0].weight = 3
    second.subscribe([topic])
    again = poll_until([first, second], lambda: sizes(first, second) == [3, 1])
    assert again == [], "each member commits before it gives up a partition"
    assert not set(first.assignment()) & set(second.assignment())
    assert protocol_of(broker, group) == kind.name
    assert strategies[0].assignments[-1] == (3, b"for 3", first.group_metadata().generation_id)
    assert strategies[1].assignments[-1] == (1, b"for 1", second.group_metadata().generation_id)
    assert threading.current_thread() not in strategies[0].threads | strategies[1].threads
    assert rebalances.gone() == ({3} if kind is CooperativeWeighted else {0, 1, 2, 3})
    fill(broker, topic, 40, 4, first=40)
    assert sorted(poll_values(first, 30) + poll_values(second, 10)) == list(range(40, 80))


def test_members_with_different_lists_agree_on_a_common_assignor(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack
) -> None:
    """The first member's choice goes when a member of another client comes that offers range only."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    both = Weighted(4)
    ours = closing.enter_context(member(broker, group, {"partition_assignment_strategy": [both, "range"]}))
    ours.subscribe([topic])
    poll_until([ours], lambda: sizes(ours) == [4])
    assert protocol_of(broker, group) == "weighted"
    calls = len(both.assignments)
    theirs = closing.enter_context(ConfluentMember(broker, group, topic, {"partition.assignment.strategy": "range"}))
    poll_until([ours], lambda: (len(ours.assignment()), len(theirs.owned)) == (2, 2))
    assert protocol_of(broker, group) == "range"
    assert {partition.partition for partition in ours.assignment()} | theirs.owned == {0, 1, 2, 3}
    assert len(both.assignments) == calls, "it was not the group's choice"


def test_members_without_a_common_assignor(broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 1)
    first = closing.enter_context(member(broker, group, {"partition_assignment_strategy": [Weighted(1)]}))
    first.subscribe([topic])
    poll_until([first], lambda: sizes(first) == [1])
    second = closing.enter_context(member(broker, group, {"partition_assignment_strategy": ["range"]}))
    second.subscribe([topic])
    with pytest.raises(GroupConfigurationError, match="INCONSISTENT_GROUP_PROTOCOL"):
        poll_until([second], lambda: False)
    assert sizes(first) == [1]


class Wrong(Weighted):
    """Returns what cannot be used, until it is corrected."""

    name = "wrong"

    def __init__(self, kind: str) -> None:
        super().__init__(2)
        self.kind = kind

    def assign(self, subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Any:
        ((topic, _),) = partitions.items()
        match self.kind:
            case "raises":
                raise ZeroDivisionError("in the assignor")
            case "stranger":
                return {"nobody": Assignment([TopicPartition(topic, 0)])}
            case "twice":
                return {member: Assignment([TopicPartition(topic, 0)]) for member in subscriptions}
            case "other topic":
                return {next(iter(subscriptions)): Assignment([TopicPartition("other", 0)])}
        return super().assign(subscriptions, partitions)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raises", "ZeroDivisionError"),
        ("stranger", "'nobody' is no member"),
        ("twice", "assigned twice"),
        ("other topic", "does not subscribe to 'other'"),
    ],
)
def test_an_unusable_assignment_is_raised_and_shares_nothing(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, kind: str, words: str
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    strategies = [Wrong("nothing"), Wrong("nothing")]
    pair = [
        closing.enter_context(member(broker, group, {"partition_assignment_strategy": [strategy]}))
        for strategy in strategies
    ]
    for consumer in pair:
        consumer.subscribe([topic])
    poll_until(pair, lambda: sizes(*pair) == [2, 2])
    for strategy in strategies:
        strategy.kind = kind
    third = closing.enter_context(member(broker, group, {"partition_assignment_strategy": [Wrong(kind)]}))
    third.subscribe([topic])
    members, reported = [*pair, third], list[str]()
    while not reported:
        for consumer in members:
            try:
                assert consumer.poll(50) == []
            except GroupConfigurationError as error:
                reported.append(str(error))
            partitions = [partition for consumer in members for partition in consumer.assignment()]
            assert len(partitions) == len(set(partitions))
    assert reported[0].startswith(f"group {group!r}: assignor 'wrong': ")
    assert words in reported[0]
    third.close()
    for strategy in strategies:
        strategy.kind = "nothing"
    poll_until(pair, lambda: sizes(*pair) == [2, 2])


def test_partitions_that_nobody_gets_are_logged(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 3)
    consumer = closing.enter_context(member(broker, group, {"partition_assignment_strategy": [Weighted(2)]}))
    consumer.subscribe([topic])
    poll_until([consumer], lambda: sizes(consumer) == [2])
    words = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"group {group!r}: the assignor 'weighted' leaves 1 partition unassigned and unread: {topic}-2" in words
