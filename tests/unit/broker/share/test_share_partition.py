"""A partition as a share group reads it: who gets what, what comes back, and what a new start knows of it."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fencepost.broker.share.share_partition import Acknowledgement, AcquiredRange, ShareLimits, SharePartition, Span
from fencepost.broker.share.states import RecordEvent
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import (
    ShareSnapshot,
    ShareStateKey,
    StateBatch,
    decode_share_snapshot,
    decode_share_state_key,
    encode_share_snapshot,
    encode_share_state_key,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LIMITS = ShareLimits(deliveries=5, locks=10, lock_ms=30_000)


def begun(*batches: StateBatch, start: int = 0) -> SharePartition:
    return SharePartition(ShareSnapshot(0, start, batches))


def take(shared: SharePartition, member: str, last: int, *, now_ms: int = 0, wanted: int = 100) -> list[AcquiredRange]:
    offset = shared.next_offset(LIMITS)
    assert offset is not None
    return shared.acquire(now_ms, member, [Span(offset, last)], wanted, LIMITS, strict=True)


def say(shared: SharePartition, member: str, first: int, last: int, *kinds: int, now_ms: int = 0) -> ShareSnapshot:
    changes = shared.decide_acknowledge(member, [Acknowledgement(first, last, kinds)], LIMITS)
    assert not isinstance(changes, ErrorCode), changes
    written = shared.snapshot(changes, now_ms)
    shared.apply(changes, now_ms + LIMITS.lock_ms)
    return written


def test_records_are_handed_out_once() -> None:
    shared = begun()
    assert take(shared, "a", 4) == [AcquiredRange(0, 4, 1)]
    assert take(shared, "b", 6) == [AcquiredRange(5, 6, 1)]
    assert shared.next_offset(LIMITS) == 7


def test_no_more_are_handed_out_than_may_be() -> None:
    shared = begun()
    take(shared, "a", 9)
    assert shared.next_offset(LIMITS) is None
    say(shared, "a", 0, 0, ACCEPT)
    assert shared.next_offset(LIMITS) == 10


def test_a_strict_limit_splits_a_batch_and_a_loose_one_does_not() -> None:
    assert take(begun(), "a", 9, wanted=3) == [AcquiredRange(0, 2, 1)]
    loose = begun().acquire(0, "a", [Span(0, 9), Span(10, 19)], 3, LIMITS, strict=False)
    assert loose == [AcquiredRange(0, 9, 1)]


def test_released_records_come_again_and_the_others_do_not() -> None:
    shared = begun()
    take(shared, "a", 3)
    say(shared, "a", 0, 3, ACCEPT, RELEASE, REJECT, GAP)
    assert shared.start_offset == 1
    assert take(shared, "b", 3) == [AcquiredRange(1, 1, 2)]
    say(shared, "b", 1, 1, ACCEPT)
    assert (shared.start_offset, shared.next_offset(LIMITS)) == (4, 4)


def test_a_record_is_given_up_after_its_last_delivery() -> None:
    shared = begun()
    for delivery in range(1, 6):
        assert take(shared, "a", 0) == [AcquiredRange(0, 0, delivery)]
        say(shared, "a", 0, 0, RELEASE)
    assert shared.next_offset(LIMITS) == 1


def test_nobody_speaks_of_what_he_does_not_have() -> None:
    shared = begun()
    take(shared, "a", 3)
    wrong = [Acknowledgement(0, 3, [ACCEPT])]
    assert shared.decide_acknowledge("b", wrong, LIMITS) is ErrorCode.INVALID_RECORD_STATE
    assert shared.decide_acknowledge("a", [Acknowledgement(2, 4, [ACCEPT])], LIMITS) is ErrorCode.INVALID_REQUEST
    say(shared, "a", 0, 1, ACCEPT)
    assert shared.decide_acknowledge("a", wrong, LIMITS) == {2: RecordEvent.ACCEPTED, 3: RecordEvent.ACCEPTED}
    say(shared, "a", 3, 3, RELEASE)
    both = [Acknowledgement(2, 2, [ACCEPT]), Acknowledgement(3, 3, [ACCEPT])]
    assert shared.decide_acknowledge("a", both, LIMITS) is ErrorCode.INVALID_RECORD_STATE


def test_locks_run_out_unless_they_are_renewed() -> None:
    shared = begun()
    take(shared, "a", 1, now_ms=0)
    assert shared.next_expiry_ms() == 30_000
    say(shared, "a", 1, 1, RENEW, now_ms=20_000)
    assert shared.decide_expiry(29_999, LIMITS) == {}
    assert shared.decide_expiry(30_000, LIMITS) == {0: RecordEvent.RELEASED}
    assert shared.decide_expiry(30_000, LIMITS) == {0: RecordEvent.RELEASED}  # the disk may have refused the first
    shared.forget_locks(30_000)
    assert shared.next_expiry_ms() == 50_000


def test_time_that_was_skipped_does_not_count() -> None:
    shared = begun()
    take(shared, "a", 1, now_ms=0)
    shared.postpone(3_600_000)
    assert shared.decide_expiry(3_629_999, LIMITS) == {}
    assert len(shared.decide_expiry(3_630_000, LIMITS)) == 2


def test_a_member_that_is_gone_gives_everything_back() -> None:
    shared = begun()
    take(shared, "a", 1)
    take(shared, "b", 3)
    assert shared.decide_release("a", LIMITS) == dict.fromkeys((0, 1), RecordEvent.RELEASED)


def test_what_is_missing_is_given_up() -> None:
    shared = begun()
    spans = [Span(0, 1, missing=True), Span(2, 3), Span(6, 7)]
    assert shared.acquire(0, "a", spans, 100, LIMITS, strict=False) == [AcquiredRange(2, 3, 1), AcquiredRange(6, 7, 1)]
    assert shared.start_offset == 2
    say(shared, "a", 2, 3, ACCEPT)
    assert shared.start_offset == 6  # the hole between the batches is no work


def test_a_snapshot_knows_what_is_done_and_forgets_who_has_what() -> None:
    shared = begun()
    take(shared, "a", 5)
    say(shared, "a", 1, 1, RELEASE)
    written = say(shared, "a", 3, 4, ACCEPT, REJECT)
    expected = (StateBatch(1, 1, 0, 1), StateBatch(3, 3, 2, 1), StateBatch(4, 4, 4, 1))
    assert (written.start_offset, written.batches, written.complete_count) == (0, expected, 2)
    again = SharePartition(written)
    assert take(again, "b", 9) == [
        AcquiredRange(0, 0, 1),
        AcquiredRange(1, 1, 2),
        AcquiredRange(2, 2, 1),
        AcquiredRange(5, 9, 1),
    ]


def test_a_log_that_begins_later_takes_the_window_with_it() -> None:
    shared = begun()
    take(shared, "a", 5)
    assert shared.move_start(3)
    assert not shared.move_start(3)
    assert say(shared, "a", 1, 4, ACCEPT).start_offset == 5  # what is gone is done, whoever says so
    assert shared.move_start(100)
    assert (shared.next_offset(LIMITS), shared.acquired) == (100, 0)


def test_records_of_the_log_come_back_as_they_were() -> None:
    key = ShareStateKey("group", UUID(int=7), 3)
    assert decode_share_state_key(encode_share_state_key(key)) == key
    snapshot = ShareSnapshot(2, 10, (StateBatch(11, 13, 2, 1), StateBatch(15, 15, 0, 4)), 3, 1_700_000_000_000)
    assert decode_share_snapshot(encode_share_snapshot(snapshot)) == snapshot


class Shares(RuleBasedStateMachine):
    """Members that do anything, brokers that start anew: nothing is delivered that is done, nothing is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.written = ShareSnapshot(0, 0)
        self.shared = SharePartition(self.written)
        self.now_ms = 0
        self.end = 0
        self.has: dict[int, str] = {}
        self.done: set[int] = set()
        self.deliveries: Counter[int] = Counter()

    @rule(count=st.integers(1, 8))
    def produce(self, count: int) -> None:
        self.end += count

    @rule(member=st.sampled_from("abc"), wanted=st.integers(1, 6), strict=st.booleans(), size=st.integers(1, 4))
    def fetch(self, member: str, wanted: int, strict: bool, size: int) -> None:
        offset = self.shared.next_offset(LIMITS)
        if offset is None or offset >= self.end:
            return
        edges = list(range(offset, self.end, size))
        spans = [Span(first, min(first + size, self.end) - 1) for first in edges]
        for acquired in self.shared.acquire(self.now_ms, member, spans, wanted, LIMITS, strict=strict):
            for given in range(acquired.first_offset, acquired.last_offset + 1):
                assert given not in self.has
                assert given not in self.done
                self.deliveries[given] += 1
                assert acquired.delivery_count == self.deliveries[given]
                self.has[given] = member

    @precondition(lambda self: self.has)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.has)))
        kind = data.draw(st.sampled_from((GAP, ACCEPT, RELEASE, REJECT)))
        self.written = say(self.shared, self.has.pop(offset), offset, offset, kind, now_ms=self.now_ms)
        if kind != RELEASE or self.deliveries[offset] >= LIMITS.deliveries:
            self.done.add(offset)

    @rule(by_ms=st.sampled_from((10_000, 31_000)))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self._change(self.shared.decide_expiry(self.now_ms, LIMITS))
        self.shared.forget_locks(self.now_ms)

    @rule(member=st.sampled_from("abc"))
    def leave(self, member: str) -> None:
        self._change(self.shared.decide_release(member, LIMITS))
        assert member not in self.has.values()

    @rule()
    def start_anew(self) -> None:
        """Start again from the written state: records without acknowledgement count as never delivered."""
        self.deliveries.subtract(self.has.keys())
        self.has.clear()
        self.shared = SharePartition(self.written)

    def _change(self, changes: dict[int, RecordEvent]) -> None:
        if not changes:
            return
        self.written = self.shared.snapshot(changes, self.now_ms)
        self.shared.apply(changes, self.now_ms + LIMITS.lock_ms)
        for offset, event in changes.items():
            del self.has[offset]
            if event is RecordEvent.EXHAUSTED:
                self.done.add(offset)

    @invariant()
    def the_window_begins_with_work(self) -> None:
        assert self.shared.acquired == len(self.has)
        assert self.done >= set(range(self.shared.start_offset))
        assert self.shared.start_offset not in self.done

    def teardown(self) -> None:
        """Check that members that accept everything reach the end, after any history."""
        for member in "abc":
            self._change(self.shared.decide_release(member, LIMITS))
        for _ in range(10_000):
            offset = self.shared.next_offset(LIMITS)
            if offset is None or offset >= self.end:
                break
            for found in self.shared.acquire(self.now_ms, "z", [Span(offset, self.end - 1)], 5, LIMITS, strict=True):
                say(self.shared, "z", found.first_offset, found.last_offset, ACCEPT)
        assert self.shared.start_offset == self.end


Shares.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestShares = Shares.TestCase
