"""plan.py in the small world: kills anywhere, zombies, lost replies, late requests, speculation, two live drivers.

FENCEPOST_MODEL_EFFORT (default 1) multiplies the random walks; from 2 on the search allows one more disturbance.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fencepost.spark.sink.plan_steps import Level
from tests.unit.spark.plan_coordinator import SINK, S
from tests.unit.spark.plan_ends import Ends
from tests.unit.spark.plan_mistakes import MISTAKES
from tests.unit.spark.plan_settings import LOSING, Rules, Settings
from tests.unit.spark.plan_world import World, walk

EFFORT = int(os.environ.get("FENCEPOST_MODEL_EFFORT", "1"))
WALKS = 1500 * EFFORT
KEPT_BY_STRANGERS = (Level.KEEP_PREPARED, Level.RESUME)  # where brokers know the request


def wild(seed: int, calm: float) -> Callable[[int], int]:
    """Takes the undisturbed option with probability `calm`, any other otherwise."""
    source = random.Random(seed)
    return lambda options: 0 if source.random() < calm else source.randrange(options)


def settings(level: Level, seed: int = 0) -> Settings:
    return Settings(
        level,
        batches=2 + 2 * (seed % 4 > 1),
        partitions=1 + seed % 2,
        faults=2 + seed % 6,
        strangers=level in KEPT_BY_STRANGERS and seed % 3 == 0,
        gone=seed % 5 > 2,
        epochs=6 if seed % 8 > 5 else 2**15,
        may_time_out=level is not Level.TWO_PHASE,
        may_lose=level in LOSING and seed % 3 > 0,
        breaking_rows=seed % 7 == 0,
        timed_out_code=120 if seed % 4 > 1 else 48,
        checkpoint_faults=seed % 5 == 0,
        attempts=1 + seed % 3,
        one_host=seed % 11 > 5,
        remembers=seed % 13 > 5,
    )


def rolling(level: Level, seed: int) -> Settings:
    return replace(settings(level, seed), rolls=True)


def told(problem: str | None, world: World) -> str:
    return f"{problem}:\n" + "\n".join(world.trace)


@pytest.mark.parametrize("level", list(Level))
def test_random_walks_end_exactly_once(level: Level) -> None:
    disturbed = repaired = reused = 0
    swept: Counter[str] = Counter()
    for seed in range(WALKS):
        problem, world = walk(settings(level, seed), Rules(), wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        assert problem is None, told(problem, world)
        disturbed += len(world.runs) > 2
        repaired += world.repairs
        swept += world.sweeps
        reused += world.reused
    assert disturbed > WALKS // 4  # the walks were not all peaceful
    assert repaired > WALKS // 100
    assert swept["CompleteCommit"] > WALKS // 4
    raises = level.fences or level is Level.RESUME_V1
    assert swept["Empty" if raises else "CompleteAbort"] > WALKS // 100  # it is the question that leaves "Empty"
    assert raises or not swept["Empty"]  # nothing was left to be timed out
    assert reused > WALKS // 2 or not (level.uses_ids_again or reused)


@pytest.mark.parametrize("level", [Level.RESUME_V1, Level.RESUME_UNVERIFIED, Level.RESUME_UNLISTED])
def test_brokers_go_to_the_other_side_of_kafka_3_6_under_a_query(level: Level) -> None:
    left = 0
    for seed in range(WALKS):
        problem, world = walk(rolling(level, seed), Rules(), wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        assert problem is None, told(problem, world)
        left += any(run.level is not level for run in world.runs)
    assert left > WALKS // 4 or level.fences


def searched(setting: Settings, rules: Rules, disturbances: int) -> Iterator[tuple[str | None, World]]:
    """Every life with at most `disturbances` departures from the undisturbed way, at every place, in every manner."""
    stack: list[dict[int, int]] = [{}]
    ends = Ends()
    while stack:
        departures = stack.pop()
        widths: list[int] = []

        def choose(options: int, departures: dict[int, int] = departures, widths: list[int] = widths) -> int:
            widths.append(options)
            return departures.get(len(widths) - 1, 0)

        first = max(departures, default=-1) + 1
        goes_on = len(departures) < disturbances
        least = first if goes_on else sys.maxsize

        def may_depart(places: dict[int, int] = departures, widths: list[int] = widths, least: int = least) -> bool:
            return len(widths) in places or len(widths) >= least

        def is_settled(widths: list[int] = widths, least: int = sys.maxsize if goes_on else first) -> bool:
            return len(widths) >= least

        world = World(setting, rules, choose, may_depart)
        yield ends.live(world, is_settled), world
        if goes_on:
            for place in range(first, len(widths)):
                stack.extend({**departures, place: option} for option in range(1, widths[place]))


@pytest.mark.parametrize("level", list(Level))
def test_every_life_with_few_disturbances_ends_exactly_once(level: Level) -> None:
    ends, loses = level is not Level.TWO_PHASE, level in LOSING
    small = Settings(level, 1, 1, faults=3, may_time_out=ends, may_lose=loses, checkpoint_faults=True)
    wide = Settings(level, 2, 2, faults=3, may_time_out=ends, may_lose=loses, checkpoint_faults=True)
    in_time = Settings(level, 1, 2, faults=3, may_time_out=ends, breaking_rows=True)
    again = Settings(level, 3, 1, faults=3, strangers=level in KEPT_BY_STRANGERS, gone=True)
    failing = Settings(level, 1, 2, faults=3, attempts=1)
    lives = reused = 0
    inherited = [(replace(one, one_host=True), 1) for one in (wide, again)]
    for setting, least in ((small, 2), (wide, 1), (in_time, 1), (again, 1), (failing, 1), *inherited):
        for problem, world in searched(setting, Rules(), least + (EFFORT > 1)):
            assert problem is None, told(problem, world)
            lives += 1
            reused += world.reused
    assert lives > 2000
    assert reused > 2000 or not (level.uses_ids_again or reused)


@pytest.mark.parametrize("mistake", ["open finishes nothing", "abort asks nobody"])
def test_a_search_finds_what_it_finds_without_known_ends(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown(Ends):
        def live(self, world: World, is_settled: Callable[[], bool]) -> str | None:
            world.live()
            return world.verdict()

    setting = Settings(Level.TWO_PHASE, 1, 2, faults=3, checkpoint_faults=True)
    found = [(problem, world.reused) for problem, world in searched(setting, MISTAKES[mistake], 1)]
    monkeypatch.setattr("tests.unit.spark.test_plan_model.Ends", Unknown)
    assert found == [(problem, world.reused) for problem, world in searched(setting, MISTAKES[mistake], 1)]
    assert len({problem for problem, _ in found}) > 1


def test_a_timed_out_decided_transaction_is_loud_and_never_silent() -> None:
    for seed in range(WALKS):
        problem, world = walk(settings(Level.RESUME, seed), Rules(), wild(seed, 0.5))
        assert problem is None, told(problem, world)  # verdict() has checked that it lost no row unless it said so
        if world.lost_reports:
            return
    pytest.fail("no walk lost anything")


@pytest.mark.parametrize("asks_again", [False, True])
def test_a_question_that_comes_late_is_no_loss_unless_it_was_asked_again(asks_again: bool) -> None:
    """It opens what is committed, and a timeout then ends what an Open asks for."""
    setting = Settings(Level.RESUME_UNLISTED, 1, 1, faults=3, may_time_out=True, may_lose=True)
    script = ["commit 0 has a late request", "a late request arrives", "times out"]

    def choose(_: int) -> int:
        offered, world.offered = world.offered, []
        is_due = len(script) != 2 or any(
            txn.state == "CompleteCommit" for name, txn in world.broker.txns.items() if name != S
        )
        for number, name in enumerate(offered):
            if script and is_due and name.endswith(script[0]):
                script.pop(0)
                return number
        return 0

    world = World(setting, Rules(asks_again=asks_again), choose)
    world.live()
    assert world.verdict() == ("a loss was told, and nothing is lost" if asks_again else None)
    assert script == ([] if asks_again else ["times out"])  # nothing is open that could


# --- the known mistakes, planted: plan_mistakes.py ---


# The level at which a mistake shows, where that is not the second.
SHOWS_AT = {
    "a contradiction is not reported": Level.RESUME,
    "commit decides what is lost": Level.RESUME,
    "winners are not kept": Level.KEEP_PREPARED,
    "open asks before it looks": Level.KEEP_PREPARED,
    "a keep is taken for a loss": Level.KEEP_PREPARED,
    **{name: Level.RESUME_V1 for name in MISTAKES if name.startswith("v1: ")},
    **{name: Level.RESUME_UNVERIFIED for name in MISTAKES if name.startswith("unverified: ")},
    **{name: Level.RESUME_UNLISTED for name in MISTAKES if name.startswith("unlisted: ")},
}
# Rare ones: a world in which they show, and how calm it is.
RARE: dict[str, tuple[Settings, tuple[float, float, float]]] = {
    "losers are chased": (Settings(Level.KEEP_PREPARED, 4, 1, faults=3), (0.9, 0.95, 0.97)),
    "abort reads the topic": (Settings(faults=6), (0.3, 0.5, 0.7)),
    "commit asks before it lists": (Settings(faults=4), (0.3, 0.6, 0.8)),
}
# From which seed on these are looked for, so that it does not take long.
FIRST_SEED = {
    "losers are chased": 1400,
    "abort reads the topic": 5000,
    "abort needs messages": 7000,
    "open chases winners": 9100,
    "an id is inherited unseen": 2300,
    "a lower batch is skipped": 300,
    "an unanswered id is free": 400,
    "an unanswered id is inherited": 200,
    "commit asks before it lists": 650,
    "commit chases winners": 800,
    "commit decides what is lost": 1350,
    "unlisted: a winner is not asked": 430,
    "unlisted: an id is used again": 700,
    "unverified: a roll: the broker that is asked says how to abort": 300,
    "unverified: an id is used again": 1400,
    "unverified: the claim is ended": 2600,
}


def unlike(mistake: str, seed: int) -> tuple[Settings, float]:
    """The worlds in which mistakes are looked for: every other one without what most do not need."""
    level = SHOWS_AT.get(mistake, Level.TWO_PHASE)
    if " a roll: " in mistake:
        return rolling(level, seed), (0.3, 0.6, 0.9)[seed % 3]
    if mistake in RARE:
        world, calm = RARE[mistake]
        return world, calm[seed % 3]
    world = settings(level, seed // 2) if seed % 2 else Settings(level, faults=4)
    if "inherited" in mistake:
        world = replace(world, one_host=True)
    return world, (0.3, 0.6, 0.9)[seed % 3]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    first = FIRST_SEED.get(mistake, 0)
    for seed in range(first, first + 20_000):
        world, calm = unlike(mistake, seed)
        problem, _ = walk(world, MISTAKES[mistake], wild(seed, calm))
        if problem is not None:
            return
    pytest.fail(f"{mistake}: 20000 walks noticed nothing")


def test_the_world_itself_is_peaceful_without_disturbances() -> None:
    problem, world = walk(Settings(faults=0), Rules(), lambda options: 0)
    assert problem is None
    assert [row for _, row in world.broker.committed] == [(b, p, 0) for b in range(3) for p in range(2)]
    assert len(world.runs) == 2 and all(decision.sink == SINK for decision in world.broker.decisions)
