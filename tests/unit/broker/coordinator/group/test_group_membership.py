"""Joining, syncing, heartbeats and leaving. Each test names where its expectation comes from.

`GMM` is GroupMetadataManager and `CG` is ClassicGroup of Apache Kafka 4.x.
"""

from __future__ import annotations

import pytest

from fencepost.broker.coordinator.group.base.requests import LeavingMember
from fencepost.protocol.codes import ErrorCode
from tests.unit.broker.coordinator.group.group_driver import Driver, subscription

FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


# JoinGroup


def test_a_new_member_is_told_its_id_first() -> None:
    """KIP-394: from v4 on, MEMBER_ID_REQUIRED with an id `<client id>-<uuid>`, with which the member joins again."""
    driver = Driver()
    first = driver.join(version=4)
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "client-uuid1")
    second = driver.join(first.member_id, version=4)
    assert (second.error_code, second.member_id, second.generation_id) == (NONE, "client-uuid1", 1)
    assert [member.member_id for member in second.members] == [second.leader] == ["client-uuid1"]


def test_below_v4_a_new_member_is_in_at_once() -> None:
    """JoinGroupRequest.requiresKnownMemberId."""
    driver = Driver()
    answer = driver.join(version=3)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (NONE, 1, "range")


def test_a_member_id_that_was_handed_out_expires_with_the_session() -> None:
    """GMM.classicGroupJoinNewDynamicMember schedules the pending member's expiry."""
    driver = Driver()
    member_id = driver.join(session_ms=10_000).member_id
    driver.wait(10_000)
    assert driver.join(member_id).error_code == UNKNOWN


def test_join_checks() -> None:
    """GroupCoordinatorService.joinGroup; CG.supportsProtocols; GMM.classicGroupJoinToClassicGroup."""
    driver = Driver()
    assert driver.join(group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.join(session_ms=5_999).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.join(session_ms=1_800_001).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.join("somebody").error_code == UNKNOWN
    assert driver.join(protocols=()).error_code == INCONSISTENT
    assert driver.join(protocol_type="").error_code == INCONSISTENT
    assert not driver.knows("g")
    assert driver.log == []


def test_a_member_must_share_type_and_protocol_with_the_group() -> None:
    """CG.supportsProtocols: the same type, and a protocol that every member supports."""
    driver = Driver()
    driver.joined(driver.new_member())
    assert driver.join(protocol_type="connect").error_code == INCONSISTENT
    assert driver.join(protocols=[("sticky", b"")]).error_code == INCONSISTENT


def test_the_first_rebalance_waits_for_more_members() -> None:
    """group.initial.rebalance.delay.ms; GMM.tryCompleteInitialRebalanceElseSchedule extends it per newcomer."""
    driver = Driver({"group.initial.rebalance.delay.ms": 3_000})
    first = driver.new_member()
    driver.wait(2_999)
    second = driver.new_member()
    driver.wait(2_999)
    assert driver.waits(first)
    assert driver.waits(second)
    driver.wait(2)
    assert driver.joined(first).generation_id == driver.joined(second).generation_id == 1
    assert len(driver.joined(first).members) == 2
    assert driver.joined(second).members == ()


def test_the_first_rebalance_ends_with_the_rebalance_timeout() -> None:
    """GMM.prepareRebalance: the delay is extended up to the rebalance timeout."""
    driver = Driver({"group.initial.rebalance.delay.ms": 3_000})
    first = driver.new_member(rebalance_ms=7_000)
    for _ in range(6):
        driver.wait(1_000)
        driver.new_member(rebalance_ms=7_000)
    driver.wait(999)
    assert driver.waits(first)
    driver.wait(1)
    assert driver.joined(first).generation_id == 1


def test_a_newcomer_makes_everybody_rejoin() -> None:
    """GMM.prepareRebalance; heartbeats during PreparingRebalance are answered with 27 and keep the session."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    newcomer = driver.new_member()
    assert driver.state() == "PreparingRebalance"
    assert driver.heartbeat(leader, generation) == REBALANCING
    assert driver.synced(driver.park_sync(leader, generation)).error_code == REBALANCING
    leader_join, follower_join = driver.park_join(leader), driver.park_join(follower)
    generations = {driver.joined(token).generation_id for token in (newcomer, leader_join, follower_join)}
    assert generations == {generation + 1}
    assert driver.joined(leader_join).leader == leader
    assert len(driver.joined(leader_join).members) == 3
    assert driver.joined(newcomer).members == ()


def test_who_does_not_rejoin_in_time_is_out() -> None:
    """GMM.completeClassicGroupJoin removes dynamic members that have not rejoined, and elects a leader that has."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair(rebalance_ms=9_000)
    rejoin = driver.park_join(follower, protocols=[("range", subscription("other"))], rebalance_ms=9_000)
    driver.wait(8_999)
    assert driver.waits(rejoin)
    driver.wait(1)
    answer = driver.joined(rejoin)
    assert (answer.generation_id, answer.leader) == (generation + 1, follower)
    assert [member.member_id for member in answer.members] == [follower]
    assert driver.heartbeat(leader, generation + 1) == UNKNOWN


def test_a_follower_that_repeats_its_join_gets_the_generation_again() -> None:
    """GMM.classicGroupJoinExistingMember in Stable: a follower with the same metadata."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    answer = driver.join(follower)
    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, generation, leader)
    assert answer.members == ()
    assert driver.state() == "Stable"
    assert driver.synced(driver.park_sync(follower, generation)).assignment == b"F"


@pytest.mark.parametrize("who", ["leader", "follower with other metadata"])
def test_a_join_that_changes_something_starts_a_rebalance(who: str) -> None:
    """GMM.classicGroupJoinExistingMember in Stable: the leader always, a follower when its metadata changed."""
    driver = Driver()
    leader, follower, _ = driver.stable_pair()
    if who == "leader":
        token = driver.park_join(leader)
    else:
        token = driver.park_join(follower, protocols=[("range", subscription("t", "u"))])
    assert driver.waits(token)
    assert driver.state() == "PreparingRebalance"


def test_a_repeated_join_before_the_assignment_is_answered_again() -> None:
    """GMM.classicGroupJoinExistingMember in CompletingRebalance: same metadata, same answer, also for the leader."""
    driver = Driver()
    first = driver.joined(driver.new_member())
    assert driver.state() == "CompletingRebalance"
    assert driver.join(first.member_id) == first
    changed = driver.join(first.member_id, protocols=[("range", b"new")])
    assert changed.generation_id == first.generation_id + 1


def test_a_second_join_of_a_member_releases_the_first() -> None:
    """No parked request is left unanswered (Kafka lets the first one run into its client's timeout)."""
    driver = Driver()
    leader, follower, _ = driver.stable_pair()
    first = driver.park_join(leader)
    second = driver.park_join(leader)
    assert driver.joined(first).error_code == REBALANCING
    assert driver.waits(second)
    driver.park_join(follower)
    assert driver.joined(second).error_code == NONE


def test_protocols_are_chosen_by_vote() -> None:
    """CG.selectProtocol: each member votes for the first it lists that all support; most votes win."""
    driver = Driver()
    both, reverse = [("a", b"1"), ("b", b"2")], [("b", b"3"), ("a", b"4"), ("c", b"5")]
    first = driver.joined(driver.new_member(protocols=both))
    assert first.protocol_name == "a"
    second, third = driver.new_member(protocols=reverse), driver.new_member(protocols=reverse)
    answer = driver.join(first.member_id, protocols=both)
    assert answer.protocol_name == "b"
    assert sorted(member.metadata for member in answer.members) == [b"2", b"3", b"3"]
    assert driver.joined(second).protocol_name == driver.joined(third).protocol_name == "b"


def test_a_full_group_refuses_newcomers() -> None:
    """KIP-389, GMM.acceptJoiningMember."""
    driver = Driver({"group.max.size": 2})
    leader, _, generation = driver.stable_pair()
    assert driver.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(leader, generation) == NONE


def test_a_group_over_a_lowered_limit_drops_the_last_to_rejoin() -> None:
    """GMM.onLoaded rebalances a group over capacity; GMM.acceptJoiningMember then counts who has rejoined."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    smaller = Driver({"group.max.size": 1}, driver.log)
    assert smaller.heartbeat(leader, generation) == REBALANCING
    token = smaller.park_join(follower)
    assert smaller.join(leader).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [member.member_id for member in smaller.joined(token).members] == [follower]


def test_a_new_member_whose_client_gave_up_does_not_stay_for_ever() -> None:
    """GMM.addMemberThenRebalanceOrCompleteJoin: a new member's parked join ends after five minutes."""
    driver = Driver()
    leader, _, generation = driver.stable_pair(rebalance_ms=1_000_000)
    newcomer = driver.new_member(rebalance_ms=1_000_000)
    for _ in range(300):
        driver.wait(999)
        assert driver.heartbeat(leader, generation) == REBALANCING
    assert driver.waits(newcomer)
    driver.wait(300)
    assert driver.joined(newcomer).error_code == UNKNOWN


# SyncGroup


def test_followers_wait_for_the_leaders_assignment() -> None:
    """GMM.classicGroupSyncToClassicGroup; who is left out of the assignment gets an empty one."""
    driver = Driver()
    first = driver.joined(driver.new_member())
    second = driver.new_member()
    leader = driver.join(first.member_id)
    follower = driver.joined(second)
    waiting = driver.park_sync(follower.member_id, leader.generation_id)
    assert driver.waits(waiting)
    stored = len(driver.log)
    answer = driver.park_sync(leader.member_id, leader.generation_id, [(leader.member_id, b"all")])
    assert driver.synced(answer).assignment == b"all"
    assert driver.synced(waiting).assignment == b""
    assert (driver.synced(waiting).protocol_type, driver.synced(waiting).protocol_name) == ("consumer", "range")
    assert driver.state() == "Stable"
    assert len(driver.log) == stored + 1


def test_sync_checks() -> None:
    """GMM.validateSyncGroup; KIP-559 for the protocol fields."""
    driver = Driver()
    assert driver.synced(driver.park_sync("m", 1, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.synced(driver.park_sync("m", 1)).error_code == UNKNOWN
    leader, _, generation = driver.stable_pair()

    def error(member_id: str, at: int, protocol_type: str | None = None, protocol_name: str | None = None) -> ErrorCode:
        token = driver.park_sync(member_id, at, protocol_type=protocol_type, protocol_name=protocol_name)
        return driver.synced(token).error_code

    assert error("nobody", generation) == UNKNOWN
    assert error(leader, generation - 1) == ILLEGAL
    assert error(leader, generation, "connect") == INCONSISTENT
    assert error(leader, generation, "consumer", "sticky") == INCONSISTENT
    assert error(leader, generation, "consumer", "range") == NONE


def test_a_rebalance_sends_waiting_syncs_back_to_join() -> None:
    """GMM.prepareRebalance in CompletingRebalance: REBALANCE_IN_PROGRESS."""
    driver = Driver()
    first = driver.joined(driver.new_member())
    second = driver.new_member()
    generation = driver.join(first.member_id).generation_id
    waiting = driver.park_sync(driver.joined(second).member_id, generation)
    driver.new_member()
    assert driver.synced(waiting).error_code == REBALANCING


def test_who_does_not_sync_in_time_is_out() -> None:
    """GMM.expirePendingSync (KAFKA-13374): members without a sync are removed, the rest rebalances."""
    driver = Driver()
    first = driver.joined(driver.new_member(rebalance_ms=5_000))
    second = driver.new_member(rebalance_ms=5_000)
    generation = driver.join(first.member_id, rebalance_ms=5_000).generation_id
    follower = driver.joined(second).member_id
    waiting = driver.park_sync(follower, generation)
    driver.wait(5_000)
    assert driver.synced(waiting).error_code == REBALANCING
    assert driver.heartbeat(first.member_id, generation) == UNKNOWN
    assert driver.join(follower).leader == follower


# Heartbeat and sessions


def test_heartbeat_checks() -> None:
    """GMM.classicGroupHeartbeat."""
    driver = Driver()
    assert driver.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert driver.heartbeat("m", 1) == UNKNOWN
    leader, follower, generation = driver.stable_pair()
    assert driver.heartbeat(leader, generation) == NONE
    assert driver.heartbeat(leader, generation - 1) == ILLEGAL
    assert driver.heartbeat(leader, generation + 1) == ILLEGAL
    assert driver.heartbeat("nobody", generation) == UNKNOWN
    assert driver.heartbeat(follower, generation, instance="i") == UNKNOWN


def test_heartbeats_count_while_the_assignment_is_awaited() -> None:
    """GMM.classicGroupHeartbeatToClassicGroup: a normal answer in CompletingRebalance."""
    driver = Driver()
    member = driver.joined(driver.new_member())
    assert driver.heartbeat(member.member_id, member.generation_id) == NONE


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    """GMM.expireClassicGroupMemberHeartbeat."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair(session_ms=10_000)
    driver.wait(9_999)
    assert driver.heartbeat(follower, generation) == NONE
    driver.wait(1)
    assert driver.heartbeat(follower, generation) == REBALANCING
    answer = driver.join(follower)
    assert (answer.generation_id, answer.leader) == (generation + 1, follower)
    assert driver.heartbeat(leader, generation + 1) == UNKNOWN


def test_a_member_that_waits_for_us_does_not_expire() -> None:
    """ClassicGroupMember.hasSatisfiedHeartbeat: a parked request cannot be accompanied by heartbeats."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair(session_ms=10_000, rebalance_ms=60_000)
    waiting = driver.park_join(leader, session_ms=10_000, rebalance_ms=60_000)
    for _ in range(5):
        driver.wait(9_000)
        driver.heartbeat(follower, generation)
    assert driver.waits(waiting)
    driver.park_join(follower)
    assert driver.joined(waiting).generation_id == generation + 1


def test_the_last_member_leaves_an_empty_group_with_the_next_generation() -> None:
    """CG.initNextGeneration without members; the empty generation is stored."""
    driver = Driver()
    member = driver.joined(driver.new_member())
    driver.park_sync(member.member_id, member.generation_id, [(member.member_id, b"x")])
    driver.wait(10_000)
    assert driver.state() == "Empty"
    again = driver.joined(driver.new_member())
    assert again.generation_id == member.generation_id + 2


# LeaveGroup


def test_leaving_starts_a_rebalance() -> None:
    """GMM.classicGroupLeaveToClassicGroup."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    left = driver.leave(LeavingMember(leader))
    assert (left.error_code, left.single_error_code) == (NONE, NONE)
    assert driver.heartbeat(leader, generation) == UNKNOWN
    assert driver.join(follower).leader == follower


def test_several_leave_at_once_each_with_its_own_answer() -> None:
    """KIP-345's batched LeaveGroup (v3+)."""
    driver = Driver()
    static = driver.joined(driver.park_join(instance="i"))
    left = driver.leave(
        LeavingMember("nobody"), LeavingMember("", "i"), LeavingMember("", "j"), LeavingMember(static.member_id, "i")
    )
    assert [member.error_code for member in left.members] == [UNKNOWN, NONE, UNKNOWN, UNKNOWN]
    assert driver.state() == "Empty"


def test_leave_checks() -> None:
    """GroupCoordinatorService.leaveGroup: an unknown group is an unknown member, for each."""
    driver = Driver()
    assert driver.leave(LeavingMember("m"), group="").error_code == ErrorCode.INVALID_GROUP_ID
    left = driver.leave(LeavingMember("m"))
    assert left.error_code == NONE
    assert left.single_error_code == UNKNOWN
    pending = driver.join().member_id
    assert driver.leave(LeavingMember(pending)).single_error_code == NONE
    assert driver.join(pending).error_code == UNKNOWN


def test_a_member_that_leaves_takes_its_parked_requests_along() -> None:
    """GMM.removeCurrentMemberFromClassicGroup answers the join; ours answers a waiting sync, too."""
    driver = Driver()
    leader, follower, _ = driver.stable_pair()
    joining = driver.park_join(leader)
    driver.leave(LeavingMember(leader))
    assert driver.joined(joining).error_code == UNKNOWN
    answer = driver.join(follower)
    syncing = driver.new_member()
    rejoined = driver.join(follower)
    newcomer = driver.joined(syncing).member_id
    waiting = driver.park_sync(newcomer, rejoined.generation_id)
    driver.leave(LeavingMember(newcomer))
    assert answer.generation_id + 1 == rejoined.generation_id
    assert driver.synced(waiting).error_code == UNKNOWN


# Static members


def test_a_returning_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    """KIP-345, KIP-814: same protocol selected in Stable; the leader is told to skip the assignment from v9 on."""
    driver = Driver()
    first = driver.joined(driver.park_join(instance="i"))
    assert first.member_id == "i-uuid1"
    driver.park_sync(first.member_id, 1, [(first.member_id, b"mine")], instance="i")
    back = driver.join(instance="i", version=9)
    assert (back.error_code, back.generation_id, back.skip_assignment) == (NONE, 1, True)
    assert back.leader == back.member_id == "i-uuid2"
    assert [member.group_instance_id for member in back.members] == ["i"]
    assert driver.synced(driver.park_sync(back.member_id, 1, instance="i")).assignment == b"mine"
    assert driver.heartbeat(first.member_id, 1, instance="i") == FENCED
    assert driver.heartbeat(first.member_id, 1) == UNKNOWN
    assert driver.state() == "Stable"


def test_an_old_client_is_not_told_that_it_leads_again() -> None:
    """GMM.updateStaticMemberThenRebalanceOrCompleteJoin below v9: the leader's old id, no members."""
    driver = Driver()
    first = driver.joined(driver.park_join(instance="i"))
    driver.park_sync(first.member_id, 1, [(first.member_id, b"mine")], instance="i")
    back = driver.join(instance="i", version=8)
    assert (back.leader, back.members, back.skip_assignment) == (first.member_id, (), False)


def test_a_static_member_with_another_protocol_starts_a_rebalance() -> None:
    """GMM.updateStaticMemberThenRebalanceOrCompleteJoin: the selected protocol would change."""
    driver = Driver()
    first = driver.joined(driver.park_join(instance="i", protocols=[("a", b""), ("b", b"")]))
    driver.park_sync(first.member_id, 1, [(first.member_id, b"mine")], instance="i")
    back = driver.join(instance="i", protocols=[("b", b""), ("a", b"")])
    assert (back.generation_id, back.protocol_name) == (2, "b")


def test_a_static_member_that_returns_before_the_assignment_makes_all_rejoin() -> None:
    """GMM.updateStaticMemberThenRebalanceOrCompleteJoin in CompletingRebalance; the old id is fenced."""
    driver = Driver()
    first = driver.joined(driver.park_join(instance="i"))
    second = driver.park_join(instance="j")
    leader = driver.join(first.member_id, instance="i")
    waiting = driver.park_sync(driver.joined(second).member_id, leader.generation_id, instance="j")
    back = driver.park_join(instance="j")
    assert driver.synced(waiting).error_code == FENCED
    assert driver.waits(back)
    assert driver.join(first.member_id, instance="i").generation_id == leader.generation_id + 1


def test_the_old_one_of_two_with_the_same_instance_id_is_fenced() -> None:
    """KIP-345, CG.validateMember: 82 for whoever does not hold the instance id, 25 for an instance id nobody holds."""
    driver = Driver()
    old = driver.joined(driver.park_join(instance="i"))
    driver.park_sync(old.member_id, 1, [], instance="i")
    new = driver.join(instance="i")
    assert driver.join(old.member_id, instance="i").error_code == FENCED
    assert driver.synced(driver.park_sync(old.member_id, 1, instance="i")).error_code == FENCED
    assert driver.leave(LeavingMember(old.member_id, "i")).single_error_code == FENCED
    assert driver.commit(1, member_id=old.member_id, generation=1, instance="i") == FENCED
    assert driver.heartbeat(new.member_id, 1, instance="i") == NONE
    assert driver.heartbeat(new.member_id, 1, instance="k") == UNKNOWN


def test_static_members_survive_a_rebalance_they_miss() -> None:
    """GMM.completeClassicGroupJoin removes only dynamic members; the static one stays until its session ends."""
    driver = Driver()
    static = driver.joined(driver.park_join(instance="i", session_ms=30_000, rebalance_ms=5_000))
    dynamic = driver.new_member(rebalance_ms=5_000)
    driver.wait(5_000)
    answer = driver.joined(dynamic)
    assert answer.leader == answer.member_id
    assert {member.member_id for member in answer.members} == {static.member_id, answer.member_id}


def test_a_returned_static_member_that_does_not_sync_is_out() -> None:
    """GMM.expirePendingSync; the new id is waited for (Kafka waits for the old one, which cannot sync any more)."""
    for syncs in (True, False):
        driver = Driver()
        first = driver.joined(driver.park_join(instance="i", session_ms=30_000, rebalance_ms=9_000))
        second = driver.park_join(instance="j", session_ms=30_000, rebalance_ms=9_000)
        leader = driver.join(first.member_id, instance="i", session_ms=30_000, rebalance_ms=9_000)
        driver.joined(second)
        driver.park_sync(leader.member_id, leader.generation_id, [], instance="i")
        back = driver.join(instance="j", session_ms=30_000, rebalance_ms=9_000)
        assert back.error_code == NONE
        if syncs:
            driver.park_sync(back.member_id, back.generation_id, instance="j")
        driver.wait(9_000)
        expected = NONE if syncs else REBALANCING
        assert driver.heartbeat(leader.member_id, leader.generation_id) == expected
        assert (driver.heartbeat(back.member_id, back.generation_id) == NONE) == syncs


# Restart


def test_a_restart_keeps_the_stable_generation() -> None:
    """GMM.replay(GroupMetadataValue) and onLoaded: members, assignments and a fresh session each."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    driver.wait(9_000)
    again = driver.restarted()
    assert again.state() == "Stable"
    assert again.synced(again.park_sync(follower, generation)).assignment == b"F"
    again.wait(9_999)
    assert again.heartbeat(leader, generation) == NONE
    again.wait(1)
    assert again.heartbeat(leader, generation) == REBALANCING


def test_a_restart_forgets_a_rebalance_that_was_not_assigned() -> None:
    """Only a generation with its assignment is in the log."""
    driver = Driver()
    leader, _, generation = driver.stable_pair()
    driver.park_join(leader)
    assert driver.state() == "PreparingRebalance"
    again = driver.restarted()
    assert (again.state(), again.heartbeat(leader, generation)) == ("Stable", NONE)
    assert again.coordinator.snapshot() == driver.coordinator.snapshot()


def test_a_group_exists_from_the_first_member_id_on() -> None:
    """GMM.classicGroupJoinToClassicGroup writes the empty group."""
    driver = Driver()
    driver.join()
    assert driver.restarted().state() == "Empty"
