"""Bounded state of a stream: task ids at the coordinator, decisions in the compacted topic.

A month at one batch a second with 10 tasks is 2.6 million batches. The state after 2,500 of them is that after 1,000,
with tasks that fail, speculative copies, and drivers that die before and after a decision. These faults repeat every
300 batches, so that any growth shows in each 300.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from fencepost.errors import KafkaError
from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Content, Decision, Pair, Winner, encode_key, encode_value
from fencepost.spark.sink.task_ids import OwnPool, TaskIds, is_free
from tests.support.sink_abilities import ALL, ONE_PHASE
from tests.unit.spark.plan_coordinator import SINK, Coordinator, S

TASKS, WORKERS, CYCLE = 10, 12, 100
QUERIES_GONE = 5


class Faults(NamedTuple):
    """Of one batch. `dies`: the driver, before the decision or with it."""

    failing: frozenset[int]
    copied: frozenset[int]
    dies: str


class State(NamedTuple):
    ids: int
    decisions: int
    decision_bytes: int
    named: int  # transactions that an Open asks for
    open_ids: int


class Stream:
    """One query, its Python workers, and a broker; other queries of the sink are gone."""

    def __init__(self, abilities: BrokerAbilities, ids: type[TaskIds] = TaskIds, pools: int = WORKERS) -> None:
        self.abilities = abilities
        self.broker = Coordinator(epochs=750)  # so that S changes its producer id now and then
        self.minted = self.rows = self.batch = 0
        shared = [OwnPool() for _ in range(pools)]
        self.workers = [ids(self._unique, shared[number % pools]) for number in range(WORKERS)]
        chance = random.Random(3 - list(ALL.values()).index(abilities))
        self.script = [
            Faults(
                frozenset(p for p in range(TASKS) if chance.random() < 0.03),
                frozenset(p for p in range(TASKS) if chance.random() < 0.03),
                chance.choices(("", "before", "with"), (0.94, 0.03, 0.03))[0],
            )
            for _ in range(CYCLE)
        ]
        for number in range(QUERIES_GONE):
            name = names.task_id(SINK, number.to_bytes(16))
            pair = self.broker.init(name, False)
            self.broker.produce(name, pair, (-1, number, 0))
            self.broker.decisions.append(Decision(SINK, f"gone-{number}", 9, (Winner(name, pair),)))

    def _unique(self) -> bytes:
        self.minted += 1
        return (1000 + self.minted).to_bytes(16)

    def run(self, batches: int) -> State:
        while self.batch < batches:
            faults = self.script[self.batch % CYCLE]
            if faults.dies:
                self._once(faults)
            self._once(faults._replace(dies=""))
            self.batch += 1
            self.broker.decisions[:] = self.broker.last_decisions()  # the topic is compacted
            self.rows += len(self.broker.committed)
            self.broker.committed.clear()
        last = self.broker.last_decisions()
        size = sum(len(encode_key(decision.sink, decision.query_id)) + len(encode_value(decision)) for decision in last)
        return State(
            len(self.broker.txns),
            len(last),
            size,
            sum(len(decision.winners) for decision in last),
            len(self.broker.ongoing()),
        )

    def _once(self, faults: Faults) -> None:
        opened = self._play(plan.open_sink(SINK, self.abilities))
        turn = self.batch % WORKERS
        workers = self.workers[turn:] + self.workers[:turn]
        messages: list[plan_steps.TaskResult] = []
        for partition in range(TASKS):
            if partition in faults.failing:
                self._task(opened, workers[partition], partition, fails=True)
            messages.append(self._task(opened, workers[partition], partition))
            if partition in faults.copied:
                self._task(opened, workers[-1], partition)
        if faults.dies == "before":
            return
        self._play(plan.commit_batch(SINK, self.batch, messages), until_decided=faults.dies == "with")

    def _task(
        self, opened: plan_steps.OpenedSink, ids: TaskIds, partition: int, fails: bool = False
    ) -> plan_steps.TaskResult:
        message: plan_steps.TaskResult = self._play(
            plan.write_task(opened, "q", self.batch), ids=ids, row=(self.batch, partition, 0), fails=fails
        )
        return message

    def _play(self, steps: plan.Plan[Any], *, ids: TaskIds | None = None, row: Any = None, **how: bool) -> Any:
        try:
            step = next(steps)
            while True:
                if isinstance(step, plan_steps.WriteRows) and how.get("fails"):
                    given_up = steps.throw(KafkaError("a row's own code"))
                    steps.close()
                    return self._perform(given_up, ids, row)
                seen = self._perform(step, ids, row)
                if isinstance(step, plan_steps.WriteDecision) and how.get("until_decided"):
                    return None
                step = steps.send(seen)
        except StopIteration as stop:
            return stop.value

    def _perform(self, step: plan_steps.Step, ids: TaskIds | None, row: Any) -> Any:
        broker = self.broker
        match step:
            case plan_steps.AcquireTaskId(opened) if ids is not None:
                return ids.take(opened)
            case plan_steps.BeginTask(transactional_id, use, two_phase) if ids is not None:
                pair = broker.init(transactional_id, two_phase)
                ids.begun(transactional_id, use)
                return pair
            case plan_steps.WriteRows(transactional_id, pair):
                assert broker.produce(transactional_id, pair, row)
                return rows_of(row)
            case plan_steps.HasRows():
                return True
            case plan_steps.DrainRows():
                return rows_of(row)
            case plan_steps.AbortTask(transactional_id, pair):
                return broker.end(transactional_id, pair, False)
            case plan_steps.WriteDecision(claim, decision, complete):
                assert broker.produce(S, claim, (decision, *complete))
                return broker.end(S, claim, True)
            case plan_steps.SaveOffsets():
                return None
            case _:
                return broker.answer(step)


def rows_of(row: Any) -> Content:
    return Content(1, 31 * row[0] + row[1])


@pytest.mark.parametrize("abilities", ALL.values(), ids=ALL)
def test_later_batches_leave_no_more_than_the_first_thousand(abilities: BrokerAbilities) -> None:
    stream = Stream(abilities)
    after = stream.run(1000)
    claims = stream.broker.txns[S].producer_id
    assert stream.run(2500) == after
    assert stream.rows == 2500 * TASKS + QUERIES_GONE
    assert stream.broker.txns[S].producer_id > claims + 1000  # it has changed twice at least
    # Two ids for each worker, whose turns they are, and some for what failed.
    assert 2 * WORKERS <= after.ids - QUERIES_GONE - 1 <= 5 * WORKERS
    assert (after.decisions, after.named, after.open_ids) == (1 + QUERIES_GONE, TASKS, 0)
    assert after.decision_bytes < 26 * TASKS + 100 * (1 + QUERIES_GONE)


def test_without_ids_that_are_used_again_they_are_as_many_as_tasks() -> None:
    class Minted(TaskIds):
        def begun(self, transactional_id: str, use: plan_steps.ClaimedBatch) -> None:
            pass

    assert Stream(ONE_PHASE, Minted).run(100).ids > 100 * TASKS


def test_ids_that_are_inherited_are_as_many_as_two_batches_use() -> None:
    """Check that the number of past workers has no effect on the number of ids if all share a pool."""
    ids = Stream(ONE_PHASE, pools=1).run(1000).ids - QUERIES_GONE - 1
    assert 2 * TASKS <= ids < 4 * TASKS


def use(batch_id: int, epoch: int, query_id: str = "q", sink: str = SINK) -> plan_steps.ClaimedBatch:
    return plan_steps.ClaimedBatch(sink, Pair(1, epoch), query_id, batch_id)


def opened(decided: int | None, epoch: int, producer_id: int = 1) -> plan_steps.OpenedSink:
    last = () if decided is None else (plan_steps.DecidedBatch("q", decided, None),)
    return plan_steps.OpenedSink(SINK, ONE_PHASE, Pair(producer_id, epoch), last)


def test_an_id_is_free_once_a_later_batch_is_decided() -> None:
    assert not is_free(use(5, 10), opened(None, 20))
    assert not is_free(use(5, 10), opened(4, 20))
    assert not is_free(use(5, 10), opened(5, 20))  # the decision names it, or might
    assert is_free(use(5, 10), opened(6, 20))
    assert is_free(use(5, 10), opened(6, 3, producer_id=2))
    assert not is_free(use(5, 10), opened(6, 10))
    assert not is_free(use(5, 10), opened(6, 9))  # a task of an older run, late
    assert not is_free(use(5, 10, query_id="another"), opened(6, 20))
    assert not is_free(use(5, 10, sink="another"), opened(6, 20))


def test_an_id_whose_begin_was_not_answered_is_never_taken_again() -> None:
    numbers = iter(range(1, 9))
    ids = TaskIds(lambda: next(numbers).to_bytes(16), OwnPool())
    first, second = ids.take(opened(None, 1)), ids.take(opened(None, 1))
    assert first != second
    ids.begun(second, use(0, 1))
    assert [ids.take(opened(1, 5)) for _ in range(2)] == [second, names.task_id(SINK, (3).to_bytes(16))]
