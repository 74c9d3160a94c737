"""KeepPreparedTxn and two-phase commit: R4 of docs/observed.md (KIP-939), Kafka's tests of KIP-939 for the epochs."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from tests.unit.broker.coordinator.txn.txn_harness import A0, A1, TXN, Harness, at_epoch, next_epoch

TWO_PHASE = 2**31 - 1
KEEP: dict[str, Any] = {"api_version": 6, "keep_prepared": True}
KEEP_2PC: dict[str, Any] = {**KEEP, "enable_two_phase": True}


def test_a_resolver_keeps_compares_and_commits() -> None:
    """The recovery of KIP-939: stored is the pair of the transaction, ended is it with the pair that keep gave."""
    broker = Harness()
    prepared = broker.open(api_version=6, enable_two_phase=True)
    broker.restart()
    reply = broker.init(**KEEP_2PC)
    assert reply == (0, 1000, 1, *prepared)
    assert broker.state() == "Ongoing"
    assert broker.end((1000, 1)) == (0, 1000, 2)
    (marker,) = broker.write_markers()
    assert marker[1:] == (A0, 1000, 1, 0, True, 2)
    assert broker.end((1000, 1)) == (0, 1000, 2)
    assert broker.produce((1000, 2)) == 0


def test_the_writer_prepares_by_keeping_its_own_transaction() -> None:
    """Level A of R5: an ordinary transaction becomes a two-phase one when it is prepared; the pair of
    that answer is stored, and ends it whoever sends it."""
    broker = Harness()
    writer = broker.open(timeout_ms=1000)
    assert not broker.at().is_two_phase
    prepared = broker.init_pair(pair=writer, **KEEP_2PC)
    assert (prepared, broker.at().timeout_ms) == ((1000, 1), TWO_PHASE)
    assert broker.pass_time(86_400_000) == 0
    broker.restart()
    assert broker.core.describe(TXN)[5:7] == prepared
    assert broker.end(prepared) == (0, 1000, 2)
    broker.write_markers()
    assert broker.end(prepared) == (0, 1000, 2)
    assert broker.end_code(prepared, False) == 48


def test_an_attempt_that_died_before_preparing_expires() -> None:
    broker = Harness()
    writer = broker.open(timeout_ms=1000)
    assert broker.pass_time(1000) == 1
    assert broker.init(pair=writer, **KEEP_2PC).error_code == 51
    broker.write_markers()
    assert broker.init(pair=writer, **KEEP_2PC) == (0, 1000, 1, -1, -1)


def test_what_is_prepared_is_frozen() -> None:
    broker = Harness()
    writer = broker.open()
    next_pair = broker.init_pair(pair=writer, **KEEP_2PC)
    assert broker.fences == [(A0, 1000, 1)]
    for version in (9, 12):
        assert broker.produce(writer, version=version) == 47
        assert broker.produce(next_pair, version=version) == 48
        assert broker.produce(next_pair, A1, version=version) == 48
    assert broker.add(writer) == 90
    assert broker.add(next_pair) == 48
    assert broker.add_offsets(next_pair) == 48
    assert broker.commit_offsets(writer) == (47, False)
    assert broker.commit_offsets(next_pair) == (48, False)
    verified = broker.run(broker.core.verify(EnlistRequest(TXN, next_pair, [A0], 4))).errors
    assert verified == {A0: 120}
    assert broker.at().partitions == {A0}


def test_the_pair_of_the_records_cannot_end_a_kept_transaction() -> None:
    broker = Harness()
    writer = broker.open()
    next_pair = broker.init_pair(pair=writer, **KEEP_2PC)
    for version, code in ((1, 47), (4, 90), (5, 90)):
        assert broker.end_code(writer, True, version) == code
        assert broker.end_code(writer, False, version) == code
    assert broker.end_code(next_pair) == 0


@pytest.mark.parametrize("commit", [True, False])
def test_an_old_end_of_a_kept_transaction_may_be_repeated(commit: bool) -> None:
    """Below v5 the client keeps the pair: its answer was lost, and it asks with the same one."""
    broker = Harness()
    next_pair = broker.init_pair(pair=broker.open(), **KEEP_2PC)
    assert broker.end_code(next_pair, commit, 4) == 0
    (marker,) = broker.write_markers()
    assert marker.producer_epoch == 1
    for _ in range(2):
        assert broker.end_code(next_pair, commit, 4) == 0
        assert broker.end_code(next_pair, not commit, 4) == 48
        broker.restart()


def test_a_further_keep_fences_the_earlier_resolver() -> None:
    broker = Harness()
    prepared = broker.open(api_version=6, enable_two_phase=True)
    first = broker.init(**KEEP_2PC)
    second = broker.init(**KEEP_2PC)
    third = broker.init(**KEEP_2PC)
    assert [reply[1:3] for reply in (first, second, third)] == [(1000, 1), (1000, 2), (1000, 3)]
    assert {reply[3:] for reply in (first, second, third)} == {prepared}
    for earlier in (first, second):
        assert broker.end_code(earlier[1:3], False) == 90
    assert broker.state() == "Ongoing"
    assert broker.end(third[1:3]) == (0, 1000, 4)
    (marker,) = broker.write_markers()
    assert marker.producer_epoch == 1
    for earlier in (first, second):
        assert broker.end_code(earlier[1:3], False) == 90


def test_both_pairs_survive_restarts() -> None:
    broker = Harness()
    prepared = broker.open()
    next_pair = broker.init_pair(**KEEP_2PC)
    for _ in range(2):
        broker.restart()
        described = broker.core.describe(TXN)
        assert (described.producer_id, described.producer_epoch) == next_pair
        assert (described.ongoing_producer_id, described.ongoing_producer_epoch) == prepared
        assert described.is_kept
    broker.end(next_pair)
    broker.restart()
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, True)
    assert broker.at().client_pair == (1000, 2)


def test_a_writer_s_keep_is_repeatable_until_somebody_else_keeps() -> None:
    broker = Harness()
    writer = broker.open()
    first = broker.init(pair=writer, **KEEP_2PC)
    assert broker.init(pair=writer, **KEEP_2PC) == first
    broker.restart()
    assert broker.init(pair=writer, **KEEP_2PC) == first
    other = broker.init_pair(**KEEP_2PC)
    assert broker.init(pair=writer, **KEEP_2PC).error_code == 90
    assert broker.init(pair=first[1:3], **KEEP_2PC).error_code == 90
    assert broker.end_code(other) == 0


def test_keep_with_nothing_open_is_an_ordinary_init() -> None:
    broker = Harness()
    assert broker.init(**KEEP) == (0, 1000, 0, -1, -1)
    assert broker.init(**KEEP) == (0, 1000, 1, -1, -1)
    broker.produce((1000, 1))
    broker.end((1000, 1))
    assert broker.init(**KEEP).error_code == 51
    broker.write_markers()
    assert broker.init(**KEEP) == (0, 1000, 3, -1, -1)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_relaxed_mode_needs_no_two_phase_right(enabled: bool) -> None:
    # R4: keep alone needs only WRITE, under the ordinary timeout.
    broker = Harness(transaction_two_phase_commit_enable=enabled)
    writer = broker.open(timeout_ms=1000)
    reply = broker.init(may_two_phase=False, **KEEP)
    assert reply == (0, 1000, 1, *writer)
    broker.restart()
    assert broker.pass_time(1000) == 1
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, False)
    assert broker.end_code(reply[1:3]) == 120
    assert broker.end(reply[1:3], False) == (0, 1000, 2)
    assert broker.end_code(writer) == 90


def test_a_keep_never_takes_two_phase_away_but_counts_for_later() -> None:
    broker = Harness()
    broker.open(api_version=6, enable_two_phase=True)
    next_pair = broker.init_pair(timeout_ms=5_000, **KEEP)
    assert broker.at().is_two_phase
    assert broker.pass_time(86_400_000) == 0
    new = broker.end(next_pair)[1:]
    broker.restart()
    broker.write_markers()
    broker.produce(new)
    assert broker.at().timeout_ms == 5_000
    assert broker.pass_time(5_000) == 1


def test_an_init_without_keep_aborts_what_is_kept() -> None:
    broker = Harness()
    broker.open()
    next_pair = broker.init_pair(**KEEP_2PC)
    assert broker.init().error_code == 51
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, False)
    # Twice bumped, as Kafka's KIP-939 work reasons: the pair a keep gave must not come to life again.
    assert broker.init_pair() == (1000, 3)
    assert broker.end_code(next_pair) == 90


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("commit", [False, True])
def test_an_old_end_txn_of_a_kept_transaction(version: int, commit: bool) -> None:
    broker = Harness()
    broker.open()
    next_pair = broker.init_pair(**KEEP_2PC)
    assert broker.end_code(next_pair, commit, version) == 0
    (marker,) = broker.write_markers()
    assert (marker.producer_epoch, marker.commit) == (1, commit)
    assert broker.at().client_pair == next_pair


def test_force_termination_is_an_init_that_keeps_nothing() -> None:
    """Check the request of Kafka's tool and our admin: it aborts any open transaction, and no earlier pair is valid."""
    broker = Harness()
    writer = broker.open(api_version=6, enable_two_phase=True)
    next_pair = broker.init_pair(**KEEP_2PC)
    assert broker.init(timeout_ms=1).error_code == 51
    (marker,) = broker.write_markers()
    assert not marker.commit
    administrator = broker.init_pair(timeout_ms=1)
    for pair in (writer, next_pair):
        assert broker.end_code(pair, True) == 90
        assert broker.produce(pair) == 47
        assert broker.init(pair=pair).error_code == 90
    assert administrator not in (writer, next_pair)


# Epoch exhaustion with keep: the flows of Kafka's PlaintextProducer tests of KIP-939 (epoch 32766 / 32765 at the keep).


def test_exhaustion_at_the_keep() -> None:
    broker = Harness()
    writer = at_epoch(broker, 32_766)
    broker.produce(writer)
    reply = broker.init(**KEEP_2PC)
    assert reply == (0, 1001, 0, 1000, 32_766)
    assert broker.fences == [(A0, 1000, 32_767)]
    broker.restart()
    assert broker.end((1001, 0)) == (0, 1001, 1)
    (marker,) = broker.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32_767)
    assert broker.at().client_pair == (1001, 1)
    assert broker.end((1001, 0)) == (0, 1001, 1)


def test_exhaustion_at_the_end_of_a_kept_transaction() -> None:
    broker = Harness()
    writer = at_epoch(broker, 32_765)
    broker.produce(writer)
    assert broker.init(**KEEP_2PC) == (0, 1000, 32_766, 1000, 32_765)
    assert broker.end((1000, 32_766)) == (0, 1001, 0)
    (marker,) = broker.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32_766)
    broker.restart()
    assert broker.end((1000, 32_766)) == (0, 1001, 0)


def test_exhaustion_by_many_keeps() -> None:
    broker = Harness()
    writer = at_epoch(broker, 32_764)
    broker.produce(writer)
    given = [broker.init(**KEEP_2PC)[1:3] for _ in range(4)]
    assert given == [(1000, 32_765), (1000, 32_766), (1001, 0), (1001, 1)]
    assert broker.end_code((1001, 0)) == 90
    assert broker.end_code((1000, 32_766)) == 90
    assert broker.end(given[-1]) == (0, 1001, 2)
    (marker,) = broker.write_markers()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32_765)


def test_two_resolvers_that_agree() -> None:
    broker = Harness()
    broker.open()
    stored = broker.init_pair(**KEEP_2PC)
    assert broker.end(stored) == (0, 1000, 2)
    assert broker.end(stored)[0] == 51
    broker.write_markers()
    assert broker.end(stored) == (0, 1000, 2)
    assert broker.end_code(next_epoch(stored)) == 48
