"""Mistakes that are known, planted in the rules of a world: test_plan_model.py has to find each."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import NO_ROWS, Decision, Pair, Winner
from fencepost.spark.sink.task_ids import OwnPool, TaskIds
from tests.unit.spark.plan_settings import Rules


def claim_before_list(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    rest = plan.open_sink(sink, abilities)
    listing = rest.send(None)
    claim = yield plan_steps.Claim(sink)
    listed = yield listing
    rest.send(listed)  # its Claim step is answered with the early claim
    opened: plan_steps.OpenedSink = yield from continued(rest, claim)
    return opened


def read_before_claim(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    rest = plan.open_sink(sink, abilities)
    listed = yield rest.send(None)
    claiming = rest.send(listed)
    decisions = yield plan_steps.ReadDecisions(sink)
    claim = yield claiming
    rest.send(claim)
    opened: plan_steps.OpenedSink = yield from continued(rest, decisions)
    return opened


def continued(rest: plan.Plan[Any], observation: Any) -> Generator[plan_steps.Step, Any, Any]:
    while True:
        try:
            step = rest.send(observation)
        except StopIteration as stop:
            return stop.value
        observation = yield step


def commit_that_claims(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    claim = yield plan_steps.Claim(sink)
    rest = plan.commit_batch(sink, batch_id, messages)
    try:
        step = rest.send(None)
    except StopIteration as stop:
        return stop.value
    if isinstance(step, plan_steps.WriteDecision):
        step = plan_steps.WriteDecision(claim, step.decision)
    return (yield from continued(rest, (yield step)))


def abort_without_a_claim(sink: str, messages: Any, _: Any) -> plan.Plan[Any]:
    return plan.abort_batch(sink, messages)


def abort_that_reads_the_topic(sink: str, messages: Any, _: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
    if prepared:
        decisions: tuple[Decision, ...] = yield plan_steps.ReadDecisions(sink)
        if not any(decision.batch_id >= prepared[0].batch_id for decision in decisions):
            ends = tuple(
                plan_steps.EndTxn(message.transactional_id, message.pair, commit=False) for message in prepared
            )
            yield plan_steps.EndTransactions(ends)


def abort_that_asks_nobody(sink: str, messages: Any, _: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
    if prepared:
        yield plan_steps.EndTransactions(
            tuple(plan_steps.EndTxn(message.transactional_id, message.pair, False) for message in prepared)
        )


def open_that_finishes_nothing(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    listed = yield plan_steps.ListTransactions(sink)
    claim = yield plan_steps.Claim(sink)
    decisions = yield plan_steps.ReadDecisions(sink)
    named = {winner.transactional_id for decision in decisions for winner in decision.winners}
    ends = [
        plan_steps.EndTxn(listing.transactional_id, listing.pair, False)
        for listing in listed
        if listing.state == "Ongoing"
    ]
    yield plan_steps.EndTransactions(tuple(end for end in ends if end.transactional_id not in named))
    return plan_steps.OpenedSink(
        sink,
        abilities,
        claim,
        tuple(
            plan_steps.DecidedBatch(decision.query_id, decision.batch_id, decision.content) for decision in decisions
        ),
    )


def open_that_aborts_nothing(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    rest = plan.open_sink(sink, abilities)
    rest.send((yield rest.send(None)) and ())
    opened: plan_steps.OpenedSink = yield from continued(rest, (yield plan_steps.Claim(sink)))
    return opened


def write_that_skips_what_is_below(
    opened: plan_steps.OpenedSink, query_id: str, batch_id: int
) -> plan.Plan[plan_steps.TaskResult]:
    last = opened.last(query_id)
    if last is not None and batch_id < last.batch_id:
        content = yield plan_steps.DrainRows()
        return plan_steps.SkippedTask(query_id, batch_id, content, None)
    message: plan_steps.TaskResult = yield from plan.write_task(opened, query_id, batch_id)
    return message


def commit_that_goes_by_the_number(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return plan.commit_batch(sink, batch_id, messages, plan_steps.SameBatch.NUMBER)


def write_that_never_skips(
    opened: plan_steps.OpenedSink, query_id: str, batch_id: int
) -> plan.Plan[plan_steps.TaskResult]:
    return plan.write_task(plan_steps.OpenedSink(opened.sink, opened.abilities, opened.claim, ()), query_id, batch_id)


def commit_that_aborts_when_refused(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
    if not prepared:
        return
    winners = tuple(Winner(message.transactional_id, message.pair) for message in prepared)
    content = sum((message.content for message in prepared), NO_ROWS)
    offsets = yield plan_steps.SaveOffsets(prepared[0].query_id, batch_id)
    decision = Decision(sink, prepared[0].query_id, batch_id, winners, content, offsets)
    code = yield plan_steps.WriteDecision(prepared[0].claim, decision)
    yield plan_steps.EndTransactions(
        tuple(plan_steps.EndTxn(winner.transactional_id, winner.pair, code == 0) for winner in winners)
    )


def answering(steps: plan.Plan[Any], *answers: tuple[type, Callable[[Any], Any]]) -> plan.Plan[Any]:
    """The same plan, in which steps of these types are not carried out but answered."""
    known = dict(answers)
    observation: Any = None
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            return stop.value
        answer = known.get(type(step))
        observation = answer(step) if answer is not None else (yield step)


def commit_that_leaves_strays(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return answering(plan.commit_batch(sink, batch_id, messages), (plan_steps.ListTransactions, lambda _: ()))


def commit_that_ends_all_it_sees(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return answering(plan.commit_batch(sink, batch_id, messages), (plan_steps.VerifyClaim, lambda _: 48))


def commit_that_lists_when_it_knows_that_it_owns(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    steps = plan.commit_batch(sink, batch_id, messages)
    claim = next((message.claim for message in messages if isinstance(message, plan_steps.PreparedTask)), None)
    owner: list[int] = []
    observation: Any = None
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            return stop.value
        if isinstance(step, plan_steps.ListTransactions) and claim is not None:
            owner.append((yield plan_steps.VerifyClaim(sink, claim)))
        observation = owner.pop() if isinstance(step, plan_steps.VerifyClaim) and owner else (yield step)


def commit_that_keeps_nothing(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    def pairs(step: Any) -> Any:
        return tuple(winner.pair for winner in step.winners)

    return answering(plan.commit_batch(sink, batch_id, messages), (plan_steps.KeepWinners, pairs))


def commit_that_does_not_look(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    pairs = {
        message.transactional_id: message.pair for message in messages if isinstance(message, plan_steps.PreparedTask)
    }

    def seen(step: Any) -> Any:
        return tuple(
            plan_steps.DescribedWinner(pairs[transactional_id], "Ongoing", 0, 1, is_late=False)
            for transactional_id in step.transactional_ids
        )

    return answering(plan.commit_batch(sink, batch_id, messages), (plan_steps.DescribeWinners, seen))


def seeing(steps: plan.Plan[Any], then: Callable[[Any, Any], Generator[plan_steps.Step, Any, Any]]) -> plan.Plan[Any]:
    """The same plan; `then` does, after each step, what the mistake does besides, and gives what the plan sees."""
    observation: Any = None
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            return stop.value
        observation = yield from then(step, (yield step))


def ends_again(step: Any, codes: Any, commit: bool) -> Generator[plan_steps.Step, Any, Any]:
    """With whatever pair they have now, and without asking whose the sink is."""
    if not isinstance(step, plan_steps.EndTransactions):
        return codes
    moved = [end.transactional_id for end, code in zip(step.ends, codes, strict=True) if code in (47, 90)]
    if not moved or step.ends[0].commit is not commit:
        return codes
    shown = yield plan_steps.DescribeTasks(tuple(moved))
    yield plan_steps.EndTransactions(
        tuple(
            plan_steps.EndTxn(transaction.transactional_id, transaction.pair, commit)
            for transaction in shown
            if transaction.state == "Ongoing"
        )
    )
    return tuple(0 if code in (47, 90) else code for code in codes)


def commit_that_chases_losers(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return seeing(plan.commit_batch(sink, batch_id, messages), lambda step, seen: ends_again(step, seen, commit=False))


def abort_that_chases(sink: str, messages: Any, claim: Any) -> plan.Plan[Any]:
    return seeing(plan.abort_batch(sink, messages, claim), lambda step, seen: ends_again(step, seen, commit=False))


def open_that_chases_losers(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    return seeing(plan.open_sink(sink, abilities), lambda step, seen: ends_again(step, seen, commit=False))


def open_that_chases_winners(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    return seeing(plan.open_sink(sink, abilities), lambda step, seen: ends_again(step, seen, commit=True))


def commit_that_chases_winners(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return seeing(plan.commit_batch(sink, batch_id, messages), lambda step, seen: ends_again(step, seen, commit=True))


def open_that_asks_before_it_looks(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    steps = plan.open_sink(sink, abilities)
    claim: Any = None
    owner: list[int] = []
    observation: Any = None
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(step, plan_steps.DescribeTasks):
            owner.append((yield plan_steps.VerifyClaim(sink, claim)))
        observation = owner.pop() if isinstance(step, plan_steps.VerifyClaim) and owner else (yield step)
        claim = observation if isinstance(step, plan_steps.Claim) else claim


def open_that_takes_a_keep_for_a_loss(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    return answering(plan.open_sink(sink, abilities), (plan_steps.DescribeTasks, lambda _: ()))


def open_that_completes_one_query(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    decisions: list[Decision] = []
    steps = plan.open_sink(sink, abilities)
    observation: Any = None
    while True:
        try:
            step = steps.send(observation)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(step, plan_steps.EndTransactions) and step.ends and step.ends[0].commit:
            others = {
                winner.transactional_id
                for decision in decisions
                if decision.query_id != "q"
                for winner in decision.winners
            }
            mine = tuple(end for end in step.ends if end.transactional_id not in others)
            codes = iter((yield plan_steps.EndTransactions(mine)))
            observation = tuple(0 if end.transactional_id in others else next(codes) for end in step.ends)
            continue
        observation = yield step
        if isinstance(step, plan_steps.ReadDecisions):
            decisions = list(observation)


def ask_by_the_end_alone(sink: str, claim: Pair) -> plan.Plan[int]:
    (code,) = yield plan_steps.EndTransactions((plan_steps.EndTxn(names.sink_id(sink), claim, commit=False),))
    return int(code)


def ask_without_the_decisions(sink: str, claim: Pair) -> plan.Plan[int]:
    (code,) = yield plan_steps.EndTransactions((plan_steps.EndTxn(names.sink_id(sink), claim, commit=False),))
    refused: int = yield plan_steps.BumpEpoch(sink, claim)
    return refused or int(code)


def unreported(steps: plan.Plan[Any]) -> plan.Plan[Any]:
    """The same plan: a winner whose id has expired counts as committed."""
    return answering(steps, (plan_steps.ReportUnknown, lambda _: None))


def open_that_takes_expired_for_committed(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
    return unreported(plan.open_sink(sink, abilities))


def commit_that_takes_expired_for_committed(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return unreported(plan.commit_batch(sink, batch_id, messages))


def abort_that_takes_expired_for_committed(sink: str, messages: Any, claim: Any) -> plan.Plan[Any]:
    return unreported(plan.abort_batch(sink, messages, claim))


def commit_that_forgets_nobody(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    return plan.commit_batch(
        sink,
        batch_id,
        [
            replace(message, others_named=False) if isinstance(message, plan_steps.PreparedTask) else message
            for message in messages
        ],
    )


class Careless(TaskIds):
    """Task ids of which every idle one is free, unless a subclass decides otherwise."""

    def is_free(self, last: plan_steps.ClaimedBatch, opened: plan_steps.OpenedSink) -> bool:
        return True

    def take(self, opened: plan_steps.OpenedSink) -> str:
        for transactional_id, last in self.pool.idle(opened):
            if self.is_free(last, opened) and self.pool.take(transactional_id, last):
                return transactional_id
        return names.task_id(opened.sink, self._unique())


class AfterTheOpenOfTheNext(Careless):
    """Free when the decision of its own batch was read: it is the last one still."""

    def is_free(self, last: plan_steps.ClaimedBatch, opened: plan_steps.OpenedSink) -> bool:
        decided = opened.last(last.query_id)
        return decided is not None and decided.batch_id >= last.batch_id


class UnlessNamed(Careless):
    """Free when no decision that came with the task names it: the first of the two rules is missing."""

    def is_free(self, last: plan_steps.ClaimedBatch, opened: plan_steps.OpenedSink) -> bool:
        return [batch.batch_id for batch in opened.decided if batch.query_id == last.query_id] != [last.batch_id]


class InAnotherBatch(Careless):
    def is_free(self, last: plan_steps.ClaimedBatch, opened: plan_steps.OpenedSink) -> bool:
        decided = opened.last("q")
        before = -1 if decided is None else decided.batch_id
        return last.batch_id != before + 1 and last.claim != opened.claim


class Unanswered(TaskIds):
    """An id is in the pool again also when its InitProducerId was not answered, or its process was killed."""

    def take(self, opened: plan_steps.OpenedSink) -> str:
        taken = super().take(opened)
        decided = opened.last("q")
        following = 0 if decided is None else decided.batch_id + 1
        self.begun(taken, plan_steps.ClaimedBatch(opened.sink, opened.claim, "q", following))
        return taken


class Lent(OwnPool):
    """Pool that leaves a taken id available for others until it comes back."""

    def take(self, transactional_id: str, last: plan_steps.ClaimedBatch) -> bool:
        return self._used.get(transactional_id) == last


class TakenUnseen(OwnPool):
    """An id is taken by its name, whatever it has been used for since it was seen."""

    def take(self, transactional_id: str, last: plan_steps.ClaimedBatch) -> bool:
        return self._used.pop(transactional_id, None) is not None


MISTAKES = {
    "claims before it lists": Rules(open_sink=claim_before_list),
    "reads before it claims": Rules(open_sink=read_before_claim),
    "the commit side claims": Rules(commit_batch=commit_that_claims),
    "abort reads the topic": Rules(abort_batch=abort_that_reads_the_topic),
    "abort needs messages": Rules(abort_batch=abort_without_a_claim),
    "abort asks nobody": Rules(abort_batch=abort_that_asks_nobody),
    "names are partition and attempt": Rules(names_by_attempt=True),
    "open finishes nothing": Rules(open_sink=open_that_finishes_nothing),
    "open aborts nothing": Rules(open_sink=open_that_aborts_nothing),
    "commit leaves strays": Rules(commit_batch=commit_that_leaves_strays),
    "commit ends a newer run's tasks": Rules(commit_batch=commit_that_ends_all_it_sees),
    "commit asks before it lists": Rules(commit_batch=commit_that_lists_when_it_knows_that_it_owns),
    "winners are not kept": Rules(commit_batch=commit_that_keeps_nothing),
    "commit decides what is lost": Rules(commit_batch=commit_that_does_not_look),
    "a lower batch is skipped": Rules(write_task=write_that_skips_what_is_below),
    "a batch is its number": Rules(commit_batch=commit_that_goes_by_the_number),
    "decided batches are written again": Rules(write_task=write_that_never_skips),
    "a contradiction is not reported": Rules(commit_batch=commit_that_aborts_when_refused),
    "losers are chased": Rules(
        open_sink=open_that_chases_losers, commit_batch=commit_that_chases_losers, abort_batch=abort_that_chases
    ),
    "commit chases winners": Rules(commit_batch=commit_that_chases_winners),
    "open chases winners": Rules(open_sink=open_that_chases_winners),
    "open asks before it looks": Rules(open_sink=open_that_asks_before_it_looks),
    "a keep is taken for a loss": Rules(open_sink=open_that_takes_a_keep_for_a_loss),
    "other queries are not completed": Rules(open_sink=open_that_completes_one_query),
    "other queries are never forgotten": Rules(commit_batch=commit_that_forgets_nobody),
    "any id is free": Rules(ids=Careless),
    "an id is free as soon as it is decided": Rules(ids=AfterTheOpenOfTheNext),
    "an id is free unless it is named": Rules(ids=UnlessNamed),
    "an id is free in another batch": Rules(ids=InAnotherBatch),
    "an unanswered id is free": Rules(ids=Unanswered),
    "any id is inherited": Rules(ids=Careless),
    "an id is inherited as soon as it is decided": Rules(ids=AfterTheOpenOfTheNext),
    "an id is inherited unless it is named": Rules(ids=UnlessNamed),
    "an unanswered id is inherited": Rules(ids=Unanswered),
    "an id is inherited by two": Rules(pool=Lent),
    "an id is inherited unseen": Rules(pool=TakenUnseen),
    "v1: the end tells whose it is": Rules(verify_claim=ask_by_the_end_alone),
    "v1: the end tells what is decided": Rules(verify_claim=ask_without_the_decisions),
    "v1: a roll: any broker is sent to": Rules(sends_to_all=True),
    "an expired winner counts as committed": Rules(
        open_sink=open_that_takes_expired_for_committed,
        commit_batch=commit_that_takes_expired_for_committed,
        abort_batch=abort_that_takes_expired_for_committed,
    ),
}
