"""plan.py step by step: the order of the steps and what each answer leads to (EndTxn v5 as in KIP-890)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.errors import KafkaTimeoutError, PreparedTransactionLostError, TransactionalIdAuthorizationError
from fencepost.spark import names, plan
from fencepost.spark.decision import Decision, Pair, Winner
from fencepost.spark.errors import (
    DecisionRefusedError,
    DecisionUnknownError,
    LevelUnavailableError,
    SinkContradictionError,
    SupersededError,
)
from fencepost.spark.plan import AbortOutcome, End, Level

SINK = "s"
CLAIM = Pair(1, 4)


def task(number: int, sink: str = SINK) -> str:
    return names.task_id(sink, number.to_bytes(16, "big"))


def play(steps: plan.Plan[Any], answers: Sequence[Any]) -> tuple[list[plan.Step], Any]:
    """Run a plan with these observations: the steps it asked for, and its result."""
    asked: list[plan.Step] = []
    observation: Any = None
    left = list(answers)
    try:
        while True:
            asked.append(steps.send(observation))
            observation = left.pop(0)
    except StopIteration as stop:
        assert left == [], "the plan ended before it heard all answers"
        return asked, stop.value


def prepared(number: int, batch_id: int = 7, claim: Pair = CLAIM, query: str = "q") -> plan.Prepared:
    return plan.Prepared(claim, query, batch_id, task(number), Pair(100 + number, 0))


def commits(*numbers: int) -> plan.EndTransactions:
    return plan.EndTransactions(tuple(End(task(n), Pair(100 + n, 0), True) for n in numbers))


DECIDED = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 0)),))


def test_open_lists_then_claims_then_reads_then_finishes_then_aborts() -> None:
    listed = (
        plan.Listed(task(1), Pair(101, 0), "Ongoing"),
        plan.Listed(task(2), Pair(102, 3), "Ongoing"),
        plan.Listed(task(3), Pair(103, 0), "CompleteAbort"),
        plan.Listed(task(4, sink="s/other"), Pair(104, 0), "Ongoing"),
        plan.Listed(names.sink_id(SINK), Pair(1, 3), "Ongoing"),
    )
    asked, opened = play(plan.open_sink(SINK, Level.TWO_PHASE), [listed, CLAIM, (DECIDED,), (0,), (0,)])
    assert asked == [
        plan.ListTransactions(SINK),
        plan.Claim(SINK),
        plan.ReadDecisions(SINK),
        commits(1),
        plan.EndTransactions((End(task(2), Pair(102, 3), False),)),
    ]
    assert opened == plan.Opened(SINK, Level.TWO_PHASE, CLAIM, (("q", 7),))


@pytest.mark.parametrize("code", [0, 49])
def test_a_decided_transaction_that_is_committed_or_forgotten_is_done(code: int) -> None:
    asked, _ = play(plan.open_sink(SINK, Level.RESUME), [(), CLAIM, (DECIDED,), (code,)])
    assert len(asked) == 4


@pytest.mark.parametrize("code", [48, 90, 120])
@pytest.mark.parametrize(("owner", "error"), [(90, SupersededError), (49, SupersededError), (0, None), (48, None)])
def test_a_contradiction_is_loud_unless_somebody_newer_owns_the_sink(
    code: int, owner: int, error: type[Exception] | None
) -> None:
    with pytest.raises(error or PreparedTransactionLostError):
        play(plan.open_sink(SINK, Level.RESUME), [(), CLAIM, (DECIDED,), (code,), owner])


@pytest.mark.parametrize("code", [0, 48, 49, 90])
def test_aborting_what_is_gone_is_fine(code: int) -> None:
    listed = (plan.Listed(task(2), Pair(102, 3), "Ongoing"),)
    _, opened = play(plan.open_sink(SINK, Level.RESUME), [listed, CLAIM, (), (code,)])
    assert opened.decided == ()


def test_other_refusals_are_not_taken_for_done() -> None:
    with pytest.raises(TransactionalIdAuthorizationError):
        play(plan.open_sink(SINK, Level.RESUME), [(), CLAIM, (DECIDED,), (53,)])


@pytest.mark.parametrize(("batch_id", "skipped"), [(6, True), (7, True), (8, False)])
def test_a_task_skips_by_what_open_read(batch_id: int, skipped: bool) -> None:
    opened = plan.Opened(SINK, Level.TWO_PHASE, CLAIM, (("other", 99), ("q", 7)))
    answers = [None] if skipped else [False]
    asked, message = play(plan.write_task(opened, "q", batch_id), answers)
    assert asked == ([plan.Drain()] if skipped else [plan.HasRows()])
    assert message == (plan.Skipped("q", batch_id) if skipped else plan.Nothing("q", batch_id))


@pytest.mark.parametrize("level", list(Level))
def test_a_task_mints_begins_writes_and_prepares(level: Level) -> None:
    opened = plan.Opened(SINK, level, CLAIM, ())
    kept = [Pair(5, 1)] if level is Level.KEEP_PREPARED else []
    answers = [True, task(9), Pair(5, 0), None, *kept]
    asked, message = play(plan.write_task(opened, "q", 3), answers)
    assert asked[:4] == [
        plan.HasRows(),
        plan.Mint(SINK),
        plan.BeginTask(task(9), two_phase=level is Level.TWO_PHASE),
        plan.WriteRows(task(9), Pair(5, 0)),
    ]
    assert asked[4:] == ([plan.Prepare(task(9), Pair(5, 0))] if kept else [])
    assert message == plan.Prepared(CLAIM, "q", 3, task(9), kept[0] if kept else Pair(5, 0))


def test_a_lost_begin_is_never_repeated_with_the_same_id() -> None:
    opened = plan.Opened(SINK, Level.TWO_PHASE, CLAIM, ())
    asked, message = play(plan.write_task(opened, "q", 3), [True, task(1), None, task(2), Pair(5, 0), None])
    assert [step.transactional_id for step in asked if isinstance(step, plan.BeginTask)] == [task(1), task(2)]
    assert message.transactional_id == task(2)
    with pytest.raises(KafkaTimeoutError):
        play(plan.write_task(opened, "q", 3), [True, *(one for n in range(5) for one in (task(n), None))])


def test_commit_decides_with_the_tasks_claim_and_then_completes() -> None:
    messages: list[plan.Message] = [prepared(1), plan.Nothing("q", 7), prepared(2)]
    asked, done = play(plan.commit_batch(SINK, 7, messages), [0, (0, 0)])
    winners = (Winner(task(1), Pair(101, 0)), Winner(task(2), Pair(102, 0)))
    assert asked == [plan.WriteDecision(CLAIM, Decision(SINK, "q", 7, winners)), commits(1, 2)]
    assert done is True


def test_nothing_to_commit_asks_for_nothing() -> None:
    assert play(plan.commit_batch(SINK, 7, [plan.Skipped("q", 7), plan.Skipped("q", 7)]), []) == ([], False)
    assert play(plan.commit_batch(SINK, 7, [plan.Nothing("q", 7)]), []) == ([], False)


@pytest.mark.parametrize(
    ("code", "error"),
    [(None, DecisionUnknownError), (90, SupersededError), (47, SupersededError), (48, DecisionRefusedError)],
)
def test_only_zero_means_decided(code: int | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        play(plan.commit_batch(SINK, 7, [prepared(1)]), [code])


@pytest.mark.parametrize(
    "messages",
    [
        [prepared(1), None],
        [prepared(1), plan.Skipped("q", 7)],
        [prepared(1), prepared(2, claim=Pair(1, 5))],
        [prepared(1), prepared(2, query="r")],
        [prepared(1, batch_id=6)],
        [plan.Nothing("q", 6)],
    ],
)
def test_messages_that_cannot_be_one_batch_decide_nothing(messages: list[plan.Message | None]) -> None:
    with pytest.raises(SinkContradictionError):
        play(plan.commit_batch(SINK, 7, messages), [])


def test_abort_asks_who_owns_the_sink_first() -> None:
    aborts = plan.EndTransactions((End(task(1), Pair(101, 0), False),))
    ask = plan.AskOwner(SINK, CLAIM)
    messages = [None, prepared(1)]
    assert play(plan.abort_batch(SINK, messages), [0, (90,)]) == ([ask, aborts], AbortOutcome.ABORTED)
    assert play(plan.abort_batch(SINK, messages), [48, (0,)]) == ([ask, commits(1)], AbortOutcome.COMMITTED)
    assert play(plan.abort_batch(SINK, messages), [90]) == ([ask], AbortOutcome.LEFT)
    assert play(plan.abort_batch(SINK, messages), [49]) == ([ask], AbortOutcome.LEFT)
    assert play(plan.abort_batch(SINK, [None, plan.Nothing("q", 7)]), []) == ([], AbortOutcome.NOTHING)


@pytest.mark.parametrize(
    ("offer", "answers", "level"),
    [
        # What Apache Kafka 4.3.1 answers: 35 to keep, 0 or 53 to two-phase; a broker with KIP-939 whole: 0.
        (plan.BrokerOffer(6, 5, 2), [0], Level.KEEP_PREPARED),
        (plan.BrokerOffer(6, 5, 2), [35, 0], Level.TWO_PHASE),
        (plan.BrokerOffer(6, 5, 2), [53, 53], Level.RESUME),
        (plan.BrokerOffer(5, 5, 1), [], Level.RESUME),
    ],
)
def test_the_level_is_the_strongest_that_is_offered(offer: plan.BrokerOffer, answers: list[int], level: Level) -> None:
    assert play(plan.choose_level(SINK, None), [offer, *answers])[1] is level
    assert play(plan.choose_level(SINK, level), [offer, *answers])[1] is level
    if level is not Level.KEEP_PREPARED:
        with pytest.raises(LevelUnavailableError):
            play(plan.choose_level(SINK, Level.KEEP_PREPARED), [offer, *answers])


@pytest.mark.parametrize("offer", [plan.BrokerOffer(6, 5, 0), plan.BrokerOffer(4, 4, 2), plan.BrokerOffer(-1, -1, 0)])
def test_brokers_where_ending_is_not_safe_are_refused(offer: plan.BrokerOffer) -> None:
    with pytest.raises(LevelUnavailableError):
        play(plan.choose_level(SINK, None), [offer])
