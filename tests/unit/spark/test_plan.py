"""plan.py step by step: the order of the steps and what each answer leads to (EndTxn v5 as in KIP-890)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.errors import (
    ConfigurationError,
    KafkaTimeoutError,
    PreparedTransactionLostError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from fencepost.spark.errors import (
    BatchChangedError,
    BatchTimedOutError,
    CheckpointRolledBackError,
    DecisionRefusedError,
    DecisionUnknownError,
    GuaranteeUnavailableError,
    SinkContradictionError,
    SupersededError,
)
from fencepost.spark.sink import names, plan, plan_abilities, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Content, Decision, Pair, SourceOffsets, Winner
from fencepost.spark.sink.plan_steps import AbortOutcome, EndTxn, SameBatch
from tests.support.sink_abilities import ALL, KEEPING, ONE_PHASE, TWO_PHASE, VERSION_0

SINK = "s"
CLAIM = Pair(1, 4)


def task(number: int, sink: str = SINK) -> str:
    return names.task_id(sink, number.to_bytes(16, "big"))


def play(steps: plan.Plan[Any], answers: Sequence[Any]) -> tuple[list[plan_steps.Step], Any]:
    """Run a plan with these observations: the steps it asked for, and its result."""
    asked: list[plan_steps.Step] = []
    observation: Any = None
    left = list(answers)
    try:
        while True:
            asked.append(steps.send(observation))
            observation = left.pop(0)
    except StopIteration as stop:
        assert left == [], "the plan ended before it heard all answers"
        return asked, stop.value


def prepared(
    number: int, batch_id: int = 7, claim: Pair = CLAIM, query: str = "q", abilities: BrokerAbilities = TWO_PHASE
) -> plan_steps.PreparedTask:
    return plan_steps.PreparedTask(
        abilities, claim, query, batch_id, task(number), Pair(100 + number, 0), Content(number, 7 * number)
    )


def commits(*numbers: int) -> plan_steps.EndTransactions:
    return plan_steps.EndTransactions(tuple(EndTxn(task(n), Pair(100 + n, 0), True) for n in numbers))


DECIDED = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 0)),))


def test_open_lists_then_claims_then_reads_then_finishes_then_aborts() -> None:
    listed = (
        plan_steps.SinkTransaction(task(1), Pair(101, 0), "Ongoing"),
        plan_steps.SinkTransaction(task(2), Pair(102, 3), "Ongoing"),
        plan_steps.SinkTransaction(task(3), Pair(103, 0), "CompleteAbort"),
        plan_steps.SinkTransaction(task(4, sink="s/other"), Pair(104, 0), "Ongoing"),
        plan_steps.SinkTransaction(names.sink_id(SINK), Pair(1, 3), "Ongoing"),
    )
    asked, opened = play(plan.open_sink(SINK, TWO_PHASE), [listed, CLAIM, (DECIDED,), (0,), (0,)])
    assert asked == [
        plan_steps.ListTransactions(SINK),
        plan_steps.Claim(SINK),
        plan_steps.ReadDecisions(SINK),
        commits(1),
        plan_steps.EndTransactions((EndTxn(task(2), Pair(102, 3), False),)),
    ]
    assert opened == plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, (plan_steps.DecidedBatch("q", 7, None),), ("q",))


def test_a_decided_transaction_that_is_committed_is_done() -> None:
    asked, _ = play(plan.open_sink(SINK, ONE_PHASE), [(), CLAIM, (DECIDED,), (0,)])
    assert len(asked) == 4


BOTH = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 0)), Winner(task(2), Pair(102, 0))))
UNKNOWN = plan_steps.UnknownOutcome("q", 7, (Winner(task(1), Pair(101, 0)),))


@pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)
def test_a_decided_transaction_whose_id_has_expired_is_reported_as_unknown(abilities: BrokerAbilities) -> None:
    """K17: the coordinator forgets an id that was committed, and also an id that was aborted by its timeout."""
    report = plan_steps.ReportUnknown(SINK, abilities, UNKNOWN)
    other = Decision(SINK, "p", 3, (Winner(task(3), Pair(103, 0)),))
    asked, opened = play(plan.open_sink(SINK, abilities), [(), CLAIM, (other, BOTH), (0, 49, 0), None])
    assert asked[4:] == [report]
    assert opened.claim == CLAIM  # the query starts
    aborted = prepared(1, abilities=abilities)
    asked, outcome = play(plan.abort_batch(SINK, [aborted]), [(), 48, (BOTH,), (49, 0), None])
    assert (asked[-1], outcome) == (report, AbortOutcome.COMMITTED)


def test_a_loss_is_an_error_also_beside_an_unknown_outcome() -> None:
    steps = plan.open_sink(SINK, ONE_PHASE)
    for answer in (None, (), CLAIM, (BOTH,), (49, 48), ()):
        steps.send(answer)
    assert steps.send(0) == plan_steps.ReportUnknown(SINK, ONE_PHASE, UNKNOWN)
    with pytest.raises(PreparedTransactionLostError, match="1 of 2 transactions"):
        steps.send(None)


@pytest.mark.parametrize("code", [47, 90])
def test_an_id_that_expires_between_the_end_and_the_description_is_unknown(code: int) -> None:
    asked, _ = play(plan.open_sink(SINK, ONE_PHASE), [(), CLAIM, (DECIDED,), (code,), (), None])
    assert asked[-1] == plan_steps.ReportUnknown(SINK, ONE_PHASE, UNKNOWN)


def test_a_settled_batch_names_the_transactions_with_an_unknown_outcome() -> None:
    asked, settled = play(plan.settle_lost(SINK, "q", ONE_PHASE, again=False), [CLAIM, (BOTH,), (49, 0), 0])
    assert asked[-1] == plan_steps.WriteDecision(CLAIM, Decision(SINK, "q", 7, ()))
    assert (settled.committed, settled.lost, settled.unknown) == ((task(2),), (), (task(1),))


@pytest.mark.parametrize("code", [48, 59, 90, 120])
@pytest.mark.parametrize(("owner", "error"), [(90, SupersededError), (49, SupersededError), (0, None), (48, None)])
def test_a_contradiction_is_loud_unless_somebody_newer_owns_the_sink(
    code: int, owner: int, error: type[Exception] | None
) -> None:
    aborted = (plan_steps.SinkTransaction(task(1), Pair(101, 1), "CompleteAbort"),)
    for shown in (aborted,) if code == 90 else ((), aborted):
        with pytest.raises(error or PreparedTransactionLostError):
            play(plan.open_sink(SINK, ONE_PHASE), [(), CLAIM, (DECIDED,), (code,), shown, owner])


def test_a_decided_transaction_that_somebody_else_kept_is_not_lost() -> None:
    """His keep moved on the pair that ends it. The look comes before the question whose the sink is."""
    ongoing = plan_steps.SinkTransaction(task(1), Pair(101, 2), "Ongoing")
    newer, complete = Pair(1, 6), plan_steps.SinkTransaction(task(1), Pair(101, 3), "CompleteCommit")
    first = [(ongoing,), CLAIM, (DECIDED,), (90,), (ongoing,), 0, (0,)]
    again = [(complete,), newer, (DECIDED,), (90,), (complete,)]  # the question has used the claim up
    asked, opened = play(plan.open_sink(SINK, KEEPING), [*first, *again])
    assert asked[3:7] == [
        commits(1),
        plan_steps.DescribeTasks((task(1),)),
        plan_steps.VerifyClaim(SINK, CLAIM),
        plan_steps.EndTransactions((EndTxn(task(1), Pair(101, 2), True),)),
    ]
    assert opened.claim == newer
    with pytest.raises(SupersededError):
        play(plan.open_sink(SINK, KEEPING), [*first[:5], 90])


def test_after_a_loss_what_was_only_kept_is_committed_too() -> None:
    both = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 0)), Winner(task(2), Pair(102, 0))))
    ongoing, gone = (
        plan_steps.SinkTransaction(task(1), Pair(101, 1), "Ongoing"),
        plan_steps.SinkTransaction(task(2), Pair(102, 1), "CompleteAbort"),
    )
    complete = plan_steps.SinkTransaction(task(1), Pair(101, 2), "CompleteCommit")
    first = [CLAIM, (both,), (90, 48), (ongoing, gone), 0, (0,)]
    asked, settled = play(
        plan.settle_lost(SINK, "q", ONE_PHASE, again=False),
        [*first, Pair(1, 6), (both,), (90, 48), (complete, gone), 0],
    )
    assert asked[-1] == plan_steps.WriteDecision(Pair(1, 6), Decision(SINK, "q", 7, ()))
    assert (settled.committed, settled.lost) == ((task(1),), (task(2),))


@pytest.mark.parametrize("code", [0, 48, 49])
def test_aborting_what_is_gone_is_fine(code: int) -> None:
    listed = (plan_steps.SinkTransaction(task(2), Pair(102, 3), "Ongoing"),)
    _, opened = play(plan.open_sink(SINK, ONE_PHASE), [listed, CLAIM, (), (code,)])
    assert opened.decided == ()


def test_other_refusals_are_not_taken_for_done() -> None:
    with pytest.raises(TransactionalIdAuthorizationError):
        play(plan.open_sink(SINK, ONE_PHASE), [(), CLAIM, (DECIDED,), (53,)])
    listed = (plan_steps.SinkTransaction(task(2), Pair(102, 3), "Ongoing"),)
    with pytest.raises(TransactionalIdAuthorizationError):
        play(plan.open_sink(SINK, ONE_PHASE), [listed, CLAIM, (), (53,)])


def test_what_somebody_keeps_again_and_again_is_given_up_and_neither_lost_nor_settled() -> None:
    ongoing = (plan_steps.SinkTransaction(task(1), Pair(101, 2), "Ongoing"),)
    with pytest.raises(KafkaTimeoutError, match="another process keeps changing"):
        play(plan.open_sink(SINK, KEEPING), [(), CLAIM, (DECIDED,), *[(90,), ongoing, 0] * plan.ROUNDS])
    with pytest.raises(KafkaTimeoutError, match="another process keeps changing"):
        play(
            plan.settle_lost(SINK, "q", ONE_PHASE, again=False),
            [CLAIM, (DECIDED,), (90,), ongoing, 0, (0,)] * plan.ROUNDS,
        )


def test_a_query_without_a_decision_is_told_which_have_one() -> None:
    with pytest.raises(ConfigurationError, match=r"no decision of query 'p'; it has: q$"):
        plan.decision_of(SINK, "p", [DECIDED])
    with pytest.raises(ConfigurationError, match=r"it has: none$"):
        plan.decision_of(SINK, "p", [])


CAME = Content(3, 21)


@pytest.mark.parametrize(("batch_id", "skipped"), [(7, True), (8, False)])
def test_a_task_skips_by_what_open_read(batch_id: int, skipped: bool) -> None:
    opened = plan_steps.OpenedSink(
        SINK, TWO_PHASE, CLAIM, (plan_steps.DecidedBatch("other", 99, None), plan_steps.DecidedBatch("q", 7, CAME))
    )
    answers: list[Any] = [CAME] if skipped else [False]
    asked, message = play(plan.write_task(opened, "q", batch_id), answers)
    assert asked == ([plan_steps.DrainRows()] if skipped else [plan_steps.HasRows()])
    assert message == (
        plan_steps.SkippedTask("q", batch_id, CAME, CAME) if skipped else plan_steps.EmptyTask("q", batch_id)
    )


def test_a_batch_below_the_last_decided_one_is_never_skipped() -> None:
    opened = plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, (plan_steps.DecidedBatch("q", 7, CAME),))
    with pytest.raises(CheckpointRolledBackError, match=r"batch 6 of query q.*written batch 7"):
        play(plan.write_task(opened, "q", 6), [])


def skipped(rows: int, checksum: int, decided: Content | None = CAME) -> plan_steps.SkippedTask:
    return plan_steps.SkippedTask("q", 7, Content(rows, checksum), decided)


def test_a_decided_batch_that_comes_again_is_compared() -> None:
    """Whichever way the rows are cut into tasks now."""
    assert play(plan.commit_batch(SINK, 7, [skipped(3, 21), skipped(0, 0)]), []) == ([], False)
    assert play(plan.commit_batch(SINK, 7, [skipped(1, 30), skipped(2, 2**64 - 9)]), []) == ([], False)
    assert play(plan.commit_batch(SINK, 7, [skipped(9, 9, None)]), []) == ([], False)  # adopted without its rows
    for messages in ([skipped(3, 22)], [skipped(2, 21)], [skipped(0, 0)]):
        with pytest.raises(BatchChangedError, match=r"3 rows with checksum 0{14}15.*nothing of it was written"):
            play(plan.commit_batch(SINK, 7, messages), [(DECIDED,), None])
    with pytest.raises(SinkContradictionError):
        play(plan.commit_batch(SINK, 7, [skipped(3, 21), skipped(0, 0, None)]), [])


HERE, THERE = SourceOffsets("v1\n{}\nhere", None), SourceOffsets("v1\n{}\nthere", None)


@pytest.mark.parametrize(
    ("same", "rows", "then", "now", "words"),
    [
        (SameBatch.ROWS, 3, HERE, HERE, "other rows of the same input each time, or was changed"),
        (SameBatch.ROWS, 3, HERE, THERE, "were here and are there.*fencepost spark repair"),
        (SameBatch.COUNT, 3, HERE, THERE, None),
        (SameBatch.COUNT, 4, HERE, HERE, "other rows of the same input each time, or was changed"),
        (SameBatch.OFFSETS, 4, HERE, HERE, None),
        (SameBatch.OFFSETS, 3, HERE, THERE, "were here and are there"),
        (SameBatch.OFFSETS, 3, None, None, "Either the checkpoint"),
        (SameBatch.OFFSETS, 3, HERE, None, "Either the checkpoint"),
        (SameBatch.NUMBER, 4, HERE, THERE, None),
    ],
)
def test_what_is_trusted_can_be_chosen(
    same: SameBatch, rows: int, then: SourceOffsets | None, now: SourceOffsets | None, words: str | None
) -> None:
    decision = Decision(SINK, "q", 7, (), CAME, then)
    steps = plan.commit_batch(SINK, 7, [skipped(rows, 1)], same)
    asks = words is not None or same is SameBatch.OFFSETS
    answers: list[Any] = [(Decision(SINK, "p", 7, ()), decision), now] if asks else []
    if words is None:
        asked, done = play(steps, answers)
        assert done is False
        assert asked == ([plan_steps.ReadDecisions(SINK), plan_steps.SaveOffsets("q", 7)] if asks else [])
    else:
        with pytest.raises(BatchChangedError, match=words) as raised:
            play(steps, answers)
        assert (raised.value.decided_offsets, raised.value.came_offsets) == (then, now)


@pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)
def test_a_task_takes_an_id_begins_and_writes(abilities: BrokerAbilities) -> None:
    opened = plan_steps.OpenedSink(SINK, abilities, CLAIM, ())
    asked, message = play(plan.write_task(opened, "q", 3), [True, task(9), Pair(5, 0), CAME])
    assert asked == [
        plan_steps.HasRows(),
        plan_steps.AcquireTaskId(opened),
        plan_steps.BeginTask(task(9), plan_steps.ClaimedBatch(SINK, CLAIM, "q", 3), two_phase=abilities == TWO_PHASE),
        plan_steps.WriteRows(task(9), Pair(5, 0), verified=abilities == VERSION_0),
    ]
    assert message == plan_steps.PreparedTask(abilities, CLAIM, "q", 3, task(9), Pair(5, 0), CAME)


def test_a_downgraded_broker_is_named() -> None:
    steps = plan.write_task(plan_steps.OpenedSink(SINK, VERSION_0, CLAIM, ()), "q", 3)
    for answer in (None, True, task(9), Pair(5, 0)):
        steps.send(answer)
    assert steps.throw(UnsupportedVersionError("b1 is old")) == plan_steps.AbortTask(task(9), Pair(5, 0))
    with pytest.raises(GuaranteeUnavailableError, match=r"sink 's' can no longer write exactly once.*b1 is old"):
        steps.send(None)


def test_a_task_that_fails_ends_its_own_transaction() -> None:
    opened = plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, ())
    steps = plan.write_task(opened, "q", 3)
    for answer in (None, True, task(9)):
        steps.send(answer)
    assert steps.send(Pair(5, 0)) == plan_steps.WriteRows(task(9), Pair(5, 0))
    assert steps.throw(ZeroDivisionError("a row")) == plan_steps.AbortTask(task(9), Pair(5, 0))
    with pytest.raises(ZeroDivisionError, match="a row"):
        steps.send(KafkaTimeoutError("no broker"))  # what hinders that does not hide why the task failed


def test_a_lost_begin_is_never_repeated_with_the_same_id() -> None:
    opened = plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, ())
    asked, message = play(plan.write_task(opened, "q", 3), [True, task(1), None, task(2), Pair(5, 0), CAME])
    assert [step.transactional_id for step in asked if isinstance(step, plan_steps.BeginTask)] == [task(1), task(2)]
    assert message.transactional_id == task(2)
    with pytest.raises(KafkaTimeoutError):
        play(plan.write_task(opened, "q", 3), [True, *(answer for n in range(5) for answer in (task(n), None))])


def fine(*numbers: int) -> tuple[plan_steps.DescribedWinner, ...]:
    return tuple(plan_steps.DescribedWinner(Pair(100 + n, 0), "Ongoing", 10, None, is_late=False) for n in numbers)


@pytest.mark.parametrize("abilities", [TWO_PHASE, ONE_PHASE])
def test_commit_looks_then_decides_then_completes_then_ends_what_is_left(abilities: BrokerAbilities) -> None:
    messages: list[plan_steps.TaskResult] = [
        prepared(1, abilities=abilities),
        plan_steps.EmptyTask("q", 7),
        prepared(2, abilities=abilities),
    ]
    stray = plan_steps.SinkTransaction(task(3), Pair(103, 0), "Ongoing")
    listed = (plan_steps.SinkTransaction(task(1), Pair(101, 1), "CompleteCommit"), stray)
    answers = [HERE, fine(1, 2), 0, (0, 0), listed, 48, (0,)]
    asked, done = play(plan.commit_batch(SINK, 7, messages), answers)
    winners = (Winner(task(1), Pair(101, 0)), Winner(task(2), Pair(102, 0)))
    assert asked == [
        plan_steps.SaveOffsets("q", 7),
        plan_steps.DescribeWinners(SINK, (task(1), task(2))),
        plan_steps.WriteDecision(CLAIM, Decision(SINK, "q", 7, winners, Content(3, 21), HERE)),
        commits(1, 2),
        plan_steps.ListTransactions(SINK),
        plan_steps.VerifyClaim(SINK, CLAIM),
        plan_steps.EndTransactions((EndTxn(task(3), Pair(103, 0), False),)),
    ]
    assert done is True


def test_where_brokers_can_winners_are_kept_and_decided_with_the_pairs_that_end_them() -> None:
    messages = [prepared(1, abilities=KEEPING)]
    asked, done = play(plan.commit_batch(SINK, 7, messages), [None, (Pair(101, 1),), 0, (0,), ()])
    winners = (Winner(task(1), Pair(101, 1)),)
    assert asked == [
        plan_steps.SaveOffsets("q", 7),
        plan_steps.KeepWinners((Winner(task(1), Pair(101, 0)),)),
        plan_steps.WriteDecision(CLAIM, Decision(SINK, "q", 7, winners, Content(1, 7))),
        plan_steps.EndTransactions((EndTxn(task(1), Pair(101, 1), True),)),
        plan_steps.ListTransactions(SINK),
    ]
    assert done is True


@pytest.mark.parametrize("owner", [90, 0])
def test_strays_are_left_to_a_newer_run(owner: int) -> None:
    stray = plan_steps.SinkTransaction(task(3), Pair(103, 0), "Ongoing")
    asked, done = play(plan.commit_batch(SINK, 7, [prepared(1)]), [None, fine(1), 0, (0,), (stray,), owner])
    assert asked[-1] == plan_steps.VerifyClaim(SINK, CLAIM)
    assert done is True


GONE = [
    plan_steps.DescribedWinner(Pair(102, 1), "CompleteAbort", None, 20_000, is_late=False),
    plan_steps.DescribedWinner(Pair(102, 0), "Ongoing", 19_000, 20_000, is_late=True),
    plan_steps.DescribedWinner(Pair(102, 1), "Ongoing", 19_000, None, is_late=False),
]


@pytest.mark.parametrize("gone", GONE)
def test_what_is_lost_or_about_to_be_is_never_decided(gone: plan_steps.DescribedWinner) -> None:
    steps = plan.commit_batch(SINK, 7, [prepared(1), prepared(2)])
    for answer in (None, None):
        steps.send(answer)
    assert steps.send((*fine(1), gone)) == plan_steps.VerifyClaim(SINK, CLAIM)
    aborts = (EndTxn(task(1), Pair(101, 0), False), EndTxn(task(2), Pair(102, 0), False))
    assert steps.send(0) == plan_steps.EndTransactions(aborts)
    words = r"batch 7 of query q was not decided.*1 of 2 transactions has.*kafka\.transaction\.timeout\.ms"
    with pytest.raises(BatchTimedOutError, match=words):
        steps.send((0, 0))
    with pytest.raises(SupersededError):
        play(plan.commit_batch(SINK, 7, [prepared(1), prepared(2)]), [None, (*fine(1), gone), 90])


def test_what_cannot_be_kept_is_never_decided() -> None:
    messages = [prepared(1, abilities=KEEPING), prepared(2, abilities=KEEPING)]
    steps = plan.commit_batch(SINK, 7, messages)
    for answer in (None, None, (Pair(101, 1), None), (*fine(1), GONE[0])):
        steps.send(answer)
    # The first was kept: another pair ends it now.
    assert steps.send(0) == plan_steps.EndTransactions(
        (EndTxn(task(1), Pair(101, 1), False), EndTxn(task(2), Pair(102, 0), False))
    )
    with pytest.raises(BatchTimedOutError, match=r"CompleteAbort, transaction\.timeout\.ms is 20000"):
        steps.send((0, 0))
    # A keep of a transaction that the timeout has ended leaves its id empty.
    assert str(dataclasses.replace(GONE[0], state="Empty")) == "aborted before, transaction.timeout.ms is 20000"


def test_a_decision_settles_what_other_queries_have_decided() -> None:
    """Their transactions are complete: Open has seen to that. No later Open asks for them again."""
    opened = plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, (), ("gone", "q"))
    _, message = play(plan.write_task(opened, "q", 7), [True, task(1), Pair(101, 0), Content(1, 7)])
    gone = Decision(SINK, "gone", 99, (Winner(task(8), Pair(108, 0)),), CAME, HERE)
    before = Decision(SINK, "q", 6, (Winner(task(9), Pair(109, 0)),))
    settled = Decision(SINK, "settled", 4, (), CAME)
    asked, _ = play(plan.commit_batch(SINK, 7, [message]), [None, fine(1), (gone, before, settled), 0, (0,), ()])
    decision = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 0)),), Content(1, 7))
    assert asked[2:4] == [
        plan_steps.ReadDecisions(SINK),
        plan_steps.WriteDecision(CLAIM, decision, (Decision(SINK, "gone", 99, (), CAME, HERE),)),
    ]
    for queries_with_winners in ((), ("q",)):  # the ordinary case costs nothing
        opened = plan_steps.OpenedSink(SINK, TWO_PHASE, CLAIM, (), queries_with_winners)
        _, message = play(plan.write_task(opened, "q", 7), [True, task(1), Pair(101, 0), Content(1, 7)])
        asked, _ = play(plan.commit_batch(SINK, 7, [message]), [None, fine(1), 0, (0,), ()])
        assert plan_steps.ReadDecisions(SINK) not in asked


def test_nothing_to_commit_asks_for_nothing() -> None:
    assert play(plan.commit_batch(SINK, 7, [plan_steps.EmptyTask("q", 7)]), []) == ([], False)


@pytest.mark.parametrize(
    ("code", "error"),
    [(None, DecisionUnknownError), (90, SupersededError), (47, SupersededError), (48, DecisionRefusedError)],
)
def test_only_zero_means_decided(code: int | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        play(plan.commit_batch(SINK, 7, [prepared(1)]), [None, fine(1), code])


@pytest.mark.parametrize(
    "messages",
    [
        [prepared(1), None],
        [prepared(1), skipped(1, 1)],
        [prepared(1), prepared(2, claim=Pair(1, 5))],
        [prepared(1), prepared(2, query="r")],
        [prepared(1, batch_id=6)],
        [plan_steps.EmptyTask("q", 6)],
    ],
)
def test_messages_that_cannot_be_one_batch_decide_nothing(messages: list[plan_steps.TaskResult | None]) -> None:
    with pytest.raises(SinkContradictionError):
        play(plan.commit_batch(SINK, 7, messages), [])


def test_abort_lists_and_asks_who_owns_the_sink_first() -> None:
    listed = (
        plan_steps.SinkTransaction(task(1), Pair(101, 1), "Ongoing"),
        plan_steps.SinkTransaction(task(4), Pair(104, 0), "Ongoing"),
    )
    aborts = plan_steps.EndTransactions((EndTxn(task(1), Pair(101, 1), False), EndTxn(task(4), Pair(104, 0), False)))
    begins: list[plan_steps.Step] = [plan_steps.ListTransactions(SINK), plan_steps.VerifyClaim(SINK, CLAIM)]
    messages = [None, prepared(1)]
    done = play(plan.abort_batch(SINK, messages), [listed, 0, (0, 48)])
    assert done == ([*begins, aborts], AbortOutcome.ABORTED)
    # Decided: by the pairs of the decision, which a keep may have moved on from those of the messages.
    decided = Decision(SINK, "q", 7, (Winner(task(1), Pair(101, 1)),))
    other = Decision(SINK, "p", 9, (Winner(task(8), Pair(108, 1)),))
    commit = plan_steps.EndTransactions((EndTxn(task(1), Pair(101, 1), True),))
    done = play(plan.abort_batch(SINK, messages), [listed, 48, (other, decided), (0,)])
    assert done == ([*begins, plan_steps.ReadDecisions(SINK), commit], AbortOutcome.COMMITTED)
    assert play(plan.abort_batch(SINK, messages), [listed, 90]) == (begins, AbortOutcome.LEFT)
    assert play(plan.abort_batch(SINK, messages), [listed, 49]) == (begins, AbortOutcome.LEFT)
    assert play(plan.abort_batch(SINK, [None, plan_steps.EmptyTask("q", 7)]), []) == ([], AbortOutcome.NOTHING)


BEFORE, NOW = (
    (plan_steps.SinkTransaction(task(2), Pair(102, 3), "Ongoing"),),
    (plan_steps.SinkTransaction(task(2), Pair(102, 4), "Ongoing"),),
)
ABORTS_BEFORE = plan_steps.EndTransactions((EndTxn(task(2), Pair(102, 3), False),))
ABORTS_NOW = plan_steps.EndTransactions((EndTxn(task(2), Pair(102, 4), False),))
LISTS, ASKS = plan_steps.ListTransactions(SINK), plan_steps.VerifyClaim(SINK, CLAIM)


def test_what_moves_on_while_it_is_aborted_is_aborted_if_it_is_no_newer_run_s() -> None:
    """A zombie's keep, or a newer run that uses the id again: it is listed, and only then asked whose the sink is."""
    newer = Pair(1, 6)
    asked, opened = play(plan.open_sink(SINK, KEEPING), [BEFORE, CLAIM, (), (90,), 0, NOW, newer, (), (0,)])
    assert asked[3:6] == [ABORTS_BEFORE, ASKS, LISTS]
    assert asked[-1] == ABORTS_NOW
    assert opened.claim == newer
    with pytest.raises(SupersededError):
        play(plan.open_sink(SINK, KEEPING), [BEFORE, CLAIM, (), (90,), 90])

    asked, done = play(
        plan.commit_batch(SINK, 7, [prepared(1)]), [None, fine(1), 0, (0,), BEFORE, 48, (90,), NOW, 48, (0,)]
    )
    assert (asked[-6:], done) == ([LISTS, ASKS, ABORTS_BEFORE, LISTS, ASKS, ABORTS_NOW], True)
    asked, done = play(plan.commit_batch(SINK, 7, [prepared(1)]), [None, fine(1), 0, (0,), BEFORE, 48, (90,), NOW, 90])
    assert (asked[-1], done) == (ASKS, True)

    asked, outcome = play(plan.abort_batch(SINK, [prepared(1)]), [BEFORE, 0, (90,), NOW, 0, (0,)])
    assert (asked[-1], outcome) == (ABORTS_NOW, AbortOutcome.ABORTED)
    asked, outcome = play(plan.abort_batch(SINK, [prepared(1)]), [BEFORE, 0, (90,), NOW, 90])
    assert (asked[-1], outcome) == (ASKS, AbortOutcome.LEFT)


def versions(
    init_producer_id: int, end_txn: int, transaction_version: int, add_partitions: int = 5, describe: int = 0
) -> plan_steps.BrokerVersions:
    return plan_steps.BrokerVersions(init_producer_id, end_txn, add_partitions, describe, transaction_version)


@pytest.mark.parametrize(
    ("offer", "answers", "abilities"),
    [
        # Apache Kafka 4.3.1 answers a keep with 35, and a two-phase transaction with 0 or 53. Our broker keeps.
        (versions(6, 5, 2), [0], KEEPING),
        (versions(6, 5, 2), [35, 0], TWO_PHASE),
        (versions(6, 5, 2), [53, 53], ONE_PHASE),
        (versions(5, 5, 1), [], ONE_PHASE),
        (versions(6, 5, 0), [], VERSION_0),
        (versions(4, 4, 0, 4), [], VERSION_0),  # Apache Kafka 3.6
    ],
)
def test_the_guarantee_follows_from_the_abilities(
    offer: plan_steps.BrokerVersions, answers: list[int], abilities: BrokerAbilities
) -> None:
    for required in (None, Guarantee.TIMED):
        assert play(plan_abilities.ask_abilities(SINK, required), [offer, *answers])[1] == abilities
    durable = plan_abilities.ask_abilities(SINK, Guarantee.DURABLE)
    if abilities.two_phase:
        assert play(durable, [offer, *answers])[1] == abilities
        assert abilities.guarantee is Guarantee.DURABLE
        return
    assert abilities.guarantee is Guarantee.TIMED
    with pytest.raises(GuaranteeUnavailableError, match=r"sink 's': require\.guarantee=durable needs two-phase"):
        play(durable, [offer, *answers])


@pytest.mark.parametrize(
    ("offer", "reasons"),
    [
        (versions(6, 5, 0, 3), ["AddPartitionsToTxn v3"]),
        (versions(4, 3, 0, 3), ["AddPartitionsToTxn v3"]),  # Apache Kafka 3.3.2
        (versions(4, 3, 0, 3, -1), ["AddPartitionsToTxn v3", "KIP-664"]),  # Apache Kafka 2.8.2
        (versions(1, 1, 0, 1, -1), ["AddPartitionsToTxn v1", "KIP-664", "InitProducerId v1"]),  # Apache Kafka 2.4
    ],
)
def test_brokers_without_the_abilities_are_refused_with_the_reasons_and_the_way_out(
    offer: plan_steps.BrokerVersions, reasons: list[str]
) -> None:
    with pytest.raises(GuaranteeUnavailableError, match="exactly-once is not possible") as refused:
        play(plan_abilities.ask_abilities(SINK, None), [offer])
    for reason in (*reasons, "Kafka 3.6 or newer", "delivery=at-least-once"):
        assert reason in str(refused.value)


def test_brokers_that_were_downgraded_below_kafka_3_6_stop_a_running_query() -> None:
    assert play(plan_abilities.check_abilities(SINK, ONE_PHASE), []) == ([], None)
    assert play(plan_abilities.check_abilities(SINK, VERSION_0), [versions(4, 4, 0, 4)])[1] is None
    with pytest.raises(GuaranteeUnavailableError, match=r"can no longer write exactly once.*AddPartitionsToTxn v3"):
        play(plan_abilities.check_abilities(SINK, VERSION_0), [versions(4, 3, 0, 3)])
