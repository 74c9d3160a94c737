"""The rules for idempotent producers. Expected answers, in docs/observed.md: R2 where it is stricter than Kafka,
otherwise what Apache Kafka 4.3.1 answered on the wire (K70 to K78)."""

from __future__ import annotations

import pytest

from fencepost.broker.log.producers.idempotence import (
    BatchFacts,
    ProducerRefusal,
    ProducerState,
    RepeatedBatch,
    apply_batch,
    apply_marker,
    check_batch,
    check_marker,
    shrink,
)
from fencepost.broker.log.producers.table import ProducerTable
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.markers import Marker

LAST = 2**31 - 1
PID = 7


def facts(first: int, last: int, *, epoch: int = 0, transactional: bool = False) -> BatchFacts:
    return BatchFacts(PID, epoch, first, last, transactional)


def appended(*ranges: tuple[int, int], epoch: int = 0, transactional: bool = False) -> ProducerState:
    """A state after these sequences, one offset per sequence, timestamps 1000, 1001, ..."""
    state = ProducerState(PID)
    offset = 0
    for number, (first, last) in enumerate(ranges):
        count = (last - first) % 2**31
        batch = facts(first, last, epoch=epoch, transactional=transactional)
        apply_batch(state, batch, base_offset=offset, last_offset=offset + count, timestamp_ms=1000 + number)
        offset += count + 1
    return state


def code(state: ProducerState | None, batch: BatchFacts, **how: bool | int) -> int:
    verdict = check_batch(state, batch, **how)  # type: ignore[arg-type]
    if verdict is None:
        return 0
    assert isinstance(verdict, ProducerRefusal), verdict
    return int(verdict.code)


TEN = [(10 * n, 10 * n + 9) for n in range(10)]  # sequences 0...99 in ten batches


@pytest.mark.parametrize("number", range(5, 10))
def test_one_of_the_last_five_batches_is_a_repeat_with_its_offset_and_timestamp(number: int) -> None:
    verdict = check_batch(appended(*TEN), facts(*TEN[number]))
    assert isinstance(verdict, RepeatedBatch)
    assert (verdict.batch.base_offset, verdict.batch.last_offset) == (10 * number, 10 * number + 9)
    assert verdict.batch.timestamp_ms == 1000 + number


@pytest.mark.parametrize(
    ("first", "last", "strict", "kafka"),
    [
        (100, 109, 0, 0),  # next in line
        (0, 9, 46, 45),  # older than the last five
        (40, 49, 46, 45),  # just forgotten
        (90, 94, 46, 45),  # same first sequence, shorter: all of it is there
        (33, 37, 46, 45),
        (95, 104, 45, 45),  # partial overlap
        (90, 100, 45, 45),
        (101, 101, 45, 45),  # gap
        (150, 159, 45, 45),
    ],
)
def test_sequences_of_a_known_producer(first: int, last: int, strict: int, kafka: int) -> None:
    state = appended(*TEN)
    assert code(state, facts(first, last)) == strict
    assert code(state, facts(first, last), kafka_rules=True) == kafka


def test_nothing_that_was_not_seen_is_called_a_duplicate() -> None:
    """46 is success to every client, so sequences before the first one that was seen here are 45."""
    state = appended((50, 59), (60, 69))
    assert code(state, facts(50, 54)) == 46
    assert code(state, facts(49, 54)) == 45
    assert code(state, facts(40, 49)) == 45
    assert code(state, facts(0, 9)) == 45


def test_a_part_of_a_batch_is_no_repeat_of_it() -> None:
    """R2: its records are there, but under other offsets than a repeat's answer would say."""
    for first, last in ((95, 99), (90, 98)):
        assert code(appended(*TEN), facts(first, last)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_an_unknown_producer_must_begin_at_zero() -> None:
    assert code(None, facts(0, 4)) == 0
    plain = check_batch(None, facts(7, 7))
    assert isinstance(plain, ProducerRefusal)
    assert (plain.code, plain.log_start) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)  # 0: the true log start offset
    transactional = check_batch(None, facts(7, 7, transactional=True))
    assert isinstance(transactional, ProducerRefusal)
    assert (transactional.code, transactional.log_start) == (ErrorCode.UNKNOWN_PRODUCER_ID, -2)
    assert code(None, facts(7, 7), produce_version=7) == 0
    assert code(None, facts(7, 7), kafka_rules=True) == 0
    for version, expected in ((11, 0), (12, 45), (13, 45)):
        assert code(None, facts(7, 7, transactional=True), kafka_rules=True, produce_version=version) == expected


def test_out_of_order_tells_the_log_start_only_outside_of_transactions() -> None:
    plain = check_batch(appended((0, 4)), facts(9, 9))
    transactional = check_batch(appended((0, 4), transactional=True), facts(9, 9, transactional=True))
    assert isinstance(plain, ProducerRefusal) and isinstance(transactional, ProducerRefusal)
    assert (plain.code, plain.log_start) == (45, 0)
    assert (transactional.code, transactional.log_start) == (45, -1)


def test_never_unknown_while_there_is_any_state() -> None:
    """A client that restarts at 0 in the same epoch after 59 would be acknowledged with old offsets and lose its
    records."""
    only_marker = ProducerState(PID)
    apply_marker(only_marker, epoch=3, coordinator_epoch=0, timestamp_ms=5)
    assert code(only_marker, facts(5, 5, epoch=3)) == 45
    assert code(only_marker, facts(0, 5, epoch=3)) == 0
    shrunk = appended(*TEN)
    shrink(shrunk)
    assert code(shrunk, facts(200, 200)) == 45


def test_epochs() -> None:
    state = appended((0, 4), epoch=5)
    assert code(state, facts(0, 0, epoch=6)) == 0
    assert code(state, facts(5, 5, epoch=6)) == 45
    assert code(state, facts(0, 0, epoch=4)) == 47
    assert code(state, facts(0, 4, epoch=4)) == 47  # also when it looks like a remembered batch
    assert code(state, facts(5, 5, epoch=-1)) == 47
    assert code(None, facts(0, 0, epoch=-1)) == 47


def test_a_new_epoch_forgets_the_sequences_of_the_old_one() -> None:
    state = appended((0, 4), (5, 9))
    apply_batch(state, facts(0, 2, epoch=1), base_offset=10, last_offset=12, timestamp_ms=1)
    assert code(state, facts(3, 3, epoch=1)) == 0
    assert code(state, facts(5, 9, epoch=1)) == 45
    assert len(state.batches) == 1


def test_sequences_wrap_to_zero() -> None:
    state = appended((LAST - 1, LAST))
    assert code(state, facts(0, 0)) == 0
    assert code(state, facts(1, 1)) == 45
    across = appended((LAST - 9, LAST - 2), (LAST - 1, 1), (2, 3))
    assert across.last_sequence == 3
    assert code(across, facts(4, 4)) == 0
    assert isinstance(check_batch(across, facts(LAST - 1, 1)), RepeatedBatch)
    assert code(across, facts(LAST, 0)) == 46
    assert code(across, facts(LAST - 10, LAST - 9)) == 45


def test_a_fence_refuses_lower_epochs_also_of_unknown_producers_and_repeats() -> None:
    state = appended((0, 4))
    assert code(state, facts(5, 5), fenced_below=1) == 47
    assert code(state, facts(0, 4), fenced_below=1) == 47
    assert code(None, facts(0, 0), fenced_below=1) == 47
    assert code(state, facts(0, 0, epoch=1), fenced_below=1) == 0


def test_not_transactional_while_a_transaction_is_open() -> None:
    state = appended((0, 4), transactional=True)
    assert code(state, facts(5, 5)) == 48
    assert code(state, facts(5, 5, transactional=True)) == 0
    apply_marker(state, epoch=0, coordinator_epoch=0, timestamp_ms=1)
    assert code(state, facts(5, 5)) == 0


def test_a_marker_with_a_bumped_epoch_restarts_sequences_and_one_without_does_not() -> None:
    """After EndTxn v5 (transaction version 2) and v3/v4."""
    bumped, same = appended((0, 4), transactional=True), appended((0, 4), transactional=True)
    assert apply_marker(bumped, epoch=1, coordinator_epoch=2, timestamp_ms=9) == 0
    assert apply_marker(same, epoch=0, coordinator_epoch=2, timestamp_ms=9) == 0
    assert (bumped.epoch, bumped.last_sequence, bumped.txn_first_offset) == (1, -1, -1)
    assert (same.epoch, same.last_sequence, same.txn_first_offset) == (0, 4, -1)
    assert code(bumped, facts(0, 0, epoch=1, transactional=True)) == 0
    assert code(bumped, facts(0, 4, epoch=0, transactional=True)) == 47  # observed: dup after EndTxn v5
    assert code(same, facts(5, 5, transactional=True)) == 0
    assert isinstance(check_batch(same, facts(0, 4, transactional=True)), RepeatedBatch)


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "version", "expected"),
    [
        (6, 3, 2, 0),
        (5, 3, 2, 47),  # not bumped: of an earlier transaction
        (5, 3, 0, 0),
        (4, 3, 0, 47),
        (4, 3, 2, 47),
        (6, 2, 2, 52),  # an older coordinator
        (-1, 3, 2, 47),
    ],
)
def test_markers_for_an_open_transaction(epoch: int, coordinator_epoch: int, version: int, expected: int) -> None:
    state = appended((0, 4), epoch=5, transactional=True)
    state.coordinator_epoch = 3
    verdict = check_marker(state, epoch=epoch, coordinator_epoch=coordinator_epoch, transaction_version=version)
    assert (0 if verdict is None else verdict.code) == expected


def test_a_marker_may_be_repeated_and_may_come_for_nothing() -> None:
    """After a crash the coordinator writes the markers of a prepared transaction again; unknown ids get 0 as well."""
    state = appended((0, 4), transactional=True)
    apply_marker(state, epoch=1, coordinator_epoch=0, timestamp_ms=1)
    assert check_marker(state, epoch=1, coordinator_epoch=0, transaction_version=2) is None
    assert check_marker(None, epoch=1, coordinator_epoch=0, transaction_version=2) is None


def test_expiry_keeps_what_accepts_exactly_the_next_batch() -> None:
    state = appended(*TEN)
    shrink(state)
    assert state.batches == []
    assert code(state, facts(100, 100)) == 0
    assert code(state, facts(101, 101)) == 45
    assert code(state, facts(90, 99)) == 46
    with pytest.raises(ValueError, match="open transaction"):
        shrink(appended((0, 0), transactional=True))


def test_the_only_record_of_an_expired_producer_is_still_a_duplicate() -> None:
    """R2: it was appended here; where is forgotten."""
    state = appended((0, 0))
    shrink(state)
    assert code(state, facts(0, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert code(state, facts(1, 1)) == 0


def test_a_producer_expires_when_it_was_idle_for_as_long_as_the_setting_says() -> None:
    """Kafka's ProducerStateManager.isProducerExpired: now - last timestamp >= expiration."""
    table = ProducerTable()
    table.note_batch(facts(0, 0), 0, 0, timestamp_ms=1000)
    table.note_marker(8, 1, Marker(commit=True, coordinator_epoch=0), 1, timestamp_ms=1000, durable=True)
    for now, left in ((1099, {(7, False), (8, False)}), (1100, {(7, True)})):
        table.expire(now, 100, lambda _: False, shrunk_max=9)
        assert {(state.producer_id, state.shrunk) for state in table} == left
