"""Defects of the Spark sink's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fencepost.errors import KafkaTimeoutError
from fencepost.spark.errors import SupersededError
from fencepost.spark.sink import plan, plan_steps, task_ids
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Decision, Winner
from fencepost.spark.sink.steps import StepRunner
from fencepost.spark.sink.task_ids import OwnPool
from fencepost_lab.check import spark_tasks
from fencepost_lab.check.plants.plant import STORM, Patches, plant


@plant("spark", *STORM, "brokers=keeps-prepared")
def commit_worker_claims(patches: Patches) -> None:
    """The commit worker claims the sink, so a zombie worker takes it from the run that has written the batch again."""
    original = plan.commit_batch

    def commit(sink: str, batch_id: int, messages: Sequence[Any]) -> plan.Plan[bool]:
        if any(isinstance(message, plan_steps.PreparedTask) for message in messages):
            claim = yield plan_steps.Claim(sink)
            messages = [_with_claim(message, claim) for message in messages]
        return (yield from original(sink, batch_id, messages))

    patches.setattr(plan, "commit_batch", commit)


def _with_claim(message: Any, claim: Any) -> Any:
    if not isinstance(message, plan_steps.PreparedTask):
        return message
    return replace(message, claim=claim)


@plant("spark", *STORM, "brokers=keeps-prepared")
def decisions_read_before_the_claim(patches: Patches) -> None:
    """Decisions are read before the claim. A decision between the two is missed, and its transactions are aborted."""

    honest = plan.open_sink

    def open_sink(sink: str, abilities: BrokerAbilities) -> plan.Plan[plan_steps.OpenedSink]:
        steps = honest(sink, abilities)
        decisions = yield plan_steps.ReadDecisions(sink)
        observation: Any = None
        while True:
            try:
                step = steps.send(observation)
            except StopIteration as stop:
                opened: plan_steps.OpenedSink = stop.value
                return opened
            observation = decisions if isinstance(step, plan_steps.ReadDecisions) else (yield step)

    patches.setattr(plan, "open_sink", open_sink)


@plant("spark", *STORM, "brokers=two-phase")
def abort_does_not_ask(patches: Patches) -> None:
    """Abort does not read the decisions, although a decision whose answer was lost may have taken effect."""

    def abort(sink: str, messages: Sequence[Any], claim: Any = None) -> plan.Plan[plan_steps.AbortOutcome]:
        prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
        ends = tuple(plan_steps.EndTxn(message.transactional_id, message.pair, commit=False) for message in prepared)
        if ends:
            yield plan_steps.EndTransactions(ends)
        return plan_steps.AbortOutcome.ABORTED

    patches.setattr(plan, "abort_batch", abort)


@plant("spark", *STORM, "brokers=keeps-prepared")
def task_ids_made_of_partitions(patches: Patches) -> None:
    """A task's id is its partition, so a late InitProducerId of an earlier attempt aborts a later one's transaction."""
    patches.setattr(spark_tasks, "unique_bytes", lambda chance, task: task.encode().ljust(16)[:16])


@plant("spark", *STORM, "brokers=keeps-prepared", "inherits=True")
def task_ids_inherited_by_two(patches: Patches) -> None:
    """Two processes inherit the same task id. The later one aborts the other's prepared or decided transaction."""

    def take(self: OwnPool, transactional_id: str, last: plan_steps.ClaimedBatch) -> bool:
        return self._used.get(transactional_id) == last

    patches.setattr(OwnPool, "take", take)


@plant("spark", *STORM, "brokers=one-phase")
def ends_not_waited_for(patches: Patches) -> None:
    """The sink does not wait for the ends.

    The next decision replaces this one, and its open transactions are forgotten.
    """

    async def end_all(self: StepRunner, ends: tuple[plan_steps.EndTxn, ...]) -> tuple[int, ...]:
        for end in ends:
            name, pair = end.transactional_id, end.pair
            try:
                await self._admin.end_transaction(name, pair.producer_id, pair.epoch, end.commit, api_timeout_ms=20)
            except KafkaTimeoutError:
                continue
        return (0,) * len(ends)

    patches.setattr(StepRunner, "_end_all", end_all)


@plant("spark", *STORM, "brokers=keeps-prepared")
def decision_without_fencing(patches: Patches) -> None:
    """The decision claims the sink anew, even if a newer run has taken it over."""
    original = StepRunner.perform

    async def perform(self: StepRunner, step: plan_steps.Step) -> Any:
        if isinstance(step, plan_steps.WriteDecision):
            step = replace(step, claim=await self._claim(step.decision.sink))
        return await original(self, step)

    patches.setattr(StepRunner, "perform", perform)


@plant("spark", *STORM, "brokers=keeps-prepared")
def task_ids_free_at_once(patches: Patches) -> None:
    """A process reuses an id while an earlier use of it may still be completed or aborted."""
    patches.setattr(task_ids, "is_free", lambda last, opened: True)


@plant("spark", *STORM, "brokers=keeps-prepared")
def decision_written_last(patches: Patches) -> None:
    """The decision is written after the ends, so a crash between the ends leaves half a batch."""

    def commit(sink: str, batch_id: int, messages: Sequence[Any]) -> plan.Plan[bool]:
        prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
        if not prepared:
            return False
        yield plan_steps.EndTransactions(
            tuple(plan_steps.EndTxn(message.transactional_id, message.pair, commit=True) for message in prepared)
        )
        winners = tuple(Winner(message.transactional_id, message.pair) for message in prepared)
        decision = Decision(sink, prepared[0].query_id, batch_id, winners)
        code = yield plan_steps.WriteDecision(prepared[0].claim, decision)
        if code != 0:
            raise SupersededError("too late")
        return True

    patches.setattr(plan, "commit_batch", commit)


@plant("spark", *STORM, "brokers=keeps-prepared", "spark.damage_chance=0.5")
def batch_known_by_its_number(patches: Patches) -> None:
    """A batch whose number is already decided is dropped without comparing its contents."""
    honest = plan.commit_batch

    def commit(sink: str, batch_id: int, messages: Sequence[Any]) -> plan.Plan[bool]:
        return honest(sink, batch_id, messages, plan_steps.SameBatch.NUMBER)

    patches.setattr(plan, "commit_batch", commit)


def commits_do_not_look(patches: Patches) -> None:
    """Decide a batch although the brokers have aborted its transactions."""
    honest = plan.commit_batch

    def commit(sink: str, batch_id: int, messages: Sequence[Any]) -> plan.Plan[bool]:
        pairs = {
            message.transactional_id: message.pair
            for message in messages
            if isinstance(message, plan_steps.PreparedTask)
        }
        steps = honest(sink, batch_id, messages)
        observation: Any = None
        while True:
            try:
                step = steps.send(observation)
            except StopIteration as stop:
                done: bool = stop.value
                return done
            if isinstance(step, plan_steps.DescribeWinners):
                ids = step.transactional_ids
                observation = tuple(
                    plan_steps.DescribedWinner(pairs[transactional_id], "Ongoing", None, None, is_late=False)
                    for transactional_id in ids
                )
            else:
                observation = yield step

    patches.setattr(plan, "commit_batch", commit)


@plant("spark", *STORM, "brokers=one-phase")
def loss_not_told(patches: Patches) -> None:
    """A transaction that cannot be committed is reported as committed."""
    commits_do_not_look(patches)

    def commit(ends: tuple[plan_steps.EndTxn, ...]) -> plan.Plan[dict[plan_steps.EndTxn, int]]:
        if ends:
            yield plan_steps.EndTransactions(ends)
        return {}

    patches.setattr(plan, "_commit", commit)
