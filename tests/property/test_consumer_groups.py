"""KIP-848 under everything that may happen: no partition has two owners, and in the end each has one.

Consumers join, leave, die, lose answers, are slow to give back; topics grow; the coordinator starts again from its log.
Three planted defects show that the checks can fail.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.consumer import decide
from fencepost.broker.coordinator.group.consumer.decide import reconcile
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from tests.support.classic_actor import ClassicActor
from tests.support.group_world import GROUP, REBALANCE_MS, SESSION_MS, ConsumerActor, GroupWorld
from tests.unit.broker.coordinator.group.group_driver import FakeTopics

TOPICS = ("ta", "tb")
MOST_CONSUMERS = 5
PROFILE = settings(max_examples=250, stateful_step_count=40, suppress_health_check=list(HealthCheck), derandomize=True)
HUNT = settings(PROFILE, max_examples=500, report_multiple_bugs=False, derandomize=True, phases=[Phase.generate])


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(FakeTopics(ta=3, tb=2))
        self.joined = 0

    def actor(self, which: int) -> ConsumerActor:
        return self.world.consumers[which % len(self.world.consumers)]

    @precondition(lambda self: len(self.world.consumers) < MOST_CONSUMERS)
    @rule(
        topics=st.sampled_from([TOPICS, TOPICS, ("ta",), ("tb", "nothing")]),
        regex=st.sampled_from([None, None, "t."]),
        static=st.booleans(),
        assignor=st.sampled_from([None, "range", "uniform"]),
    )
    def join(self, topics: tuple[str, ...], regex: str | None, static: bool, assignor: str | None) -> None:
        self.joined += 1
        instance = f"i{self.joined}" if static else None
        self.world.consumers.append(ConsumerActor(f"m{self.joined}", topics, instance, regex, assignor))

    @precondition(lambda self: self.world.consumers)
    @rule(which=st.integers(0, MOST_CONSUMERS), lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, which: int, lost: bool) -> None:
        self.world.beat(self.actor(which), lost=lost)

    @precondition(lambda self: self.world.consumers)
    @rule()
    def everybody_heartbeats(self) -> None:
        for consumer in self.world.consumers:
            self.world.beat(consumer)
            self.no_partition_has_two_owners()

    @precondition(lambda self: self.world.consumers)
    @rule(which=st.integers(0, MOST_CONSUMERS), lazy=st.booleans())
    def be_slow_to_give_back(self, which: int, lazy: bool) -> None:
        consumer = self.actor(which)
        consumer.lazy = lazy
        self.world.take(consumer)

    @precondition(lambda self: self.world.consumers)
    @rule(which=st.integers(0, MOST_CONSUMERS), epoch=st.sampled_from([-1, -2]))
    def leave(self, which: int, epoch: int) -> None:
        consumer = self.actor(which)
        self.world.consumers.remove(consumer)
        if epoch == -2 and consumer.instance is None:
            epoch = -1
        self.world.ask(consumer, epoch)
        if epoch == -2:
            self.joined += 1
            successor = ConsumerActor(f"m{self.joined}", consumer.topics, consumer.instance, consumer.regex)
            self.world.consumers.append(successor)

    @precondition(lambda self: self.world.consumers)
    @rule(which=st.integers(0, MOST_CONSUMERS))
    def die(self, which: int) -> None:
        self.world.consumers.remove(self.actor(which))

    @precondition(lambda self: self.world.consumers)
    @rule(which=st.integers(0, MOST_CONSUMERS), topics=st.sampled_from([TOPICS, ("ta",), ("tb",)]))
    def subscribe_anew(self, which: int, topics: tuple[str, ...]) -> None:
        consumer = self.actor(which)
        consumer.topics, consumer.whole = topics, True

    @rule(name=st.sampled_from(TOPICS), by=st.integers(1, 3))
    def grow_a_topic(self, name: str, by: int) -> None:
        self.world.topics.change(name, self.world.topics.partitions[name] + by)

    @rule(for_ms=st.sampled_from([500, 2_000, REBALANCE_MS, SESSION_MS]))
    def wait(self, for_ms: int) -> None:
        self.world.driver.wait(for_ms)

    @rule()
    def start_again(self) -> None:
        self.world.restart()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        assert not self.world.owned_twice()

    def teardown(self) -> None:
        world = self.world
        if not world.consumers:
            return
        for _ in range(0, SESSION_MS + REBALANCE_MS, 2_000):  # until the dead are out
            for consumer in world.consumers:
                world.beat(consumer)
            world.driver.wait(2_000)
        world.settle()
        wanted = {name for member in world.consumers for name in TOPICS if name in member.topics or member.regex}
        assert not world.unassigned(sorted(wanted))


def test_no_partition_has_two_owners_and_in_the_end_each_has_one() -> None:
    run_state_machine_as_test(ConsumerGroupMachine, settings=PROFILE)


def _assigned_at_once(member: Any, target: Any, epoch: int, owned: Any, owners: Any) -> Any:
    """Defect: what others still have is handed out."""
    return reconcile(member, target, epoch, owned, {})


def _not_asked_back(member: Any, target: Any, epoch: int, owned: Any, owners: Any) -> Any:
    """Defect: what the target takes from a member is free at once."""
    return reconcile(member, target, epoch, frozenset(), owners)


@pytest.mark.parametrize("defect", [_assigned_at_once, _not_asked_back])
def test_a_planted_defect_is_found(monkeypatch: pytest.MonkeyPatch, defect: Any) -> None:
    monkeypatch.setattr(decide, "reconcile", defect)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ConsumerGroupMachine, settings=HUNT)


def test_that_who_leaves_must_raise_the_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: nothing is assigned anew after a leave; what the member had stays with nobody."""
    monkeypatch.setattr(decide, "fence", lambda draft, member: draft.remove(member))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ConsumerGroupMachine, settings=HUNT)


# Groups that go over between the protocols


class MixedGroupMachine(RuleBasedStateMachine):
    """Consumers of both protocols come and go, so that the group is classic, mixed, of the newer protocol, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(FakeTopics(ta=3, tb=2))
        self.classic: list[ClassicActor] = []
        self.joined = 0
        self.eager = False

    @initialize(eager=st.booleans())
    def choose(self, eager: bool) -> None:
        self.eager = eager

    @rule(classic=st.booleans())
    def join(self, classic: bool) -> None:
        self.joined += 1
        if len(self.classic) + len(self.world.consumers) >= MOST_CONSUMERS:
            return
        if classic:
            self.classic.append(ClassicActor(f"c{self.joined}", TOPICS, self.eager))
        else:
            self.world.consumers.append(ConsumerActor(f"m{self.joined}", TOPICS))

    @rule(which=st.integers(0, MOST_CONSUMERS))
    def step(self, which: int) -> None:
        if which < len(self.classic):
            self.classic[which].step(self.world.driver)
        elif self.world.consumers:
            self.world.beat(self.world.consumers[which % len(self.world.consumers)])

    @rule(rounds=st.integers(1, 6))
    def everybody_steps(self, rounds: int) -> None:
        for _ in range(rounds):
            for actor in self.classic:
                actor.step(self.world.driver)
                self.no_partition_has_two_owners()
            for consumer in self.world.consumers:
                self.world.beat(consumer)
                self.no_partition_has_two_owners()

    @rule(which=st.integers(0, MOST_CONSUMERS), politely=st.booleans())
    def go(self, which: int, politely: bool) -> None:
        if which < len(self.classic):
            actor = self.classic.pop(which)
            if politely:
                actor.leave(self.world.driver)
        elif self.world.consumers:
            consumer = self.world.consumers.pop(which % len(self.world.consumers))
            if politely:
                self.world.ask(consumer, -1)

    @rule(for_ms=st.sampled_from([500, 2_000, REBALANCE_MS]))
    def wait(self, for_ms: int) -> None:
        self.world.driver.wait(for_ms)

    @rule()
    def start_again(self) -> None:
        self.world.restart()
        for actor in self.classic:
            actor.reconnect()

    def live(self) -> list[Any]:
        """Those whom the coordinator counts as members in their present generation."""
        group = self.world.group
        everybody: list[Any] = [*self.classic, *self.world.consumers]
        if group is not None:
            return [member for member in everybody if member.member_id in group.members]
        classic = self.world.driver.coordinator.kind(ClassicGroups).find(GROUP)
        return [] if classic is None else [member for member in self.classic if member.member_id in classic.members]

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        own = Counter(partition for member in self.live() for partition in member.owned)
        assert not [partition for partition, count in own.items() if count > 1]
        assert not self.world.owned_twice()

    def teardown(self) -> None:
        everybody: list[Any] = [*self.classic, *self.world.consumers]
        if not everybody:
            return
        for _ in range(120):
            self.everybody_steps(1)
            self.world.driver.wait(1_000)
            found = [self.world.topics.find(name) for name in TOPICS]
            everything = {
                TopicIdPartition(topic[0], i) for topic in found if topic is not None for i in range(topic[1])
            }
            mixed = self.world.group is not None
            whole = everything == frozenset().union(*(member.owned for member in everybody))
            if whole and mixed == bool(self.world.consumers) and len(self.live()) == len(everybody):
                return
        raise AssertionError(f"some have no owner, or the group is of the wrong kind: {everybody}")


def test_groups_go_over_between_the_protocols_without_two_owners() -> None:
    run_state_machine_as_test(MixedGroupMachine, settings=PROFILE)


def test_a_restart_in_the_middle_of_going_back_leaves_no_partition_without_an_owner() -> None:
    """The last consumer of the newer protocol leaves, and the coordinator restarts before the classic one rejoined."""
    machine = MixedGroupMachine()
    machine.choose(eager=False)
    machine.join(classic=True)
    machine.everybody_steps(rounds=3)
    machine.join(classic=False)
    machine.everybody_steps(rounds=6)
    machine.go(which=1, politely=True)
    machine.start_again()
    assert [member.name for member in machine.live()] == ["c1"]
    machine.teardown()


def test_what_was_not_given_back_has_an_owner_while_a_group_goes_back_and_forth() -> None:
    """The newer members' sessions end while the classic one rejoins; another new one comes before it is done."""
    machine = MixedGroupMachine()

    def is_classic() -> bool:
        return machine.world.group is None

    machine.choose(eager=False)
    machine.join(classic=True)
    machine.everybody_steps(rounds=3)
    machine.join(classic=False)
    machine.everybody_steps(rounds=1)
    machine.wait(for_ms=REBALANCE_MS)
    machine.step(which=0)
    machine.wait(for_ms=REBALANCE_MS)
    assert is_classic()
    machine.join(classic=False)
    for _ in range(10):
        machine.everybody_steps(rounds=1)  # looks for partitions with two owners after every step
    assert not is_classic()
    machine.teardown()


def test_what_was_to_be_given_back_in_a_rebalance_that_a_restart_interrupts_has_one_owner() -> None:
    """A classic member never hears that it is to give partitions back; then a consumer of the newer protocol comes."""
    machine = MixedGroupMachine()
    machine.choose(eager=False)
    machine.join(classic=True)
    machine.everybody_steps(rounds=2)
    machine.join(classic=True)
    machine.join(classic=True)
    machine.everybody_steps(rounds=4)
    machine.start_again()
    assert [len(member.held) for member in machine.classic] == [5, 0, 0], "the first was to hold everything still"
    machine.join(classic=False)
    for _ in range(10):
        machine.everybody_steps(rounds=1)
    machine.teardown()


def test_a_defect_in_mixed_groups_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "reconcile", _assigned_at_once)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(MixedGroupMachine, settings=HUNT)
