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

from fencepost.spark.sink.abilities import BrokerAbilities
from tests.support.sink_abilities import ALL, KEEPING, ONE_PHASE, TWO_PHASE, VERSION_0, may_lose
from tests.unit.spark.plan_coordinator import SINK
from tests.unit.spark.plan_ends import Ends
from tests.unit.spark.plan_mistakes import MISTAKES
from tests.unit.spark.plan_settings import Rules, Settings
from tests.unit.spark.plan_world import World, walk

EFFORT = int(os.environ.get("FENCEPOST_MODEL_EFFORT", "1"))
WALKS = 1500 * EFFORT
MAY_BE_KEPT = (KEEPING, ONE_PHASE)  # where brokers know the request

for_all = pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)


def wild(seed: int, calm: float) -> Callable[[int], int]:
    """Takes the undisturbed option with probability `calm`, any other otherwise."""
    source = random.Random(seed)
    return lambda options: 0 if source.random() < calm else source.randrange(options)


def settings(abilities: BrokerAbilities, seed: int = 0) -> Settings:
    return Settings(
        abilities,
        batches=2 + 2 * (seed % 4 > 1),
        partitions=1 + seed % 2,
        faults=2 + seed % 6,
        others_keep=abilities in MAY_BE_KEPT and seed % 3 == 0,
        gone=seed % 5 > 2,
        epochs=6 if seed % 8 > 5 else 2**15,
        may_time_out=abilities != TWO_PHASE,
        may_lose=may_lose(abilities) and seed % 3 > 0,
        breaking_rows=seed % 7 == 0,
        timed_out_code=120 if seed % 4 > 1 else 48,
        checkpoint_faults=seed % 5 == 0,
        attempts=1 + seed % 3,
        one_host=seed % 11 > 5,
        forgets=seed % 13 > 8,
    )


def rolling(seed: int) -> Settings:
    return replace(settings(VERSION_0, seed), rolls=True)


def reported(problem: str | None, world: World) -> str:
    return f"{problem}:\n" + "\n".join(world.trace)


@for_all
def test_random_walks_end_exactly_once(abilities: BrokerAbilities) -> None:
    disturbed = repaired = reused = unknown = 0
    swept: Counter[str] = Counter()
    for seed in range(WALKS):
        problem, world = walk(settings(abilities, seed), Rules(), wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        assert problem is None, reported(problem, world)
        disturbed += len(world.runs) > 2
        repaired += world.repairs
        unknown += bool(world.unknown_batches)
        swept += world.sweeps
        reused += world.reused
    assert disturbed > WALKS // 4  # the walks were not all peaceful
    assert repaired > WALKS // 100
    assert unknown > WALKS // 100
    assert swept["CompleteCommit"] > WALKS // 4
    raises = abilities == VERSION_0
    assert swept["Empty" if raises else "CompleteAbort"] > WALKS // 100  # it is the question that leaves "Empty"
    assert raises or not swept["Empty"]  # no transaction was left to be timed out
    assert reused > WALKS // 2


def test_brokers_are_downgraded_below_kafka_3_6_under_a_query() -> None:
    refused = 0
    for seed in range(WALKS):
        problem, world = walk(rolling(seed), Rules(), wild(seed, (0.3, 0.6, 0.9)[seed % 3]))
        assert problem is None, reported(problem, world)
        refused += bool(world.refused)
    assert refused > WALKS // 4


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

        def may_depart(indexes: dict[int, int] = departures, widths: list[int] = widths, least: int = least) -> bool:
            return len(widths) in indexes or len(widths) >= least

        def is_settled(widths: list[int] = widths, least: int = sys.maxsize if goes_on else first) -> bool:
            return len(widths) >= least

        world = World(setting, rules, choose, may_depart)
        yield ends.live(world, is_settled), world
        if goes_on:
            for index in range(first, len(widths)):
                stack.extend({**departures, index: option} for option in range(1, widths[index]))


@for_all
def test_every_life_with_few_disturbances_ends_exactly_once(abilities: BrokerAbilities) -> None:
    ends, loses = abilities != TWO_PHASE, may_lose(abilities)
    others_keep = abilities in MAY_BE_KEPT
    small = Settings(abilities, 1, 1, faults=3, may_time_out=ends, may_lose=loses, checkpoint_faults=True)
    wide = Settings(abilities, 2, 2, faults=3, may_time_out=ends, may_lose=loses, checkpoint_faults=True)
    in_time = Settings(abilities, 1, 2, faults=3, may_time_out=ends, breaking_rows=True)
    again = Settings(abilities, 3, 1, faults=3, others_keep=others_keep, gone=True)
    failing = Settings(abilities, 1, 2, faults=3, attempts=1)
    forgetting = Settings(abilities, 1, 1, faults=3, may_time_out=ends, may_lose=loses, gone=True, forgets=True)
    lives = reused = 0
    inherited = [(replace(base, one_host=True), 1) for base in (wide, again)]
    worlds = ((small, 2), (wide, 1), (in_time, 1), (again, 1), (failing, 1), (forgetting, 2), *inherited)
    for setting, least in worlds:
        for problem, world in searched(setting, Rules(), least + (EFFORT > 1)):
            assert problem is None, reported(problem, world)
            lives += 1
            reused += world.reused
    assert lives > 2000
    assert reused > 2000


@pytest.mark.parametrize("mistake", ["open finishes nothing", "abort asks nobody"])
def test_a_search_finds_what_it_finds_without_known_ends(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown(Ends):
        def live(self, world: World, is_settled: Callable[[], bool]) -> str | None:
            world.live()
            return world.verdict()

    setting = Settings(TWO_PHASE, 1, 2, faults=3, checkpoint_faults=True)
    found = [(problem, world.reused) for problem, world in searched(setting, MISTAKES[mistake], 1)]
    monkeypatch.setattr("tests.unit.spark.test_plan_model.Ends", Unknown)
    assert found == [(problem, world.reused) for problem, world in searched(setting, MISTAKES[mistake], 1)]
    assert len({problem for problem, _ in found}) > 1


def test_a_timed_out_decided_transaction_is_loud_and_never_silent() -> None:
    for seed in range(WALKS):
        problem, world = walk(settings(ONE_PHASE, seed), Rules(), wild(seed, 0.5))
        assert problem is None, reported(problem, world)  # verdict() has checked that it lost no row unless it said so
        if world.lost_reports:
            return
    pytest.fail("no walk lost anything")


# --- the known mistakes, planted: plan_mistakes.py ---


# The abilities with which a mistake shows, where those are not TWO_PHASE.
SHOWS_AT = {
    "a contradiction is not reported": ONE_PHASE,
    "commit decides what is lost": ONE_PHASE,
    "winners are not kept": KEEPING,
    "open asks before it looks": KEEPING,
    "a keep is taken for a loss": KEEPING,
    **{name: VERSION_0 for name in MISTAKES if name.startswith("v1: ")},
    "an expired winner counts as committed": ONE_PHASE,
}
# Rare ones: a world in which they show, and how calm it is.
RARE: dict[str, tuple[Settings, tuple[float, float, float]]] = {
    "losers are chased": (Settings(KEEPING, 4, 1, faults=3), (0.9, 0.95, 0.97)),
    "abort reads the topic": (Settings(faults=6), (0.3, 0.5, 0.7)),
    "an expired winner counts as committed": (
        Settings(ONE_PHASE, 1, 1, faults=4, may_time_out=True, may_lose=True, forgets=True),
        (0.6, 0.8, 0.9),
    ),
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
}


def unlike(mistake: str, seed: int) -> tuple[Settings, float]:
    """The worlds in which mistakes are looked for: every other one without what most do not need."""
    abilities = SHOWS_AT.get(mistake, TWO_PHASE)
    if " a roll: " in mistake:
        return rolling(seed), (0.3, 0.6, 0.9)[seed % 3]
    if mistake in RARE:
        world, calm = RARE[mistake]
        return world, calm[seed % 3]
    world = settings(abilities, seed // 2) if seed % 2 else Settings(abilities, faults=4)
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
