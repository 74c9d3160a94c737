"""Committed and pending offsets.

K60 to K65 of docs/observed.md are what Apache Kafka 4.3.1 answered on the wire (KIP-447), `OMM` is its
OffsetMetadataManager, `CG` its ClassicGroup.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.broker.coordinator.group.base.records import GroupRecord, LogKey, MismatchedRecord
from fencepost.broker.coordinator.group.base.requests import Synced, SyncGroup
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.group.log import decode_record, encode_record
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import CurrentAssignmentKey, MemberKey
from fencepost.protocol.logs.offsets_log import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.logs.share_group_log import ShareCurrentKey, ShareMemberKey
from fencepost.protocol.logs.streams_group_log import StreamsMemberKey
from tests.unit.broker.coordinator.group.group_driver import Driver, FakeSettings, FakeTopics, subscription

DAY_MS = 86_400_000
FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


# OffsetCommit


def test_commits_of_a_consumer_without_a_group() -> None:
    """OMM.validateOffsetCommit: generation -1 creates a simple group, any other needs a group (v9+: 69, else 22)."""
    driver = Driver()
    assert driver.commit(3, generation=1, version=8) == ILLEGAL
    assert driver.commit(3, generation=1, version=9) == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.commit(3) == NONE
    assert driver.fetch() == (NONE, [("t", 0, 3, NONE)])
    assert driver.state() == "Empty"
    assert driver.commit(4, member_id="anything") == NONE


def test_commits_of_members() -> None:
    """CG.validateOffsetCommit."""
    driver = Driver()
    leader, _, generation = driver.stable_pair()
    assert driver.commit(1, member_id=leader, generation=generation) == NONE
    assert driver.commit(2, member_id=leader, generation=generation - 1) == ILLEGAL
    assert driver.commit(2, member_id=leader, generation=generation + 1) == ILLEGAL
    assert driver.commit(2, member_id=leader, generation=-1) == ILLEGAL
    assert driver.commit(2, member_id="nobody", generation=generation) == UNKNOWN
    assert driver.commit(2) == UNKNOWN
    assert driver.fetch() == (NONE, [("t", 0, 1, NONE)])


def test_commits_during_a_rebalance() -> None:
    """CG.validateOffsetCommit: the old generation may commit while members rejoin, nobody before the assignment."""
    driver = Driver()
    leader, follower, generation = driver.stable_pair()
    driver.park_join(leader)
    assert driver.state() == "PreparingRebalance"
    assert driver.commit(1, member_id=follower, generation=generation) == NONE
    driver.park_join(follower)
    assert driver.state() == "CompletingRebalance"
    assert driver.commit(2, member_id=follower, generation=generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.commit(2, member_id=follower, generation=generation) == ILLEGAL


def test_a_commit_keeps_the_session() -> None:
    """OMM.commitOffset in Stable."""
    driver = Driver()
    leader, _, generation = driver.stable_pair()
    driver.wait(9_999)
    assert driver.commit(1, member_id=leader, generation=generation) == NONE
    driver.wait(5_000)
    assert driver.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_metadata_has_a_limit() -> None:
    """OMM.isMetadataInvalid: offset.metadata.max.bytes is the largest length that is accepted."""
    driver = Driver()
    assert driver.commit(1, metadata="m" * 4096) == NONE
    assert driver.commit(2, metadata="m" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.fetch() == (NONE, [("t", 0, 1, NONE)])


# TxnOffsetCommit


def test_transactional_commits_are_fenced_by_the_group() -> None:
    """K63: generations, members, instances."""
    driver = Driver()
    leader, _, generation = driver.stable_pair()
    assert driver.txn_commit(1, member_id=leader, generation=generation) == NONE
    for wrong in (generation - 1, generation + 1, -1):
        assert driver.txn_commit(2, member_id=leader, generation=wrong) == ILLEGAL
    assert driver.txn_commit(2, member_id="nobody", generation=generation) == UNKNOWN
    assert driver.txn_commit(2, member_id=leader, generation=generation, instance="unknown") == UNKNOWN
    assert driver.txn_commit(2, generation=generation) == UNKNOWN
    assert driver.txn_commit(3) == NONE


def test_a_fenced_instance_cannot_commit_in_a_transaction() -> None:
    """K63: right instance id, wrong member."""
    driver = Driver()
    static = driver.joined(driver.park_join(instance="i"))
    driver.park_sync(static.member_id, 1, [], instance="i")
    assert driver.txn_commit(1, member_id="other", generation=1, instance="i") == FENCED


def test_a_transactional_commit_does_not_wait_for_the_assignment() -> None:
    """K63: right member in CompletingRebalance."""
    driver = Driver()
    member = driver.joined(driver.new_member())
    assert driver.state() == "CompletingRebalance"
    assert driver.txn_commit(1, member_id=member.member_id, generation=member.generation_id) == NONE


def test_transactional_commits_without_a_group() -> None:
    """K64: unknown group with a generation 22, without 0 (creates); no group id 24; offset -5 is 0."""
    driver = Driver()
    assert driver.txn_commit(1, generation=3) == ILLEGAL
    assert driver.txn_commit(1, group="") == ErrorCode.INVALID_GROUP_ID
    assert not driver.knows("g")
    assert driver.txn_commit(-5) == NONE
    assert driver.knows("g")


# OffsetFetch


def test_pending_offsets_are_unstable_until_the_marker() -> None:
    """K60: partition error 88 with offset -1; other partitions are normal; the top error is 0."""
    driver = Driver()
    driver.commit(5)
    driver.commit(6, partition=1)
    driver.txn_commit(50)
    both = [("t", 0), ("t", 1)]
    assert driver.fetch(partitions=both, stable=True, version=7) == (
        NONE,
        [("t", 0, -1, UNSTABLE), ("t", 1, 6, NONE)],
    )
    assert driver.fetch(partitions=both, version=7) == (NONE, [("t", 0, 5, NONE), ("t", 1, 6, NONE)])
    assert driver.fetch(partitions=None, stable=True) == driver.fetch(partitions=both, stable=True)
    driver.marker(commit=True)
    assert driver.fetch(stable=True) == (NONE, [("t", 0, 50, NONE)])


def test_an_aborted_transactions_offsets_never_count() -> None:
    """KIP-98."""
    driver = Driver()
    driver.commit(5)
    driver.txn_commit(50)
    driver.marker(commit=False)
    assert driver.fetch(stable=True) == (NONE, [("t", 0, 5, NONE)])


@pytest.mark.parametrize("version", [2, 5, 6])
def test_a_fetch_that_does_not_know_88_is_told_to_come_back(version: int) -> None:
    """KIP-447's upgrade path (R3): 14 where the wanted offsets pend, and only there."""
    driver = Driver()
    driver.commit(6, partition=1)
    driver.txn_commit(50)
    assert driver.fetch(version=version) == (LOADING, [])
    assert driver.fetch(partitions=None, version=version) == (LOADING, [])
    assert driver.fetch(partitions=[("t", 1)], version=version) == (NONE, [("t", 1, 6, NONE)])
    driver.marker(commit=True)
    assert driver.fetch(version=version) == (NONE, [("t", 0, 50, NONE)])


def test_a_fetch_without_an_error_of_its_own_is_told_by_partition() -> None:
    """OffsetFetch v1 has no top-level error code."""
    driver = Driver()
    driver.txn_commit(50)
    assert driver.fetch(partitions=[("t", 0), ("u", 1)], version=1) == (
        LOADING,
        [("t", 0, -1, LOADING), ("u", 1, -1, LOADING)],
    )


def test_an_offset_that_was_never_committed_is_no_error() -> None:
    """OMM.fetchOffsets."""
    driver = Driver()
    assert driver.fetch() == (NONE, [("t", 0, -1, NONE)])
    assert driver.fetch(partitions=None) == (NONE, [])


def test_a_stable_fetch_of_everything_names_what_only_pends() -> None:
    """Ours: a consumer that asks for all partitions must not take the missing one for a fresh start."""
    driver = Driver()
    driver.txn_commit(50)
    assert driver.fetch(partitions=None, stable=True) == (NONE, [("t", 0, -1, UNSTABLE)])
    assert driver.fetch(partitions=None, stable=False) == (NONE, [])


# Markers


def test_the_later_record_wins_over_the_later_marker() -> None:
    """OMM.replayEndTransactionMarker: record offsets decide, as compaction would. K61: commits while pending."""
    driver = Driver()
    driver.txn_commit(50)
    assert driver.commit(60) == NONE
    assert driver.fetch() == (NONE, [("t", 0, 60, NONE)])
    assert driver.fetch(stable=True) == (NONE, [("t", 0, -1, UNSTABLE)])
    driver.marker(commit=True)
    assert driver.fetch(stable=True) == (NONE, [("t", 0, 60, NONE)])


def test_a_marker_ends_only_its_producer() -> None:
    """OMM keeps pending offsets by producer id."""
    driver = Driver()
    driver.txn_commit(50, producer=(7, 0))
    driver.txn_commit(70, producer=(8, 0), partition=1)
    driver.marker(commit=True, producer=(7, 1))
    both = [("t", 0), ("t", 1)]
    assert driver.fetch(partitions=both, stable=True) == (NONE, [("t", 0, 50, NONE), ("t", 1, -1, UNSTABLE)])


def test_a_marker_ends_only_its_partition_of_the_offsets_topic() -> None:
    """A transaction over several groups gets a marker in the partition of each."""
    driver = Driver()
    driver.txn_commit(50, group="a")
    driver.txn_commit(51, group="b")
    assert driver.partition_of("a") != driver.partition_of("b")
    driver.marker(commit=True, group="a")
    assert driver.fetch(group="a", stable=True)[1] == [("t", 0, 50, NONE)]
    assert driver.fetch(group="b", stable=True)[1] == [("t", 0, -1, UNSTABLE)]
    driver.marker(commit=True, group="b")
    assert driver.fetch(group="b", stable=True)[1] == [("t", 0, 51, NONE)]


def test_a_marker_of_an_older_epoch_leaves_the_next_transaction_alone() -> None:
    """A late end of a transaction never touches a later one."""
    driver = Driver()
    driver.txn_commit(50, producer=(7, 4))
    driver.marker(commit=True, producer=(7, 3))
    assert driver.fetch(stable=True)[1] == [("t", 0, -1, UNSTABLE)]
    driver.marker(commit=False, producer=(7, 5))
    assert driver.fetch(stable=True)[1] == [("t", 0, -1, NONE)]


def test_markers_under_the_transactions_own_epoch_end_it() -> None:
    """EndTxn v3 and v4 do not bump the epoch (K21)."""
    driver = Driver()
    driver.txn_commit(50, producer=(7, 4))
    driver.marker(commit=True, producer=(7, 4))
    assert driver.fetch(stable=True)[1] == [("t", 0, 50, NONE)]


def test_pending_offsets_survive_a_restart() -> None:
    """The log's batches carry the producer id; a restart must not let a consumer in before the marker."""
    driver = Driver()
    driver.commit(5)
    driver.txn_commit(50)
    again = driver.restarted()
    assert again.fetch(stable=True) == (NONE, [("t", 0, -1, UNSTABLE)])
    again.marker(commit=True)
    assert again.fetch(stable=True) == (NONE, [("t", 0, 50, NONE)])
    assert again.restarted().coordinator.snapshot() == again.coordinator.snapshot()


# OffsetDelete, DeleteGroups, deleted partitions


def test_offset_delete() -> None:
    """OMM.deleteOffsets: 69 without a group, 24 without an id, 86 for what is consumed."""
    driver = Driver()
    assert driver.coordinator.delete_offsets("", [("t", 0)]).reply.error_code == ErrorCode.INVALID_GROUP_ID
    assert driver.coordinator.delete_offsets("g", [("t", 0)]).reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    leader, _, generation = driver.stable_pair()
    driver.commit(1, member_id=leader, generation=generation)
    driver.commit(2, member_id=leader, generation=generation, topic="u")
    answer = driver.done(driver.coordinator.delete_offsets("g", [("t", 0), ("u", 0), ("u", 9)]))
    assert [part.error_code for part in answer.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE]
    assert driver.fetch(partitions=None)[1] == [("t", 0, 1, NONE)]


def test_offset_delete_in_a_live_group_that_does_not_say_what_it_consumes() -> None:
    """CG.validateOffsetDelete, CG.isSubscribedToTopic."""
    driver = Driver()
    driver.joined(driver.new_member(protocol_type="connect"))
    assert driver.coordinator.delete_offsets("g", [("t", 0)]).reply.error_code == ErrorCode.NON_EMPTY_GROUP
    unreadable = Driver()
    unreadable.joined(unreadable.new_member(protocols=[("range", b"?")]))
    answer = unreadable.coordinator.delete_offsets("g", [("t", 0)]).reply
    assert [part.error_code for part in answer.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@pytest.mark.parametrize("how", ["offset", "group", "partition"])
def test_what_is_deleted_while_it_pends_stays_deleted(how: str) -> None:
    """K62: after OffsetDelete or DeleteGroups, the later commit shows no offset."""
    driver = Driver()
    driver.commit(5)
    driver.txn_commit(50)
    driver.txn_commit(51, partition=1)
    gone = [("t", 0), ("t", 1)]
    if how == "offset":
        driver.done(driver.coordinator.delete_offsets("g", gone))
    elif how == "group":
        assert [deleted.error_code for deleted in driver.done(driver.coordinator.delete_groups(["g"]))] == [NONE]
        assert not driver.knows("g")
    else:
        driver.done(driver.coordinator.delete_partitions(gone))
    driver.marker(commit=True)
    assert driver.fetch(partitions=gone, stable=True)[1] == [("t", 0, -1, NONE), ("t", 1, -1, NONE)]
    assert driver.restarted().coordinator.snapshot() == driver.coordinator.snapshot()


def test_only_groups_without_members_are_deleted() -> None:
    """CG.validateDeleteGroup."""
    driver = Driver()
    driver.stable_pair()
    driver.commit(1, group="simple")
    answer = driver.done(driver.coordinator.delete_groups(["g", "simple", "none"]))
    expected = [ErrorCode.NON_EMPTY_GROUP, NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [deleted.error_code for deleted in answer] == expected
    assert driver.state() == "Stable"
    assert driver.state("simple") == "Dead"


# Expiry


def test_offsets_of_a_simple_group_expire_by_their_commit() -> None:
    """KIP-211, CG.offsetExpirationCondition without a protocol type; then the group itself goes."""
    driver = Driver({"offsets.retention.minutes": 24 * 60})
    driver.commit(1)
    driver.wait(DAY_MS // 2)
    driver.commit(2, partition=1)
    driver.wait(DAY_MS // 2 + 600_000)
    assert driver.fetch(partitions=None)[1] == [("t", 1, 2, NONE)]
    driver.wait(DAY_MS // 2)
    assert not driver.knows("g")
    assert driver.restarted().coordinator.snapshot() == driver.coordinator.snapshot()


def test_offsets_of_an_emptied_group_expire_by_the_time_it_emptied() -> None:
    """KIP-211."""
    driver = Driver({"offsets.retention.minutes": 24 * 60})
    leader, follower, generation = driver.stable_pair(session_ms=1_800_000)
    driver.commit(1, member_id=leader, generation=generation)
    for _ in range(96):  # two days, in which the offset would have expired if age alone counted
        driver.wait(1_799_000)
        assert driver.heartbeat(leader, generation) == driver.heartbeat(follower, generation) == NONE
    driver.wait(1_800_000)
    assert driver.state() == "Empty"
    driver.wait(DAY_MS - 600_000)
    assert driver.fetch()[1] == [("t", 0, 1, NONE)]
    driver.wait(1_200_000)
    assert not driver.knows("g")


def test_a_live_group_loses_only_offsets_of_topics_it_dropped() -> None:
    """KIP-211: Stable, and the subscription is known."""
    driver = Driver({"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 30_000})
    leader, follower, generation = driver.stable_pair()
    driver.commit(1, member_id=leader, generation=generation)
    driver.commit(2, member_id=leader, generation=generation, topic="dropped")
    for _ in range(12):
        driver.wait(9_000)
        assert driver.heartbeat(leader, generation) == driver.heartbeat(follower, generation) == NONE
    assert driver.fetch(partitions=None)[1] == [("t", 0, 1, NONE)]


def test_a_retention_in_the_request_counts_from_the_commit() -> None:
    """OffsetCommit v2-4, OMM.expireTimestampMs."""
    driver = Driver()
    driver.commit(1, retention_ms=60_000, version=4)
    driver.wait(600_000)
    assert driver.fetch()[1] == [("t", 0, -1, NONE)]


def test_pending_offsets_hold_expiry_back() -> None:
    """OMM.cleanupExpiredOffsets."""
    driver = Driver({"offsets.retention.minutes": 1})
    driver.commit(1)
    driver.txn_commit(2)
    driver.wait(1_200_000)
    assert driver.fetch()[1] == [("t", 0, 1, NONE)]
    driver.marker(commit=False)
    driver.wait(600_000)
    assert not driver.knows("g")


# Describe and list


def test_describe() -> None:
    """CG.describe; an unknown group is Dead."""
    driver = Driver()
    absent = driver.coordinator.describe(ClassicGroups, "g")
    assert (absent.error_code, absent.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    leader, follower, _ = driver.stable_pair()
    stable = driver.coordinator.describe(ClassicGroups, "g")
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    shares = {member.member_id: (member.member_metadata, member.member_assignment) for member in stable.members}
    assert shares == {leader: (subscription("t"), b"L"), follower: (subscription("t"), b"F")}
    driver.park_join(leader)
    preparing = driver.coordinator.describe(ClassicGroups, "g")
    assert (preparing.group_state, preparing.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in preparing.members] == [b"", b""]


def test_list() -> None:
    """GroupCoordinatorShard.listGroups: filters ignore case (KIP-518, KIP-848)."""
    driver = Driver()
    driver.stable_pair()
    driver.commit(1, group="simple")

    def ids(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        return sorted(group.group_id for group in driver.coordinator.list_groups(states, types))

    assert ids() == ["g", "simple"]
    assert ids(states=("stable",)) == ["g"]
    assert ids(states=("Empty", "Dead")) == ["simple"]
    assert ids(states=("nonsense",)) == []
    assert ids(types=("Classic",)) == ["g", "simple"]
    assert ids(types=("consumer",)) == []
    assert {group.group_type for group in driver.coordinator.list_groups()} == {"classic"}


# The store


def test_a_key_with_the_other_kind_of_value_is_refused() -> None:
    offset = OffsetCommitValue(1)
    group = GroupMetadataValue("", 0, None, None)
    coordinator = GroupCoordinator(FakeSettings(), lambda: "u", FakeTopics())
    before = coordinator.snapshot()
    with pytest.raises(MismatchedRecord):
        coordinator.replay(GroupRecord(GroupMetadataKey("g"), offset), 0)
    with pytest.raises(MismatchedRecord):
        coordinator.replay(GroupRecord(OffsetCommitKey("g", "t", 0), group), 0)
    assert coordinator.snapshot() == before


@pytest.mark.parametrize(
    "key",
    [
        MemberKey("g", "m"),
        CurrentAssignmentKey("g", "m"),
        ShareMemberKey("g", "m"),
        ShareCurrentKey("g", "m"),
        StreamsMemberKey("g", "m"),
    ],
)
def test_a_tombstone_of_a_member_makes_no_group(key: LogKey) -> None:
    """Compaction may leave it behind when the group's other records are gone."""
    coordinator = GroupCoordinator(FakeSettings(), lambda: "u", FakeTopics())
    coordinator.replay(GroupRecord(key, None), 0)
    assert coordinator.list_groups() == []


def test_records_of_other_group_types_are_skipped() -> None:
    assert decode_record(b"\x00\x12anything", b"") is None
    record = GroupRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue(1), 7, 2)
    key, value = encode_record(record)
    assert decode_record(key, value, 7, 2) == record
    assert decode_record(key, None) == replace(record, value=None, producer_id=-1, producer_epoch=-1)


def test_markers_find_offsets_by_the_partitions_that_the_topic_really_has() -> None:
    """offsets.topic.num.partitions may be changed after the topic was created, which keeps its number."""
    coordinator = GroupCoordinator(FakeSettings({"offsets.topic.num.partitions": 3}), lambda: "u", FakeTopics())
    coordinator.set_offsets_topic_partitions(50)
    coordinator.replay(GroupRecord(OffsetCommitKey("my-group", "t", 0), OffsetCommitValue(9), 7, 0), 0)
    assert coordinator.complete_transaction(7, 1, True, 0) == 0
    with pytest.raises(ValueError, match="pending"):
        coordinator.set_offsets_topic_partitions(3)
    assert coordinator.complete_transaction(7, 1, True, 12) == 1  # 12: Kafka's answer for 50 partitions


def test_a_log_that_takes_no_records_refuses_parked_requests() -> None:
    """The members come back, and the group goes on."""
    driver = Driver()
    member = driver.joined(driver.new_member())
    request = SyncGroup(
        group_id="g", generation_id=1, member_id=member.member_id, assignments=[(member.member_id, b"mine")]
    )
    lost = driver.coordinator.sync_group(driver.now_ms, request, "lost")
    assert lost.refused(ErrorCode.NOT_COORDINATOR) == [("lost", Synced(error_code=ErrorCode.NOT_COORDINATOR))]
    assert driver.state() == "CompletingRebalance"
    assert driver.join(member.member_id).generation_id == 1
    assert driver.synced(driver.park_sync(member.member_id, 1, [(member.member_id, b"mine")])).assignment == b"mine"
    assert driver.state() == "Stable"
