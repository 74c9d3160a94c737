"""Groups against both brokers: eager, cooperative, KIP-848; static members, patterns, and strangers in the group."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import confluent_kafka
import pytest

import fencepost
from fencepost.client.types import RebalanceListener
from fencepost.errors import GroupConfigurationError, GroupFencedError
from tests.support.brokers import BrokerUnderTest
from tests.support.consumers import RebalanceLog, fill, poll_until, poll_values, shared_out

TP = fencepost.TopicPartition

GROUP_RESOURCE = 32
CLASSIC_EAGER: dict[str, Any] = {"partition_assignment_strategy": ["range"]}
STICKY: dict[str, Any] = {"partition_assignment_strategy": ["sticky"]}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
REMOTE: dict[str, Any] = {"group_protocol": "consumer"}
PROTOCOLS = [
    pytest.param(CLASSIC_EAGER, id="range"),
    pytest.param(STICKY, id="sticky"),
    pytest.param(COOPERATIVE, id="cooperative"),
    pytest.param(REMOTE, id="consumer"),
]
KEEPING = [pytest.param(COOPERATIVE, id="cooperative"), pytest.param(REMOTE, id="consumer")]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Closes what a test enters, last first."""
    with ExitStack() as stack:
        yield stack


def member(
    broker: BrokerUnderTest, group: str, settings: dict[str, Any], *, hurried: bool = True
) -> fencepost.Consumer:
    if hurried and settings.get("group_protocol") == "consumer":
        hurry(broker, group)
    return fencepost.Consumer(
        broker.bootstrap_servers,
        **{"group_id": group, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, **settings},
    )


def hurry(broker: BrokerUnderTest, group: str) -> None:
    """Heartbeats of a KIP-848 group are the broker's to set: every 5 s unless told otherwise."""
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs(group, {"consumer.heartbeat.interval.ms": "200"}, resource_type=GROUP_RESOURCE)


class Committing(RebalanceListener):
    """Writes down what it is told, and commits on the last occasion."""

    def __init__(self, consumer: fencepost.Consumer, news: list[tuple[str, int]]) -> None:
        self._consumer = consumer
        self._news = news
        self._thread = threading.current_thread()

    def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
        assert threading.current_thread() is self._thread
        self._news.append(("revoked", len(partitions)))
        self._consumer.commit()

    def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
        self._news.append(("assigned", len(partitions)))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_a_group_shares_and_takes_over(broker: BrokerUnderTest, admin: fencepost.Admin, strategy: str) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    fill(broker, topic, 40, 4)
    news: list[tuple[str, int]] = []
    settings = {"partition_assignment_strategy": [strategy]}
    first, second = member(broker, group, settings), member(broker, group, settings)
    first.subscribe([topic], Committing(first, news))
    assert sorted(poll_values(first, 40)) == list(range(40))
    second.subscribe([topic])
    again = poll_until([first, second], lambda: len(second.assignment()) == len(first.assignment()) == 2)
    assert again == [], "what the first committed on revocation is not read again"
    assert not set(first.assignment()) & set(second.assignment())
    assert admin.describe_group(group).state == "Stable"
    assert len(admin.describe_group(group).members) == 2
    first.close()
    fill(broker, topic, 8, 4)
    poll_until([second], lambda: len(second.assignment()) == 4)
    second.close()
    assert news[:3] == [("assigned", 4), ("revoked", 4), ("assigned", 2)]
    assert sum(at.offset for at in admin.group_offsets(group).values()) >= 40
    admin.delete_group(group)


@pytest.mark.parametrize("settings", KEEPING)
def test_what_stays_is_read_on_while_the_group_rebalances(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """Only what moves is revoked; positions and pauses of the rest live through the rebalance."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 6)
    fill(broker, topic, 60, 6)
    logs = [RebalanceLog(), RebalanceLog()]
    first = closing.enter_context(member(broker, group, {**settings, "enable_auto_commit": True}))
    first.subscribe([topic], logs[0])
    assert sorted(poll_values(first, 60)) == list(range(60))
    assert logs[0].news == [("assigned", [0, 1, 2, 3, 4, 5])]
    first.pause([TP(topic, number) for number in range(6)])
    second = closing.enter_context(member(broker, group, {**settings, "enable_auto_commit": True}))
    second.subscribe([topic], logs[1])
    assert poll_until([first, second], lambda: shared_out([first, second], 6)) == []
    assert len(logs[0].gone()) == 3, logs[0].news
    assert logs[1].gone() == set()
    assert first.paused() == first.assignment()
    first.resume(first.paused())
    fill(broker, topic, 60, 6, first=60)
    seen: list[int] = []

    def everything() -> bool:
        seen.extend(int(record.value or b"-1") for consumer in (first, second) for record in consumer.poll(50))
        return len(seen) >= 60

    poll_until([], everything)
    assert sorted(seen) == list(range(60, 120)), "nothing twice, nothing lost"
    assert logs[0].gone() | {partition.partition for partition in first.assignment()} == set(range(6))


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_members_come_and_go(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """Three members, then two, then one: every record once, since each commits what it gives up."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 6)
    wanted = {**settings, "enable_auto_commit": True}
    consumers = [closing.enter_context(member(broker, group, wanted)) for _ in range(3)]
    for new_member in consumers:
        new_member.subscribe([topic])
    poll_until(consumers, lambda: shared_out(consumers, 6))
    seen: list[int] = []
    for phase in range(3):
        fill(broker, topic, 60, 6, first=60 * phase)
        left = consumers[phase:]

        def enough(left: list[fencepost.Consumer] = left, goal: int = 60 * (phase + 1)) -> bool:
            seen.extend(int(record.value or b"-1") for consumer in left for record in consumer.poll(50))
            return len(seen) >= goal

        poll_until([], enough)
        consumers[phase].close()
        if phase < 2:
            rest = consumers[phase + 1 :]
            seen.extend(int(record.value or b"-1") for record in poll_until(rest, lambda r=rest: shared_out(r, 6)))  # type: ignore[misc]
    assert sorted(seen) == list(range(180))


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_a_static_member_comes_back_to_what_it_had(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """group_instance_id: close and return within the session move nothing (KIP-345; KIP-848's epoch -2)."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    rebalances = RebalanceLog()
    stays = closing.enter_context(member(broker, group, {**settings, "group_instance_id": "stays"}))
    leaves = member(broker, group, {**settings, "group_instance_id": "leaves"})
    stays.subscribe([topic], rebalances)
    leaves.subscribe([topic])
    poll_until([stays, leaves], lambda: shared_out([stays, leaves], 4))
    had, reported = leaves.assignment(), list(rebalances.news)
    leaves.close()
    back = closing.enter_context(member(broker, group, {**settings, "group_instance_id": "leaves"}))
    back.subscribe([topic])
    poll_until([stays, back], lambda: len(back.assignment()) == 2)
    assert back.assignment() == had
    assert [event for event in rebalances.news[len(reported) :] if event[1]] == []


def test_a_second_static_member_fences_the_first(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack
) -> None:
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 1)
    first, second = (
        closing.enter_context(member(broker, group, {"group_instance_id": "one", "heartbeat_interval_ms": 50}))
        for _ in range(2)
    )
    first.subscribe([topic])
    poll_until([first], lambda: bool(first.assignment()))
    second.subscribe([topic])
    poll_until([second], lambda: bool(second.assignment()))
    with pytest.raises(GroupFencedError):
        poll_until([first], lambda: False)


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_topics_by_pattern(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """Whole names match; topics that come later are found, as are new partitions; names take a pattern's place."""
    prefix, group = broker.name("p"), broker.name("g")
    for name in (f"{prefix}-a", f"{prefix}-b", f"x{prefix}-c"):
        admin.create_topic(name, 1)
    consumer = closing.enter_context(member(broker, group, {**settings, "metadata_max_age_ms": 300}))
    consumer.subscribe(pattern=f"{prefix}-.*")
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    assert consumer.subscription() == [f"{prefix}-a", f"{prefix}-b"]
    admin.create_topic(f"{prefix}-d", 2)
    poll_until([consumer], lambda: len(consumer.assignment()) == 4)
    assert consumer.assignment() == [
        TP(f"{prefix}-a", 0),
        TP(f"{prefix}-b", 0),
        TP(f"{prefix}-d", 0),
        TP(f"{prefix}-d", 1),
    ]
    consumer.subscribe([f"x{prefix}-c"])
    poll_until([consumer], lambda: consumer.assignment() == [TP(f"x{prefix}-c", 0)])


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_new_partitions_and_another_subscription(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    first, second, group = broker.name("t"), broker.name("u"), broker.name("g")
    admin.create_topic(first, 1)
    admin.create_topic(second, 1)
    consumer = closing.enter_context(member(broker, group, {**settings, "metadata_max_age_ms": 300}))
    consumer.subscribe([first])
    poll_until([consumer], lambda: consumer.assignment() == [TP(first, 0)])
    admin.create_partitions(first, 3)
    poll_until([consumer], lambda: len(consumer.assignment()) == 3)
    consumer.subscribe([second])
    poll_until([consumer], lambda: consumer.assignment() == [TP(second, 0)])
    consumer.unsubscribe()
    assert consumer.assignment() == []
    consumer.subscribe([first, second])
    poll_until([consumer], lambda: len(consumer.assignment()) == 4)


@pytest.mark.parametrize("settings", PROTOCOLS)
@pytest.mark.parametrize("by", ["names", "pattern"])
def test_the_same_subscription_again_begins_no_rebalance(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any], by: str
) -> None:
    """As in Java's client. A listener that subscribes would keep its group in rebalances for ever."""
    topic, group = broker.name("again"), broker.name("group")
    admin.create_topic(topic, 2)
    fill(broker, topic, 20, 2)
    consumer = closing.enter_context(member(broker, group, settings))

    class SubscribesAgain(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
            subscribe()

    def subscribe() -> None:
        if by == "names":
            consumer.subscribe([topic, topic], SubscribesAgain())
        else:
            consumer.subscribe(re.compile(topic), SubscribesAgain())

    subscribe()
    assert sorted(poll_values(consumer, 20)) == list(range(20))
    rebalances = consumer.metrics()["rebalance_total"]
    for _ in range(3):
        subscribe()
        consumer.poll(100)
    assert consumer.assignment() == [TP(topic, 0), TP(topic, 1)]
    assert consumer.metrics()["rebalance_total"] == rebalances


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_another_subscription_while_the_group_waits_for_its_members(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """The first member does not poll, so that the second is still joining when it changes its mind."""
    topic, other, group = broker.name("t"), broker.name("u"), broker.name("g")
    for name in (topic, other):
        admin.create_topic(name, 1)
    first, second = (closing.enter_context(member(broker, group, settings)) for _ in range(2))
    first.subscribe([topic])
    poll_until([first], lambda: first.assignment() == [TP(topic, 0)])
    second.subscribe([topic])
    for _ in range(3):
        second.poll(100)
    second.subscribe([other])
    poll_until([first, second], lambda: (first.assignment(), second.assignment()) == ([TP(topic, 0)], [TP(other, 0)]))


@pytest.mark.parametrize("settings", PROTOCOLS)
def test_who_does_not_poll_loses_its_partitions(
    broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack, settings: dict[str, Any]
) -> None:
    """max_poll_interval_ms: the others go on, the late one is told of its loss, and is refused until it polls."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 2)
    fill(broker, topic, 10, 2)
    rebalances = RebalanceLog()
    late = closing.enter_context(member(broker, group, {**settings, "max_poll_interval_ms": 3000}))
    late.subscribe([topic], rebalances)
    poll_values(late, 10)
    other = closing.enter_context(member(broker, group, settings))
    other.subscribe([topic])
    identity, positions = late.group_metadata(), late.positions()
    poll_until([other], lambda: len(other.assignment()) == 2)
    assert (late.group_metadata(), late.positions()) == (identity, positions), "nothing changes between polls"
    with pytest.raises(GroupFencedError):
        late.commit()
    poll_until([late, other], lambda: shared_out([late, other], 2))
    assert ("lost", [0, 1]) in rebalances.news
    with pytest.raises(GroupFencedError):
        late.core.take_positions()


def test_remote_assignors(broker: BrokerUnderTest, admin: fencepost.Admin, closing: ExitStack) -> None:
    """The broker's range gives runs of each topic, its uniform an even spread; an unknown one is refused."""
    topics = [broker.name("t") for _ in range(2)]
    for topic in topics:
        admin.create_topic(topic, 3)
    for name, sizes in (("range", [2, 4]), ("uniform", [3, 3])):
        group = broker.name("g")
        pair = [closing.enter_context(member(broker, group, {**REMOTE, "group_remote_assignor": name})) for _ in "ab"]
        for consumer in pair:
            consumer.subscribe(topics)

        def settled(pair: list[fencepost.Consumer] = pair, sizes: list[int] = sizes) -> bool:
            return sorted(len(consumer.assignment()) for consumer in pair) == sizes

        poll_until(pair, settled)
    wrong = closing.enter_context(member(broker, broker.name("g"), {**REMOTE, "group_remote_assignor": "nobody"}))
    wrong.subscribe(topics)
    with pytest.raises(GroupConfigurationError):
        poll_until([wrong], lambda: False)


# --- strangers in the group ---


class ConfluentMember:
    """A confluent-kafka consumer that polls in a thread of its own."""

    def __init__(self, broker: BrokerUnderTest, group: str, topic: str, settings: dict[str, Any]) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": True,
                "topic.metadata.refresh.interval.ms": 1000,
                **settings,
            }
        )
        self._consumer.subscribe([topic])
        self.seen: list[int] = []
        self.failure: str | None = None
        self.owned: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            self.owned = {
                partition.partition for partition in self._consumer.assignment()
            }  # not from another thread: it may hang
            if message is None:
                continue
            if message.error():
                self.failure = str(message.error())
            else:
                self.seen.append(int(message.value() or b"-1"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(CLASSIC_EAGER, {"partition.assignment.strategy": "range"}, id="range"),
        pytest.param(COOPERATIVE, {"partition.assignment.strategy": "cooperative-sticky"}, id="cooperative"),
        pytest.param(REMOTE, {"group.protocol": "consumer"}, id="consumer"),
    ],
)
@pytest.mark.parametrize("we_come_first", [True, False], ids=["we lead", "they lead"])
def test_a_group_with_librdkafka(
    broker: BrokerUnderTest,
    admin: fencepost.Admin,
    closing: ExitStack,
    ours: dict[str, Any],
    theirs: dict[str, Any],
    we_come_first: bool,
) -> None:
    """Check that both clients share the partitions, and that a settled group reads each record once."""
    topic, group = broker.name("t"), broker.name("g")
    admin.create_topic(topic, 4)
    if not we_come_first:
        confluent_member = closing.enter_context(ConfluentMember(broker, group, topic, theirs))
        deadline = time.monotonic() + 120
        while len(confluent_member.owned) < 4:
            assert time.monotonic() < deadline, confluent_member.failure
            time.sleep(0.05)
    us = closing.enter_context(member(broker, group, {**ours, "enable_auto_commit": True}))
    us.subscribe([topic])
    if we_come_first:
        poll_until([us], lambda: len(us.assignment()) == 4)
        confluent_member = closing.enter_context(ConfluentMember(broker, group, topic, theirs))

    def shared() -> bool:
        mine = {partition.partition for partition in us.assignment()}
        return len(mine) == len(confluent_member.owned) == 2 and mine | confluent_member.owned == set(range(4))

    poll_until([us], shared)
    fill(broker, topic, 40, 4)
    seen = [int(record.value or b"-1") for record in poll_until([us], lambda: len(confluent_member.seen) >= 20)]
    seen += poll_values(us, 20 - len(seen))
    assert sorted(seen + confluent_member.seen) == list(range(40))
    us.close()
    fill(broker, topic, 40, 4, first=40)
    poll_until([], lambda: len(set(confluent_member.seen)) >= 60 and not time.sleep(0.01))  # type: ignore[func-returns-value]
    assert sorted({*seen, *confluent_member.seen}) == list(range(80))
