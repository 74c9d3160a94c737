"""plan.py in the small world: kills anywhere, zombies, lost replies, late requests, speculation, two live drivers.

FENCEPOST_MODEL_EFFORT (default 1) multiplies the random walks; from 2 on the search allows one more disturbance.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from fencepost.spark import plan
from fencepost.spark.decision import Decision, Winner
from fencepost.spark.plan import Level
from tests.unit.spark.plan_world import SINK, Rules, Settings, World, walk

EFFORT = int(os.environ.get("FENCEPOST_MODEL_EFFORT", "1"))
WALKS = 1500 * EFFORT


def wild(seed: int, calm: float) -> Callable[[int], int]:
    """Takes the undisturbed option with probability `calm`, any other otherwise."""
    source = random.Random(seed)
    return lambda options: 0 if source.random() < calm else source.randrange(options)


def settings(level: Level, seed: int = 0) -> Settings:
    timed_out_code = 120 if seed % 4 > 1 else 48
    faults, partitions = 2 + seed % 6, 1 + seed % 2
    return Settings(level, 2, partitions, faults, level is Level.RESUME, timed_out_code)


def told(problem: str | None, world: World) -> str:
    return f"{problem}:\n" + "\n".join(world.trace)


@pytest.mark.parametrize("level", list(Level))
def test_random_walks_end_exactly_once(level: Level) -> None:
    disturbed = 0
    for seed in range(WALKS):
        problem, world = walk(settings(level, seed), Rules(), wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        assert problem is None, told(problem, world)
        disturbed += len(world.runs) > 2
    assert disturbed > WALKS // 4  # the walks were not all peaceful


def searched(setting: Settings, rules: Rules, disturbances: int) -> Iterator[tuple[str | None, World]]:
    """Every life with at most `disturbances` departures from the undisturbed way, at every place, in every manner."""
    stack: list[dict[int, int]] = [{}]
    while stack:
        departures = stack.pop()
        widths: list[int] = []

        def choose(options: int, departures: dict[int, int] = departures, widths: list[int] = widths) -> int:
            widths.append(options)
            return departures.get(len(widths) - 1, 0)

        yield walk(setting, rules, choose)
        if len(departures) < disturbances:
            first = max(departures, default=-1) + 1
            for place in range(first, len(widths)):
                stack.extend({**departures, place: option} for option in range(1, widths[place]))


@pytest.mark.parametrize("level", list(Level))
def test_every_life_with_few_disturbances_ends_exactly_once(level: Level) -> None:
    small = Settings(level=level, batches=1, partitions=1, faults=3, may_time_out=level is Level.RESUME)
    wide = Settings(level=level, batches=2, partitions=2, faults=3, may_time_out=level is Level.RESUME)
    lives = 0
    for setting, disturbances in ((small, 2 + (EFFORT > 1)), (wide, 1 + (EFFORT > 1))):
        for problem, world in searched(setting, Rules(), disturbances):
            assert problem is None, told(problem, world)
            lives += 1
    assert lives > 2000


def test_a_timed_out_decided_transaction_is_loud_and_never_silent() -> None:
    lost = sum(
        walk(settings(Level.RESUME, seed), Rules(), wild(seed, 0.5))[1].lost_reports > 0 for seed in range(WALKS)
    )
    assert lost > 0  # verdict() has checked that the other walks lost no row


# --- the known mistakes, planted ---


def claim_before_list(sink: str, level: Level) -> plan.Plan[plan.Opened]:
    rest = plan.open_sink(sink, level)
    listing = rest.send(None)
    claim = yield plan.Claim(sink)
    listed = yield listing
    rest.send(listed)  # its Claim step is answered with the early claim
    opened: plan.Opened = yield from continued(rest, claim)
    return opened


def read_before_claim(sink: str, level: Level) -> plan.Plan[plan.Opened]:
    rest = plan.open_sink(sink, level)
    listed = yield rest.send(None)
    claiming = rest.send(listed)
    decisions = yield plan.ReadDecisions(sink)
    claim = yield claiming
    rest.send(claim)
    opened: plan.Opened = yield from continued(rest, decisions)
    return opened


def continued(rest: plan.Plan[Any], observation: Any) -> Generator[plan.Step, Any, Any]:
    while True:
        try:
            step = rest.send(observation)
        except StopIteration as stop:
            return stop.value
        observation = yield step


def commit_that_claims(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    claim = yield plan.Claim(sink)
    rest = plan.commit_batch(sink, batch_id, messages)
    try:
        step = rest.send(None)
    except StopIteration as stop:
        return stop.value
    if isinstance(step, plan.WriteDecision):
        step = plan.WriteDecision(claim, step.decision)
    return (yield from continued(rest, (yield step)))


def abort_that_reads_the_topic(sink: str, messages: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan.Prepared)]
    if prepared:
        decisions: tuple[Decision, ...] = yield plan.ReadDecisions(sink)
        if not any(one.batch_id >= prepared[0].batch_id for one in decisions):
            ends = tuple(plan.End(one.transactional_id, one.pair, commit=False) for one in prepared)
            yield plan.EndTransactions(ends)


def abort_that_asks_nobody(sink: str, messages: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan.Prepared)]
    if prepared:
        yield plan.EndTransactions(tuple(plan.End(one.transactional_id, one.pair, False) for one in prepared))


def open_that_finishes_nothing(sink: str, level: Level) -> plan.Plan[plan.Opened]:
    listed = yield plan.ListTransactions(sink)
    claim = yield plan.Claim(sink)
    decisions = yield plan.ReadDecisions(sink)
    named = {winner.transactional_id for decision in decisions for winner in decision.winners}
    ends = [plan.End(one.transactional_id, one.pair, False) for one in listed if one.state == "Ongoing"]
    yield plan.EndTransactions(tuple(end for end in ends if end.transactional_id not in named))
    return plan.Opened(sink, level, claim, tuple((one.query_id, one.batch_id) for one in decisions))


def open_that_aborts_nothing(sink: str, level: Level) -> plan.Plan[plan.Opened]:
    rest = plan.open_sink(sink, level)
    rest.send((yield rest.send(None)) and ())
    opened: plan.Opened = yield from continued(rest, (yield plan.Claim(sink)))
    return opened


def write_that_never_skips(opened: plan.Opened, query_id: str, batch_id: int) -> plan.Plan[plan.Message]:
    return plan.write_task(plan.Opened(opened.sink, opened.level, opened.claim, ()), query_id, batch_id)


def commit_that_aborts_when_refused(sink: str, batch_id: int, messages: Any) -> plan.Plan[Any]:
    prepared = [message for message in messages if isinstance(message, plan.Prepared)]
    if not prepared:
        return
    winners = tuple(Winner(one.transactional_id, one.pair) for one in prepared)
    decision = Decision(sink, prepared[0].query_id, batch_id, winners)
    code = yield plan.WriteDecision(prepared[0].claim, decision)
    yield plan.EndTransactions(tuple(plan.End(one.transactional_id, one.pair, code == 0) for one in winners))


MISTAKES = {
    "claims before it lists": Rules(open_sink=claim_before_list),
    "reads before it claims": Rules(open_sink=read_before_claim),
    "the commit side claims": Rules(commit_batch=commit_that_claims),
    "abort reads the topic": Rules(abort_batch=abort_that_reads_the_topic),
    "abort asks nobody": Rules(abort_batch=abort_that_asks_nobody),
    "names are partition and attempt": Rules(names_by_attempt=True),
    "open finishes nothing": Rules(open_sink=open_that_finishes_nothing),
    "open aborts nothing": Rules(open_sink=open_that_aborts_nothing),
    "decided batches are written again": Rules(write_task=write_that_never_skips),
    "a contradiction is not reported": Rules(commit_batch=commit_that_aborts_when_refused),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    level = Level.RESUME if mistake == "a contradiction is not reported" else Level.TWO_PHASE
    for seed in range(20_000):
        problem, _ = walk(settings(level, seed), MISTAKES[mistake], wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        if problem is not None:
            return
    pytest.fail(f"{mistake}: 20000 walks noticed nothing")


def test_the_world_itself_is_peaceful_without_disturbances() -> None:
    problem, world = walk(Settings(faults=0), Rules(), lambda options: 0)
    assert problem is None
    assert [row for _, row in world.broker.committed] == [(b, p) for b in range(3) for p in range(2)]
    assert len(world.runs) == 2 and all(decision.sink == SINK for decision in world.broker.decisions)
