"""EndTxn, fences, markers, restart: K20 to K32 and K51 of docs/observed.md, and R6."""

from __future__ import annotations

import pytest

from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, OFFSETS, TXN, Harness, at_epoch, next_epoch

OLD = [3, 4]
RESULTS = [True, False]


# K21 to K27 one by one; first EndTxn v3/v4, then v5.


@pytest.mark.parametrize("commit", RESULTS)
@pytest.mark.parametrize("version", OLD)
def test_v4_ends_with_the_epoch_unchanged(version: int, commit: bool) -> None:
    broker = Harness()
    owner = broker.open(version=3)
    assert broker.end_code(owner, commit, version) == 0
    assert broker.at().client_pair == owner
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit, marker.transaction_version) == (owner.epoch, commit, 0)
    assert broker.state() == ("CompleteCommit" if commit else "CompleteAbort")


@pytest.mark.parametrize("commit", RESULTS)
def test_v5_ends_with_a_bump_that_shows_at_once(commit: bool) -> None:
    broker = Harness()
    owner = broker.open()
    assert broker.end(owner, commit) == (0, 1000, 1)
    described = broker.core.describe(TXN)
    assert (described.state, described.producer_epoch) == ("PrepareCommit" if commit else "PrepareAbort", 1)
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit, marker.transaction_version) == (1, commit, 2)


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("commit", RESULTS)
def test_v4_repeated_and_contradicted(version: int, commit: bool) -> None:
    broker = Harness()
    owner = broker.open(version=3)
    broker.end(owner, commit, version)
    assert broker.end_code(owner, commit, version) == 51
    assert broker.end_code(owner, not commit, version) == 51
    broker.write_markers()
    assert [broker.end_code(owner, commit, version) for _ in range(3)] == [0, 0, 0]
    assert broker.end_code(owner, commit, 7 - version) == 0
    assert broker.end_code(owner, not commit, version) == 48


@pytest.mark.parametrize("commit", RESULTS)
def test_v5_repeated_and_contradicted(commit: bool) -> None:
    broker = Harness()
    owner = broker.open()
    broker.end(owner, commit)
    assert broker.end(owner, commit) == (51, -1, -1)
    assert broker.end(owner, not commit) == (51, -1, -1)
    broker.write_markers()
    assert [broker.end(owner, commit) for _ in range(3)] == [(0, 1000, 1)] * 3
    assert broker.end(owner, not commit) == (48, -1, -1)
    assert broker.at().client_pair == (1000, 1)


def test_v5_after_v4() -> None:
    committed = Harness()
    owner = committed.open(version=3)
    committed.end(owner, True, 4)
    committed.write_markers()
    assert committed.end_code(owner, True, 5) == 48
    aborted = Harness()
    owner = aborted.open(version=3)
    aborted.end(owner, False, 4)
    aborted.write_markers()
    assert aborted.end(owner, False, 5) == (0, 1000, 1)


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("commit", RESULTS)
def test_v4_after_v5(version: int, commit: bool) -> None:
    broker = Harness()
    owner = broker.open()
    broker.end(owner, commit)
    broker.write_markers()
    assert broker.end_code(owner, commit, version) == 90
    # With the new epoch nothing was begun: there is nothing this could be the repetition of.
    assert broker.end_code(next_epoch(owner), commit, version) == 48


def test_the_present_epoch_with_nothing_open() -> None:
    old = Harness()
    owner = old.open(version=3)
    old.end(owner, True, 4)
    old.write_markers()
    assert old.end_code(next_epoch(owner), True, 4) == 90
    new = Harness()
    owner = new.open()
    new.end(owner)
    new.write_markers()
    assert new.end_code(next_epoch(owner), True) == 48
    assert new.end(next_epoch(owner), False) == (0, 1000, 2)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_foreign_producer_id_and_an_unknown_id(version: int) -> None:
    broker = Harness()
    owner = broker.open()
    assert broker.end_code((77, owner.epoch), True, version) == 49
    assert broker.end_code(owner, True, version, txn="other") == 49
    assert broker.end_code(owner, True, version, txn="") == 42
    assert broker.state() == "Ongoing"


def test_a_late_v5_never_ends_a_later_transaction() -> None:
    # jepsen.io/analyses/bufstream-0.1.0; KIP-890.
    broker = Harness()
    first = broker.open()
    second = broker.end(first)[1:]
    broker.write_markers()
    broker.produce(second)
    at_work = broker.at()
    assert broker.end(first, False) == (90, -1, -1)
    assert broker.end(first) == (0, *first)  # it is committed; the pair of the answer is fenced
    assert broker.at() == at_work
    third = broker.end(second, False)[1:]
    broker.write_markers()
    assert broker.end(first) == (0, *first)
    broker.produce(third)
    assert broker.end(first) == (0, *first)
    for commit in RESULTS:
        assert broker.end_code(second, commit) == 90
    assert broker.state() == "Ongoing"


def test_a_late_v4_ends_the_next_transaction_as_with_any_kafka() -> None:
    broker = Harness()
    owner = broker.open(version=3)
    broker.end(owner, True, 4)
    broker.write_markers()
    broker.add(owner)
    assert broker.end_code(owner, True, 4) == 0
    assert broker.state() == "PrepareCommit"


def test_v5_after_re_initialisation() -> None:
    broker = Harness()
    owner = broker.open()
    broker.end(owner)
    broker.write_markers()
    heir = broker.init_pair()
    assert broker.end(owner) == (0, *owner)
    assert broker.end_code(owner, False) == 90
    assert broker.produce(owner) == 47
    assert broker.at().client_pair == heir


def test_still_the_owner() -> None:
    # K27: "Am I still the owner?" by EndTxn v5 (abort).
    broker = Harness()
    claim = broker.init_pair()
    assert broker.end(claim, False) == (0, 1000, 1)
    assert broker.end(claim, False) == (0, 1000, 1)
    broker.init_pair()
    assert broker.end_code(claim, False) == 90
    assert broker.end_code(next_epoch(claim), False) == 90
    owner = broker.open()
    broker.end(owner)
    assert broker.end_code(owner, False) == 51
    broker.write_markers()
    assert broker.end_code(owner, False) == 48


# With nothing open (K51, K52)


@pytest.mark.parametrize("commit", RESULTS)
@pytest.mark.parametrize("version", OLD)
def test_v4_on_an_empty_transaction(version: int, commit: bool) -> None:
    broker = Harness()
    assert broker.end_code(broker.init_pair(), commit, version) == 48


def test_v5_on_an_empty_transaction() -> None:
    broker = Harness()
    owner = broker.init_pair()
    assert broker.end_code(owner, True) == 48
    assert broker.end(owner, False) == (0, 1000, 1)
    assert (broker.state(), broker.core.marker_work()) == ("CompleteAbort", [])
    assert broker.end(owner, False) == (0, 1000, 1)
    assert broker.at().producer_epoch == 1


def test_v5_commit_with_partitions_but_no_data_writes_the_marker() -> None:
    # apache/kafka#18448
    broker = Harness()
    owner = broker.init_pair()
    broker.add(owner, A0, A1)
    assert broker.end(owner) == (0, 1000, 1)
    assert [write.partition for write in broker.write_markers()] == [A0, A1]


def test_transaction_version_0_refuses_v5_and_is_not_stuck() -> None:
    # Observed: EndTxn v5 on Empty answers 35 and the id then answers 51 to everything. Ours goes on.
    broker = Harness(transaction_version=0)
    owner = broker.init_pair()
    assert broker.end_code(owner, False) == 35
    assert broker.produce(owner) == 35
    assert broker.add(owner) == 0
    assert broker.produce(owner, version=11) == 0
    assert broker.end_code(owner, True, 4) == 0
    broker.write_markers()
    assert broker.state() == "CompleteCommit"


@pytest.mark.parametrize("level", [1, 2])
def test_from_level_1_the_request_decides(level: int) -> None:
    broker = Harness(transaction_version=level)
    owner = broker.init_pair()
    assert broker.produce(owner) == 0
    assert broker.commit_offsets(owner) == (0, False)
    assert broker.end(owner) == (0, 1000, 1)


# Epoch exhaustion (K18)


@pytest.mark.parametrize("commit", RESULTS)
def test_v5_at_the_last_epoch_moves_to_a_new_producer_id(commit: bool) -> None:
    broker = Harness()
    owner = at_epoch(broker, 32_766)
    broker.produce(owner)
    assert broker.end(owner, commit) == (0, 1001, 0)
    assert broker.fences == [(A0, 1000, 32_767)]
    assert broker.end_code(owner, commit) == 51
    assert broker.produce((1001, 0)) == 51
    broker.restart()
    (marker,) = broker.write_markers()
    assert marker[1:] == (A0, 1000, 32_767, 0, commit, 2)
    assert broker.end(owner, commit) == (0, 1001, 0)
    broker.restart()
    assert broker.end(owner, commit) == (0, 1001, 0)
    assert broker.produce((1001, 0)) == 0
    assert broker.end_code(owner, commit) == (0 if commit else 49)  # a commit that was done is remembered as done


def test_an_empty_abort_at_the_last_epoch() -> None:
    broker = Harness()
    owner = at_epoch(broker, 32_766)
    assert broker.end(owner, False) == (0, 1001, 0)
    assert broker.end(owner, False) == (0, 1001, 0)


# Fences: no Produce of the old epoch may join a transaction whose EndTxn was answered (R6).


def test_v5_fences_every_partition_below_the_marker_s_epoch() -> None:
    broker = Harness()
    owner = broker.init_pair()
    broker.produce(owner, A0, A1)
    broker.commit_offsets(owner)
    broker.end(owner)
    assert sorted(broker.fences) == sorted([(OFFSETS, 1000, 1), (A0, 1000, 1), (A1, 1000, 1)])


@pytest.mark.parametrize("produce_version", [9, 11, 12, 13])
@pytest.mark.parametrize("end_version", [3, 4, 5])
@pytest.mark.parametrize("markers", [False, True])
def test_a_late_produce_never_joins(end_version: int, produce_version: int, markers: bool) -> None:
    # With Kafka 4.3.1, 36 of 36 joined (K32).
    broker = Harness()
    owner = broker.open(version=3)
    broker.end(owner, True, end_version)
    ended = broker.at()
    if markers:
        broker.write_markers()
    code = broker.produce(owner, version=produce_version)
    if end_version == 5:
        assert code == 47
    elif produce_version < 12:
        assert code in (48, 120)
    elif not markers:
        assert code == 51
    else:
        # The epoch is still the producer's: version 12 opens its next transaction.
        assert (code, broker.state()) == (0, "Ongoing")
        return
    assert markers or broker.at() is ended


# While markers are written (K101)


def test_new_work_waits_for_the_markers() -> None:
    broker = Harness()
    owner = broker.open()
    new = broker.end(owner)[1:]
    assert broker.add(new) == 51
    assert broker.add_offsets(new) == 51
    assert broker.commit_offsets(new) == (51, False)
    assert broker.produce(new) == 51
    assert broker.init().error_code == 51
    assert broker.end_code(new) == 51
    broker.write_markers()
    assert broker.produce(new) == 0


# Markers and restart


def test_the_last_marker_completes() -> None:
    broker = Harness()
    owner = broker.init_pair()
    broker.produce(owner, A0, A1)
    broker.end(owner)
    first, second = broker.core.marker_work(TXN)
    assert broker.core.marker_written(broker.now_ms, first).records == ()
    assert broker.core.marker_work() == [second]
    assert broker.core.marker_written(broker.now_ms, first).records == ()
    broker.run(broker.core.marker_written(broker.now_ms, second))
    assert (broker.state(), broker.core.marker_work()) == ("CompleteCommit", [])
    assert broker.at().partitions == frozenset()


@pytest.mark.parametrize("commit", RESULTS)
@pytest.mark.parametrize("version", [4, 5])
def test_markers_are_owed_again_after_a_restart(version: int, commit: bool) -> None:
    # Kafka 4.3.1 lost them (K31): 18 of 87 transactions were left hanging.
    broker = Harness()
    owner = broker.init_pair()
    broker.add(owner, A0, A1)
    broker.end(owner, commit, version)
    owed = broker.core.marker_work()
    broker.run(broker.core.marker_written(broker.now_ms, owed[0]))
    broker.restart()
    assert broker.write_markers() == owed
    assert broker.state() == ("CompleteCommit" if commit else "CompleteAbort")
    broker.restart()
    assert broker.core.marker_work() == []
    assert broker.end_code(owner, commit, version) == 0


def test_an_acknowledgement_of_an_earlier_transaction_is_nothing() -> None:
    broker = Harness()
    owner = broker.open()
    second = broker.end(owner)[1:]
    (write,) = broker.write_markers()
    broker.produce(second)
    broker.end(second)
    assert broker.core.marker_written(broker.now_ms, write).records == ()
    assert len(broker.core.marker_work()) == 1


def test_a_prepared_two_phase_transaction_is_ended_by_its_stored_pair_after_a_restart() -> None:
    # EndTxn from elsewhere with the original pair (K20), level B of R5.
    broker = Harness()
    owner = broker.open(api_version=6, enable_two_phase=True)
    broker.restart()
    assert broker.core.describe(TXN)[2:4] == ("Ongoing", 2147483647)
    assert broker.end(owner) == (0, 1000, 1)
