"""Consumer groups of the coordinator: what needs time, limits, the other kind of group, or the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fencepost.broker.coordinator.group.base.records import GroupRecord, MismatchedRecord
from fencepost.broker.coordinator.group.base.requests import LeavingMember
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.consumer.requests import ConsumerHeartbeat
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import (
    ConsumerGroupKey,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    TargetValue,
)
from tests.support.classic_actor import ClassicActor
from tests.support.group_world import GROUP, REBALANCE_MS, SESSION_MS, ConsumerActor, GroupWorld
from tests.unit.broker.coordinator.group.group_driver import FakeTopics

CONFIG: dict[str, object] = {
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.max.size": 2,
    "offsets.retention.minutes": 10,
}


def world(*names: str, config: Mapping[str, object] = CONFIG, **topics: int) -> GroupWorld:
    new_world = GroupWorld(FakeTopics(**(topics or {"t": 4})), config)
    new_world.consumers = [ConsumerActor(name, ("t",)) for name in names]
    return new_world


def test_a_silent_member_is_out_after_its_session() -> None:
    w = world("a", "b")
    w.settle()
    a, b = w.consumers
    w.driver.wait(SESSION_MS - 1_000)
    w.beat(a)
    w.driver.wait(2_000)
    assert [member.member_id for member in w.live()] == ["a"]
    assert w.beat(b).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    w.consumers.remove(b)
    w.settle()
    assert len(a.owned) == 4


def test_a_session_that_ends_while_the_disk_is_full_ends_afterwards() -> None:
    w = world("a", "b")
    w.settle()
    w.driver.disk_is_full = True
    w.driver.wait(SESSION_MS + 10_000)
    assert [member.member_id for member in w.live()] == ["a", "b"]
    w.driver.disk_is_full = False
    w.driver.wait(3_000)
    assert w.live() == []


def test_who_leaves_while_the_disk_is_full_is_out_after_its_session() -> None:
    w = world("a", "b")
    w.settle()
    a, b = w.consumers
    w.driver.disk_is_full = True
    a.epoch = -1
    w.ask(a)
    w.driver.disk_is_full = False
    w.consumers.remove(a)
    for _ in range(SESSION_MS // 1_000 + 1):
        w.beat(b)
        w.driver.wait(1_000)
    w.settle()
    assert len(b.owned) == 4


def test_a_topic_that_grew_is_assigned_though_the_disk_was_full_when_it_was_seen() -> None:
    w = world("a")
    w.settle()
    (a,) = w.consumers
    w.topics.change("t", 6)
    w.driver.disk_is_full = True
    w.beat(a, lost=True)
    w.driver.disk_is_full = False
    w.settle()
    assert len(a.owned) == 6


def test_who_does_not_give_back_in_time_is_out() -> None:
    w = world("a")
    w.settle()
    (a,) = w.consumers
    w.consumers.append(b := ConsumerActor("b", ("t",)))
    a.lazy = True
    w.beat(b)
    for _ in range(REBALANCE_MS // 1_000 + 1):
        w.beat(a)
        w.beat(b)
        assert not b.owned or a.member_id not in {member.member_id for member in w.live()}
        w.driver.wait(1_000)
    assert [member.member_id for member in w.live()] == ["b"]
    w.beat(b)
    assert len(b.owned) == 4


def test_a_full_group_takes_nobody_in() -> None:
    w = world("a", "b", "c")
    a, b, c = w.consumers
    w.beat(a)
    w.beat(b)
    assert w.beat(c).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    a.rejoin()
    assert w.beat(a).error_code == 0


def test_a_group_with_members_refuses_the_other_protocol_if_that_is_the_policy() -> None:
    disabled = CONFIG | {"group.consumer.migration.policy": "disabled"}
    w = world("a", config=disabled)
    w.settle()
    assert w.driver.join("").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert w.driver.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert w.driver.leave(LeavingMember("a")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    classic = world("a", config=disabled)
    classic.driver.stable_pair()
    reply = classic.beat(classic.consumers[0])
    assert (reply.error_code, classic.group) == (ErrorCode.GROUP_ID_NOT_FOUND, None)


def test_an_empty_group_changes_its_kind_and_survives_restarts() -> None:
    w = world("a")
    w.driver.commit(7)
    w.settle()
    w.restart()
    (a,) = w.consumers
    assert w.driver.fetch() == (0, [("t", 0, 7, 0)])
    w.ask(a, -1)
    w.driver.new_member()
    assert w.group is None
    w.restart()
    assert w.driver.fetch() == (0, [("t", 0, 7, 0)])
    assert w.driver.coordinator.list_groups(types=["Consumer"]) == []
    assert len(w.driver.coordinator.list_groups(types=["Classic"])) == 1


def test_offsets_that_were_read_before_their_group_do_not_make_it_classic() -> None:
    """Compaction leaves the offset of an old commit before the group's newer records."""
    w = world("a")
    w.settle()
    w.driver.commit(7, member_id="a", generation=w.consumers[0].epoch, version=9)
    log = w.driver.log
    w.driver.log = [log[-1], *log[:-1]]
    again = w.driver.restarted()
    (listed,) = again.coordinator.list_groups()
    assert listed.group_type == "consumer"


def test_sessions_start_anew_after_a_restart() -> None:
    w = world("a")
    w.settle()
    w.restart()
    w.driver.wait(SESSION_MS - 1)
    assert w.live()
    w.driver.wait(2)
    assert not w.live()


def test_expired_offsets_go_and_then_the_empty_group() -> None:
    w = world("a", t=1, u=1)
    w.settle()
    (a,) = w.consumers
    for topic in ("t", "u"):
        w.driver.commit(7, topic=topic, member_id="a", generation=a.epoch, version=9)
    for _ in range(1_300):
        w.beat(a)
        w.driver.wait(1_000)
    everything = [("t", 0), ("u", 0)]
    assert [offset for _, _, offset, _ in w.driver.fetch(partitions=everything)[1]] == [7, -1]  # t is subscribed to
    w.ask(a, -1)
    w.driver.wait(1_300_000)
    assert w.group is None and w.driver.coordinator.list_groups() == []
    w.restart()
    assert w.group is None


def test_an_answer_that_was_lost_is_given_again() -> None:
    w = world("a")
    (a,) = w.consumers
    w.settle()
    w.consumers.append(b := ConsumerActor("b", ("t",)))
    w.beat(b)
    w.beat(a)
    w.beat(b)
    w.beat(a, lost=True)
    w.beat(b, lost=True)
    w.settle()
    assert len(a.owned) == len(b.owned) == 2


def test_a_partition_that_comes_back_to_its_owner_moves_nowhere() -> None:
    w = world("a")
    w.settle()
    (a,) = w.consumers
    a.lazy = True
    w.consumers.append(b := ConsumerActor("b", ("t",)))
    w.beat(b)
    w.beat(a)
    assert len(a.assigned) == 2
    w.consumers.remove(b)
    w.ask(b, -1)
    a.lazy = False
    w.settle()
    assert len(a.owned) == 4


def test_a_deleted_topic_is_taken_away() -> None:
    w = world("a", t=2, u=1)
    w.consumers[0].topics = ("t", "u")
    w.settle()
    assert len(w.consumers[0].owned) == 3
    w.topics.change("t", None)
    w.beat(w.consumers[0])
    w.settle()
    assert len(w.consumers[0].owned) == 1


def test_records_that_do_not_fit_together_are_refused() -> None:
    w = world("a")
    w.settle()
    store = w.driver.coordinator
    with pytest.raises(MismatchedRecord):
        store.replay(GroupRecord(ConsumerGroupKey(GROUP), TargetValue(1)), 0)
    with pytest.raises(MismatchedRecord):
        store.replay(GroupRecord(CurrentAssignmentKey(GROUP, "a"), CurrentAssignmentValue(1, 0, 9, {}, {})), 0)


def test_a_regular_expression_stands_only_for_topics_that_its_member_may_see() -> None:
    w = world(t=1, secret=1)
    request = ConsumerHeartbeat(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_MS,
        topic_regex=".*",
        owned=frozenset(),
        may_see=lambda name: name != "secret",
    )

    def heartbeat(epoch: int) -> int:
        reply = w.driver.done(
            w.driver.coordinator.heartbeat(w.driver.now_ms, ConsumerGroups, replace(request, member_epoch=epoch))
        )
        assert not reply.error_code
        return reply.member_epoch

    def found() -> list[str]:
        assert w.group is not None
        return list(w.group.regexes[".*"].topics)

    epoch = heartbeat(0)
    assert found() == ["t"]
    w.topics.change("u", 1)
    classic = ClassicActor("c", ("t",))  # its join is not the moment to look: it has other rights
    classic.step(w.driver)
    classic.step(w.driver)
    assert found() == ["t"]
    heartbeat(epoch)
    assert found() == ["t", "u"]


def test_a_refused_join_leaves_an_empty_classic_group_alone() -> None:
    """As in Kafka, where the exception discards the group's tombstone with the other records."""
    w = world()
    assert w.driver.commit(5) == 0
    request = ConsumerHeartbeat(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topic_regex="(",
        owned=frozenset(),
    )
    reply = w.driver.done(w.driver.coordinator.heartbeat(w.driver.now_ms, ConsumerGroups, request))
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert w.driver.knows(GROUP)
    assert w.driver.fetch()[1] == [("t", 0, 5, ErrorCode.NONE)]
