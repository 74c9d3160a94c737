"""Spark in the small world of plan.py: a driver as it was seen to call a Python sink, and its processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.errors import KafkaError, PreparedTransactionLostError
from fencepost.spark.errors import BatchChangedError, CheckpointRolledBackError
from fencepost.spark.sink import plan_steps
from fencepost.spark.sink.decision import Pair
from fencepost.spark.sink.plan_steps import ClaimedBatch, OpenedSink
from fencepost.spark.sink.task_ids import IdPool, OwnPool, TaskIds
from tests.unit.spark.plan_coordinator import SINK

if TYPE_CHECKING:
    from tests.unit.spark.plan_world import World

QUERY = "q"
LOST = object()
Call = Callable[[], Any]


class Worker:
    """A Python worker of Spark: it runs one attempt after the other, of whatever run."""

    def __init__(self, ids: TaskIds) -> None:
        self.ids, self.alive = ids, True


class View:
    """The ids of a host as one of its workers has seen them; others may have taken and given since."""

    def __init__(self, pool: IdPool) -> None:
        self._pool = pool
        self._seen: tuple[tuple[str, ClaimedBatch], ...] = ()

    def look(self, opened: OpenedSink) -> None:
        self._seen = tuple(self._pool.idle(opened))

    def idle(self, opened: OpenedSink) -> Iterable[tuple[str, ClaimedBatch]]:
        return self._seen

    def take(self, transactional_id: str, last: ClaimedBatch) -> bool:
        return self._pool.take(transactional_id, last)

    def give(self, transactional_id: str, use: ClaimedBatch) -> None:
        self._pool.give(transactional_id, use)


@dataclass
class ProcessState:
    """Process that runs a plan."""

    worker: Worker = field(default_factory=lambda: Worker(TaskIds(bytes, OwnPool())))


class Process:
    """One process running one plan, call by call. `done` is told the result or the KafkaError."""

    def __init__(
        self, name: str, run: Generator[Call, Any, Any], done: Callable[[Any], None], state: ProcessState | None = None
    ) -> None:
        self.name, self._run, self.done, self.state = name, run, done, state or ProcessState()
        self.alive, self.asleep = True, False
        self.call: Call | None = None
        self.send(None)

    def send(self, reply: Any) -> None:
        try:
            self.call = self._run.send(reply)
        except StopIteration as stop:
            self.alive, self.call = False, None
            self.done(stop.value)
        except KafkaError as error:
            self.alive, self.call = False, None
            self.done(error)


class Read:
    """A call that changes nothing at the brokers: that its reply or itself is lost or late makes no other life."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self) -> Any:
        return self._call()


class Run:
    """One start of the query: Spark's driver. It ends when it has no more batches, fails, or is killed."""

    def __init__(self, world: World) -> None:
        self.world, self.alive = world, True
        self.abilities = world.settings.abilities
        self.messages: dict[int, plan_steps.TaskResult] = {}
        self.attempts: dict[int, int] = {}
        self.batch = self.input = 0
        self.next_batch()

    def next_batch(self) -> None:
        self.batch = self.world.spark_commits
        self.messages, self.attempts = {}, {}
        if self.batch == self.world.settings.batches + (1 if self.world.healing else 0):
            self.alive = False
            return
        world = self.world
        self.input = world.inputs.setdefault(self.batch, 0)
        world.spawn(f"open {self.batch}", world.rules.open_sink(SINK, self.abilities), self.opened, self)

    def opened(self, result: Any) -> None:
        if not self.alive:
            return
        if isinstance(result, KafkaError):
            self.fail(result)
            return
        self.writer, self.world.noted = result, result.claim
        for partition in range(self.world.settings.partitions):
            self.attempt(partition)

    def attempt(self, partition: int) -> None:
        number = self.attempts[partition] = self.attempts.get(partition, -1) + 1
        batch = self.batch
        world = self.world
        world.spawn(
            f"task {batch}.{partition}.{number}",
            world.rules.write_task(self.writer, QUERY, batch),
            lambda result: self.written(batch, partition, result),
            self,
            (batch, partition, number, self.input),
        )

    def written(self, batch: int, partition: int, result: Any) -> None:
        if not self.alive or batch != self.batch or partition in self.messages:
            return  # a loser: Spark drops its message
        if isinstance(result, KafkaError):
            if self.attempts[partition] + 1 >= self.world.settings.attempts:
                self.abort([self.messages.get(number) for number in range(self.world.settings.partitions)], result)
            else:
                self.attempt(partition)
            return
        self.messages[partition] = result
        if len(self.messages) == self.world.settings.partitions:
            messages = [self.messages[number] for number in range(self.world.settings.partitions)]
            world = self.world
            world.spawn(
                f"commit {batch}",
                world.rules.commit_batch(SINK, batch, messages),
                lambda outcome: self.committed(batch, messages, outcome),
                self,
                (batch, 0, 0, self.input),
            )

    def committed(self, batch: int, messages: list[plan_steps.TaskResult], result: Any) -> None:
        if isinstance(result, PreparedTransactionLostError):
            self.world.lost_reports += 1
        if not self.alive:
            return
        if isinstance(result, KafkaError):
            self.abort(messages, result)
        elif self.world.spark_commits == batch:
            self.world.finished[batch] = self.input
            if result is True:  # not a replay, whose decision was another worker's
                self.world.look_for_strays(self.writer.claim)
            self.world.spark_commits += 1
            self.next_batch()
        else:
            self.alive = False  # another driver wrote Spark's commit log first

    def abort(self, messages: Any, cause: KafkaError) -> None:
        world = self.world
        world.swept = self.writer.claim
        prepared = [message for message in messages if isinstance(message, plan_steps.PreparedTask)]
        asked = prepared[0].claim if prepared else world.noted
        steps = world.rules.abort_batch(SINK, messages, world.noted)
        world.spawn("abort", steps, lambda result: self.aborted(asked, result), self)
        self.fail(cause)

    def aborted(self, asked: Pair | None, result: Any) -> None:
        if result in (plan_steps.AbortOutcome.ABORTED, plan_steps.AbortOutcome.NOTHING):
            self.world.look_for_strays(self.writer.claim)
        if result is plan_steps.AbortOutcome.COMMITTED and asked is not None:
            self.world.check_was_decided(asked)
        if isinstance(result, PreparedTransactionLostError):
            self.world.lost_reports += 1

    def fail(self, error: KafkaError) -> None:
        if isinstance(error, PreparedTransactionLostError):
            self.world.lost_reports += 1
        if isinstance(error, BatchChangedError | CheckpointRolledBackError):
            self.world.repair(self, error)
        else:
            self.world.errors.append(error)
        self.alive = False
