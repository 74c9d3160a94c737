"""A person moves a query in the small world of plan.py: its zombies live on, replies are lost, requests come late.

After a release nothing of the query is committed any more. After an adoption, too, and the sink's last decision is the
one that the adoption has written.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.errors import KafkaError, PreparedTransactionLostError
from fencepost.spark.adoption.move import adopt_steps
from fencepost.spark.adoption.refusals import AdoptionRefusedError
from fencepost.spark.sink import plan
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Decision
from fencepost.spark.sink.plan_steps import ReadDecisions
from tests.support.sink_abilities import ALL, TWO_PHASE, may_lose
from tests.unit.spark.plan_coordinator import SINK
from tests.unit.spark.plan_driver import QUERY, Run
from tests.unit.spark.plan_settings import Rules, Settings
from tests.unit.spark.plan_world import World

WALKS = 100 * int(os.environ.get("FENCEPOST_MODEL_EFFORT", "1"))
MOST_TICKS = 2000
ATTEMPTS = 20  # of the person: as many faults as there are at most, and some


class Moving(World):
    """A world in which nobody starts the query again once a person has stopped it."""

    stopped = False

    def _start(self) -> None:
        if not self.stopped:
            super()._start()

    def stop(self) -> None:
        """The drivers die; their other processes live on."""
        self.stopped = True
        for run in self.runs:
            run.alive = False

    def by_a_person(self, steps: Callable[[], plan.Plan[Any]]) -> Any:
        """The plan, repeated until it has ended; None when something decided is lost."""
        for _ in range(ATTEMPTS):
            ended: list[Any] = []
            self.spawn("person", steps(), ended.append, self.runs[-1])
            person = self.processes[-1][0] if self.processes and self.processes[-1][0].name == "person" else None
            for _ in range(MOST_TICKS):
                if ended or person is None or not person.alive:
                    break
                self.tick()
            if ended and isinstance(ended[0], PreparedTransactionLostError):
                return None
            if ended and not isinstance(ended[0], KafkaError):
                return ended[0]
        raise AssertionError("\n".join(self.trace))

    def live_on(self) -> None:
        """All that is left of the query: to its end."""
        for _ in range(MOST_TICKS):
            if not any(process.alive for process, _ in self.processes):
                break
            self.tick()
        for call in self.late:
            call()
        self.late.clear()

    def facts(self) -> Any:
        return sorted(row for _, row in self.broker.committed), self.decision()

    def decision(self) -> Decision | None:
        return next((decision for decision in self.broker.last_decisions() if decision.query_id == QUERY), None)


def world_of(abilities: BrokerAbilities, seed: int) -> Moving:
    """Some batches, in any state, when the person comes."""
    source = random.Random(seed)
    calm = (0.5, 0.7, 0.9)[seed % 3]
    setting = Settings(
        abilities,
        batches=3,
        partitions=1 + seed % 2,
        faults=2 + seed % 5,
        gone=seed % 5 > 2,
        may_time_out=abilities != TWO_PHASE,
        may_lose=may_lose(abilities) and seed % 7 == 0,
        attempts=2,
    )
    world = Moving(setting, Rules(), lambda options: 0 if source.random() < calm else source.randrange(options))
    for _ in range(source.randrange(5, 60)):
        if not world.tick():
            break
    assert isinstance(world.runs[-1], Run)
    world.stop()
    return world


@pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)
def test_after_a_release_nothing_of_the_query_comes_any_more(abilities: BrokerAbilities) -> None:
    zombies = 0
    for seed in range(WALKS):
        world = world_of(abilities, seed)
        if world.by_a_person(lambda: plan.open_sink(SINK, abilities)) is None:
            continue
        before = world.facts()
        zombies += any(process.alive for process, _ in world.processes)
        world.live_on()
        assert world.facts() == before, "\n".join(world.trace)
    assert zombies > WALKS // 10


@pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)
def test_after_an_adoption_the_sink_knows_the_batch_and_nothing_else_comes(abilities: BrokerAbilities) -> None:
    """The query went back without a release: another sink has written up to batch 7."""
    wanted = Decision(SINK, QUERY, 7, ())
    zombies = 0
    for seed in range(WALKS):
        world = world_of(abilities, seed)
        if world.by_a_person(lambda: adopt_steps(wanted, abilities)) is None:
            continue
        before = world.facts()
        assert before[1] == wanted
        zombies += any(process.alive for process, _ in world.processes)
        world.live_on()
        assert world.facts() == before, "\n".join(world.trace)
        assert world.by_a_person(lambda: adopt_steps(wanted, abilities)) is False
    assert zombies > WALKS // 10


def test_a_release_that_only_looks_is_found_out() -> None:
    """A zombie decides a batch behind the look."""

    def look() -> plan.Plan[Any]:
        return (yield ReadDecisions(SINK))

    for seed in range(WALKS):
        world = world_of(TWO_PHASE, seed)
        world.by_a_person(look)
        before = world.facts()
        world.live_on()
        if world.facts() != before:
            return
    pytest.fail("nothing was noticed")


def test_an_adoption_below_what_the_sink_has_decided_is_refused() -> None:
    world = World(Settings(faults=0), Rules(), lambda _: 0)
    world.live()
    decided = next(decision for decision in world.broker.last_decisions() if decision.query_id == QUERY)
    steps = adopt_steps(Decision(SINK, QUERY, decided.batch_id - 1, ()), TWO_PHASE)
    reported: list[Any] = []
    world.spawn("person", steps, reported.append, world.runs[-1])
    while not reported:
        world.tick()
    assert isinstance(reported[0], AdoptionRefusedError)
