"""Every short story of one transactional id, searched completely: what is answered about each pair is what happened.

The stories: a producer claims the id, writes, and ends; two deciders end it with any pair that was ever given out,
with EndTxn v5 and, in one search, v4; resolvers keep, any number of times; transactions time out; the id expires and
is used again. They begin near the last epoch, so that producer ids are exhausted. After each step the id's state goes
through the log's bytes and, where nothing is open, through the packed form: a kill and a compaction leave nothing else.
Lost answers need no step of their own, for everybody may use every pair.

The ledger knows only which transaction was begun with which pair, which pairs were given out for it, and how it was
ended. Planted mistakes show that the search would find each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fencepost.broker.coordinator.txn import compact_idle_ids, decide_end, decide_enlist, decide_init, ending, endings
from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.model import (
    NO_PAIR,
    BumpCause,
    EndReply,
    ProducerPair,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.states import PREPARED, TxnState
from fencepost.protocol.endings import Ending

NAME = "id"
CONFIG = TransactionConfig(transaction_two_phase_commit_enable=True)
PARTITIONS = (("t", 0),)
FOREIGN = ProducerPair(999, 3)


@dataclass(frozen=True)
class HistoryBuilder:
    """One id and what is known of it. `names`: per pair the numbers of the transactions that it names."""

    state: Transaction | None = None
    allocated: int = 0
    now_ms: int = 1_000
    names: tuple[tuple[ProducerPair, tuple[int, ...]], ...] = ()
    ended: tuple[Ending, ...] = ()
    before: tuple[ProducerPair, ...] = ()
    """Pairs of the id's lives before it expired."""
    steps: tuple[str, ...] = ()
    may_forget: bool = False
    """There is too little room to remember all."""
    old_clients: bool = False
    """EndTxn v4 is used, too. As with any Kafka, a v5 can then abort "nothing" with a pair that committed by a v4."""

    def named(self) -> dict[ProducerPair, tuple[int, ...]]:
        return dict(self.names)


def allocator(story: HistoryBuilder) -> tuple[Callable[[], int], Callable[[], int]]:
    """Gives out producer ids; the second tells how many were."""
    given = [story.allocated]

    def allocate() -> int:
        given[0] += 1
        return given[0]

    return allocate, lambda: given[0]


def with_names(story: HistoryBuilder, *pairs: ProducerPair, number: int | None = None) -> HistoryBuilder:
    names = story.named()
    for pair in pairs:
        known = names.get(pair, ())
        names[pair] = known if number is None or number in known else (*known, number)
    return replace(story, names=tuple(sorted(names.items())))


def carried_out(story: HistoryBuilder, result: Result[Any], step: str, allocated: int) -> HistoryBuilder:
    state = story.state
    for record in result.records:
        state = record.transaction
    return replace(story, state=state, allocated=allocated, steps=(*story.steps, step))


def decided(story: HistoryBuilder, how: Ending) -> HistoryBuilder:
    """The open transaction has been prepared to end so; its markers are written after everybody has asked."""
    check(replace(story, ended=(*story.ended[:-1], how)))
    current = story.state
    if current is None or current.state not in PREPARED:
        raise AssertionError(story.steps)
    done = replace(story, state=ending.complete(story.now_ms, current), ended=(*story.ended[:-1], how))
    return with_names(done, after(done).client_pair)


def after(story: HistoryBuilder) -> Transaction:
    if story.state is None:
        raise AssertionError(story.steps)
    return story.state


def claim(story: HistoryBuilder, pair: ProducerPair, *, keep: bool, two_phase: bool = True) -> HistoryBuilder | None:
    allocate, allocated = allocator(story)
    request = InitRequest(NAME, 60_000, pair, 6, enable_two_phase=two_phase, keep_prepared=keep)
    result = decide_init.init_producer_id(story.now_ms, CONFIG, story.state, request, allocate)
    if not result.records:
        return None
    next_story = carried_out(story, result, f"init({pair}, keep={keep}, 2pc={two_phase})", allocated())
    if after(next_story).state in PREPARED:
        return decided(next_story, Ending.ABORTED)
    number = len(story.ended) - 1 if after(next_story).state is TxnState.ONGOING else None
    return with_names(next_story, after(next_story).client_pair, number=number)


def write(story: HistoryBuilder) -> HistoryBuilder | None:
    if story.state is None:
        return None
    pair = story.state.client_pair
    result = decide_enlist.enlist_for_produce(
        story.now_ms, CONFIG, story.state, EnlistRequest(NAME, pair, PARTITIONS, 12)
    )
    if not result.records:
        return None
    begun = carried_out(story, result, f"write({pair})", story.allocated)
    return with_names(replace(begun, ended=(*begun.ended, Ending.OPEN)), pair, number=len(begun.ended))


def end(story: HistoryBuilder, pair: ProducerPair, *, commit: bool, version: int) -> HistoryBuilder | None:
    allocate, allocated = allocator(story)
    was_open = story.state is not None and story.state.state is TxnState.ONGOING
    request = EndRequest(NAME, pair, commit, version)
    result = decide_end.end_txn(story.now_ms, CONFIG, story.state, request, allocate)
    asked = f"end({pair}, commit={commit}, v{version})"
    if not result.records:
        if result.reply.error_code == 0 and not story.old_clients:
            how = [story.ended[number] for number in story.named().get(pair, ())]
            opposite = (Ending.ABORTED, Ending.TIMED_OUT) if commit else (Ending.COMMITTED,)
            assert not set(how) & set(opposite), (*story.steps, asked)
            assert how or not commit, (*story.steps, asked)
        return None
    next_story = carried_out(story, result, asked, allocated())
    if was_open:
        return decided(next_story, Ending.COMMITTED if commit else Ending.ABORTED)
    return with_names(next_story, after(next_story).client_pair)


def time_out(story: HistoryBuilder) -> HistoryBuilder | None:
    if story.state is None or story.state.deadline_ms is None:
        return None
    allocate, allocated = allocator(story)
    result = decide_end.time_out(story.now_ms, story.state, allocate)
    return decided(carried_out(story, result, "time out", allocated()), Ending.TIMED_OUT)


def expire(story: HistoryBuilder) -> HistoryBuilder | None:
    if story.state is None or decide_end.expired(story.state) is None:
        return None
    gone = (*story.before, *(pair for pair, _ in story.names))
    return replace(story, state=None, names=(), ended=(), before=gone, steps=(*story.steps, "expire"))


def steps(story: HistoryBuilder, end_versions: tuple[int, ...]) -> Iterator[HistoryBuilder | None]:
    yield claim(story, NO_PAIR, keep=False, two_phase=False)
    yield claim(story, NO_PAIR, keep=True)
    if story.state is not None:
        yield claim(story, story.state.client_pair, keep=True)
        yield claim(story, story.state.client_pair, keep=False)
    yield write(story)
    for pair, _ in story.names:
        for commit in (True, False):
            for version in end_versions:
                yield end(story, pair, commit=commit, version=version)
    yield time_out(story)
    yield expire(story)


def expected(story: HistoryBuilder, pair: ProducerPair) -> set[Ending]:
    """Return the possible answers about the pair."""
    if story.state is None or pair not in story.named():
        return {Ending.UNKNOWN}
    how = {story.ended[number] for number in story.named()[pair]}
    if Ending.OPEN in how:
        return {Ending.OPEN}
    if Ending.TIMED_OUT in how:  # the cause is told as long as the id has not moved on
        how = how - {Ending.TIMED_OUT} | {Ending.ABORTED}
        return {Ending.TIMED_OUT, *how} if len(how) == 1 else {Ending.UNKNOWN}
    return {Ending.UNKNOWN} if len(how) > 1 else how or {Ending.NEVER_BEGUN}


def forms(state: Transaction | None) -> Iterator[Transaction | None]:
    """The state as it runs, as a start reads it from the log, and as it is kept and snapshotted when idle."""
    yield state
    if state is None:
        return
    record = TransactionRecord(NAME, state)
    yield TransactionRecord.from_bytes(record.key(), record.value()).transaction
    if compact_idle_ids.is_idle(state):
        packed = compact_idle_ids.IdleIds()
        packed.put(NAME, compact_idle_ids.pack(state))
        yield packed.get(NAME)


def check(story: HistoryBuilder) -> None:
    for state in forms(story.state):
        assert state == story.state, story.steps
        for pair in (FOREIGN, *story.before, *(pair for pair, _ in story.names)):
            allowed = expected(story, pair) | ({Ending.UNKNOWN} if story.may_forget or story.old_clients else set())
            assert endings.ending_of(state, pair) in allowed, (*story.steps, pair, expected(story, pair))


def beginning(epoch: int) -> HistoryBuilder:
    """An id with this epoch."""
    pair = ProducerPair(1, epoch)
    story = claim(HistoryBuilder(), NO_PAIR, keep=False)
    if story is None:
        raise AssertionError
    state = replace(after(story), producer_epoch=epoch, endings=endings.begin(pair))
    return replace(story, state=state, names=((pair, ()),), steps=(f"epoch {epoch}",))


def search(depth: int, *, epoch: int, end_versions: tuple[int, ...] = (5,), may_forget: bool = False) -> int:
    """The number of different stories of this length."""
    stories = {replace(beginning(epoch), may_forget=may_forget, old_clients=4 in end_versions)}
    for _ in range(depth):
        found: dict[Any, HistoryBuilder] = {}
        for story in stories:
            for following in steps(story, end_versions):
                if following is None:
                    continue
                check(following)
                found[replace(following, steps=())] = following
        stories = set(found.values())
    return len(stories)


@pytest.mark.parametrize("epoch", [0, 32_764])
def test_every_pair_is_answered_as_it_ended(epoch: int) -> None:
    assert search(8, epoch=epoch) > 5_000


def test_pairs_that_old_clients_use_again_are_not_answered_by_guess() -> None:
    assert search(7, epoch=0, end_versions=(4, 5)) > 1_000


def test_what_does_not_fit_is_unknown_and_never_the_opposite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "MOST_RUNS", 1)
    assert search(7, epoch=32_764, may_forget=True) > 1_000


def test_the_last_ones_are_always_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends in any order, with claims and keeps. A keep that uses up a producer id's epochs takes the room of two."""
    monkeypatch.setattr(endings, "MOST_RUNS", 3)
    story = replace(beginning(32_700), may_forget=True)
    kinds = (1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1)
    for number in range(200):
        begun = write(story) if number % 3 else write(claim(story, NO_PAIR, keep=False) or story)
        for _ in range(number % 5 % 3):
            begun = claim(begun or story, NO_PAIR, keep=True)
        done = end(begun or story, after(begun or story).client_pair, commit=bool(kinds[number * 7 % 16]), version=5)
        if done is None:
            raise AssertionError(number)
        story = done
        newest = range(len(story.ended) - endings.MOST_RUNS + 1, len(story.ended))
        for pair, numbers in story.names:
            found, allowed = endings.ending_of(story.state, pair), expected(story, pair)
            assert found in (allowed if set(numbers) & set(newest) else allowed | {Ending.UNKNOWN})
    assert len(after(story).endings) <= 10 + 3 * 17


# Planted mistakes. Each is one that could be made, or that was there.


def forgets_at_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decide_init._emptied

    def wrong(now_ms: int, current: Transaction, pair: ProducerPair, request: InitRequest) -> Transaction:
        return replace(right(now_ms, current, pair, request), endings=b"")

    monkeypatch.setattr(decide_init, "_emptied", wrong)


def remembers_the_pair_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    right = endings.remember

    def wrong(before: Transaction, *, commit: bool) -> bytes:
        client = before.client_pair
        moved = replace(
            before,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            next_producer_id=-1,
            next_producer_epoch=-1,
        )
        return right(moved, commit=commit)

    monkeypatch.setattr(endings, "remember", wrong)


def remembers_only_the_pair_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    right = endings.remember

    def wrong(before: Transaction, *, commit: bool) -> bytes:
        return right(replace(before, next_producer_id=-1, next_producer_epoch=-1), commit=commit)

    monkeypatch.setattr(endings, "remember", wrong)


def remembers_the_pair_of_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    right = endings.remember

    def wrong(before: Transaction, *, commit: bool) -> bytes:
        return right(replace(before, producer_epoch=before.producer_epoch + 1), commit=commit)

    monkeypatch.setattr(endings, "remember", wrong)


def does_not_write_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TransactionRecord.value

    def wrong(self: TransactionRecord) -> bytes | None:
        if self.transaction is None:
            return None
        return right(TransactionRecord(self.transactional_id, replace(self.transaction, endings=b"")))

    monkeypatch.setattr(TransactionRecord, "value", wrong)


def does_not_pack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = compact_idle_ids.pack
    monkeypatch.setattr(compact_idle_ids, "pack", lambda transaction: right(replace(transaction, endings=b"")))


def any_pair_counts_as_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = endings.ending_of

    def wrong(current: Transaction | None, pair: ProducerPair) -> Ending:
        found = right(current, pair)
        return Ending.NEVER_BEGUN if current is not None and found is Ending.UNKNOWN else found

    monkeypatch.setattr(endings, "ending_of", wrong)


def answers_a_commit_to_whoever_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(current: Transaction, request: EndRequest, refusal: Result[Any]) -> Result[Any]:
        return Result(EndReply(0, *request.pair))

    monkeypatch.setattr(decide_end, "_end_with_older_pair", wrong)


def joins_across_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    right = endings._Run.with_next

    def wrong(self: Any, following: Any) -> Any:
        joined = right(self, following)
        return None if joined is None else joined._replace(step=joined.width)

    monkeypatch.setattr(endings._Run, "with_next", wrong)


def drops_without_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "MOST_RUNS", 1)
    right = endings.remember

    def wrong(before: Transaction, *, commit: bool) -> bytes:
        memory = right(before, commit=commit)
        head = before.endings[:10] if before.endings else memory[:10]
        return head + memory[10:]

    monkeypatch.setattr(endings, "remember", wrong)


def a_takeover_is_told_as_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "timed_out", lambda self, pair: self.last_bump is not BumpCause.NONE)


PLANTS = [
    forgets_at_a_claim,
    remembers_the_pair_that_ends,
    remembers_only_the_pair_of_the_records,
    remembers_the_pair_of_the_markers,
    does_not_write_it_down,
    does_not_pack_it,
    any_pair_counts_as_given_out,
    answers_a_commit_to_whoever_comes_late,
    joins_across_a_gap,
    drops_without_a_note,
    a_takeover_is_told_as_a_timeout,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_the_search_finds_a_planted_mistake(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        search(6, epoch=32_764, may_forget=plant is drops_without_a_note)
