"""A Spark driver of the simulated world.

It runs micro-batches like PySpark 4.3.

Each batch: write the offset log, plan (open the sink), run tasks with retries and speculative copies, run the commit
worker, write the commit log. A restart replays the batch that is missing in the commit log, with the same input and
possibly another number of tasks. The logs are written atomically, as in Spark: the second writer of an entry fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from fencepost.errors import KafkaError
from fencepost.spark.errors import CheckpointRolledBackError, SinkContradictionError
from fencepost.spark.sink.decision import Decision, SourceOffsets
from fencepost_lab.check.process import Process, ProcessLost
from fencepost_lab.check.scheduler import SimFuture
from fencepost_lab.check.spark_tasks import RowsFailed, SinkProcess, TaskInput

__all__ = ["Driver", "DriverWorld", "QueryFailed", "QueryStopped", "SimCheckpoint", "SparkFaults"]

ATTEMPTS: Final = 3


class QueryFailed(Exception):
    """The query ended with an exception that does not come from the sink."""


class QueryStopped(Exception):
    """The query was stopped by q.stop()."""


@dataclass(frozen=True, slots=True)
class SparkFaults:
    """Chances of faults. `fault_chance` is for each piece of work of a process, the others are for a batch or task."""

    fault_chance: float = 0.0
    driver_fault_chance: float = 0.0
    second_driver_chance: float = 0.0
    speculation_chance: float = 0.0
    broken_rows_chance: float = 0.0
    stop_chance: float = 0.0
    damage_chance: float = 0.0


@dataclass(slots=True)
class SimCheckpoint:
    """A query's durable state.

    Its input is the rows 0 to `rows`, and a batch is the range [start, end) of it. `gone`: the lost entries of
    `offsets`.
    """

    query: str
    sink: str
    rows: int
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    gone: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    damages: int = 0
    repairs: int = 0

    def damage(self, batches: int) -> None:
        """Remove the newest batches from both logs, as a power loss of the host or a restored backup does."""
        self.damages += 1
        for batch in sorted(self.offsets)[-batches:]:
            self.gone.append((batch, self.offsets.pop(batch)))
            self.commits.discard(batch)

    def shown(self, batch: int) -> SourceOffsets | None:
        """Return the offset log's texts for a batch."""
        if batch not in self.offsets:
            return None
        before = self.offsets.get(batch - 1)
        return SourceOffsets(json.dumps(self.offsets[batch]), None if before is None else json.dumps(before))

    def repair(self, decision: Decision) -> None:
        """Restore a batch from the copy in its decision."""
        self.repairs += 1
        offsets = decision.offsets
        if offsets is None:
            return
        for batch, text in ((decision.batch_id - 1, offsets.before), (decision.batch_id, offsets.batch)):
            if text is not None:
                start, end = json.loads(text)
                self.offsets[batch] = (start, end)

    def values(self, batch: int) -> tuple[str, ...]:
        """Return the batch's input, which is the same at every replay."""
        return self.rows_of(self.offsets[batch])

    def rows_of(self, offsets: tuple[int, int]) -> tuple[str, ...]:
        """Return the rows between two offsets."""
        return tuple(f"{self.sink}:{row}" for row in range(*offsets))

    @property
    def finished(self) -> bool:
        """Return true if the commit log covers all input."""
        last = max(self.offsets, default=-1)
        return last >= 0 and last in self.commits and self.offsets[last][1] >= self.rows


class DriverWorld(Protocol):
    """The world as used by a driver."""

    @property
    def faults(self) -> SparkFaults:
        """The current faults."""
        ...

    def process(self, name: str) -> Process: ...

    def sink_process(self, process: Process, sink: str) -> SinkProcess: ...

    def schedule_fault(self, process: Process) -> None:
        """Schedule a random fault for the process."""
        ...

    def trace(self, line: str) -> None: ...


@dataclass(slots=True)
class _WorkerProcess:
    process: Process
    sink_process: SinkProcess


class Driver:
    """One run of a query. Start `live` in `process`."""

    def __init__(self, world: DriverWorld, checkpoint: SimCheckpoint, topic: str, name: str, chance: Random) -> None:
        self._world = world
        self.checkpoint = checkpoint
        self._topic = topic
        self._name = name
        self._chance = chance
        self._parallelism = chance.randint(1, 4)
        self._worker_number = 0
        self._reported_error: CheckpointRolledBackError | None = None
        self._children: list[Process] = []
        self._planner: _WorkerProcess | None = None
        self._committer: _WorkerProcess | None = None
        self._executors: list[_WorkerProcess] = []
        self.process = world.process(name)

    # --- the query ---

    async def live(self) -> None:
        """Run batches until the input is used up. Raises the error that fails the query."""
        try:
            await self._batches()
        finally:
            self.leave_children()

    async def _batches(self) -> None:
        log = self.checkpoint
        batch = max(log.offsets, default=-1)
        replay = batch >= 0 and batch not in log.commits
        if not replay:
            batch += 1
        while True:
            await self._files()
            if not replay:
                if batch in log.offsets:
                    raise QueryFailed(f"another run has planned batch {batch}")
                start = log.offsets[batch - 1][1] if batch else 0
                if start >= log.rows:
                    return
                size = self._chance.choice((0, 1, 3, 6, 9, 12))
                log.offsets[batch] = (start, min(start + size, log.rows))
            replay = False
            await self._files()
            await self._batch(batch)
            await self._files()
            if batch in log.commits:
                raise QueryFailed(f"another run has committed batch {batch}")
            log.commits.add(batch)
            self._world.trace(f"{self._name} has batch {batch}, {log.offsets[batch]}, in its commit log")
            batch += 1

    async def _files(self) -> None:
        await self.process.runtime.sleep_ms(self._chance.uniform(1, 20))

    async def _batch(self, batch: int) -> None:
        if self._chance.random() < self._world.faults.driver_fault_chance:
            self._world.schedule_fault(self.process)
        stop = self._chance.random() < self._world.faults.stop_chance
        stop_in_write = stop and self._chance.random() < 0.5
        self._planner = self._worker("planner", self._planner if self._chance.random() < 0.8 else None)
        opened = await self._planner.process.start("open", self._planner.sink_process.open)
        planned = self.checkpoint.shown(batch)
        messages = await self._tasks(opened, batch, stop_in_write)
        failed = [message for message in messages if message is None]
        if failed:
            await self._abort(messages, opened)
            if self._reported_error is not None:
                raise self._reported_error
            raise QueryStopped if stop_in_write else QueryFailed(f"tasks of batch {batch} failed")
        worker = self._committer = self._worker("committer", self._committer)

        def saved() -> SourceOffsets | None:
            now = self.checkpoint.shown(batch)
            return now if planned is not None and now is not None and now.batch == planned.batch else None

        try:
            await worker.process.start(f"commit {batch}", lambda: worker.sink_process.commit(batch, messages, saved))
        except (KafkaError, ProcessLost):
            self._committer = None
            await self._abort(messages, opened)
            raise
        if stop and not stop_in_write:
            raise QueryStopped  # the commit has ended, but the commit log is not written

    async def _abort(self, messages: list[bytes | None], opened: bytes) -> None:
        worker = self._committer = self._worker("committer", self._committer)
        try:
            await worker.process.start("abort", lambda: worker.sink_process.abort(messages, opened))
        except SinkContradictionError:
            raise
        except (KafkaError, ProcessLost) as error:  # the first failure fails the query
            self._world.trace(f"{self._name} could not abort: {type(error).__name__}")

    # --- tasks ---

    async def _tasks(self, opened: bytes, batch: int, stop: bool) -> list[bytes | None]:
        """Return a message per partition.

        None stands for a task whose attempts all failed or were killed by q.stop().
        """
        values = self.checkpoint.values(batch)
        share = -(-len(values) // self._parallelism) or 1
        messages: list[SimFuture[bytes | None]] = [SimFuture() for _ in range(self._parallelism)]

        async def run(index: int) -> None:
            part = values[index * share : (index + 1) * share]
            try:
                messages[index].set_result(await self._partition(opened, batch, index, part, stop))
            except Exception as error:  # noqa: BLE001 (raised where the message is awaited)
                messages[index].set_error(error)

        for index in range(self._parallelism):
            self.process.runtime.spawn(run(index))
        return [await message for message in messages]

    async def _partition(
        self, opened: bytes, batch: int, index: int, values: tuple[str, ...], stop: bool
    ) -> bytes | None:
        faults, chance, runtime = self._world.faults, self._chance, self.process.runtime
        stop_at = runtime.now_ms() + chance.uniform(0, 200)
        for _ in range(ATTEMPTS):
            breaks = chance.random() < faults.broken_rows_chance
            task = TaskInput(
                self.checkpoint.query, batch, index, values, self._topic, breaks, chance.choice((0.0, 1.0, 50.0))
            )
            race = _Race(stop_at if stop else None, runtime.now_ms)
            runners = [self._attempt(opened, task, race)]
            if chance.random() < faults.speculation_chance:
                runtime.spawn(self._speculate(opened, task, race, chance.uniform(0, 150)))
            message = await race.winner
            self._end_losers(runners + race.copies)
            if message is not None:
                return message
            if stop and runtime.now_ms() >= stop_at:
                break
        return None

    def _attempt(self, opened: bytes, task: TaskInput, race: _Race) -> _WorkerProcess:
        worker = self._worker("task", self._idle_executor())
        self._executors.append(worker)
        done = worker.process.start(
            f"write {task.batch}/{task.partition}", lambda: worker.sink_process.write(opened, task)
        )
        race.enter()

        async def watch() -> None:
            try:
                race.arrived(await done)
            except (KafkaError, ProcessLost, RowsFailed) as error:
                self._world.trace(f"{worker.process.name} failed: {type(error).__name__}")
                if isinstance(error, CheckpointRolledBackError):
                    self._reported_error = error
                race.fell()

        self.process.runtime.spawn(watch())
        if race.stop_at is not None:
            self.process.runtime.spawn(self._stop(worker, race))
        return worker

    async def _speculate(self, opened: bytes, task: TaskInput, race: _Race, delay_ms: float) -> None:
        await self.process.runtime.sleep_ms(delay_ms)
        if not race.winner.done():
            race.copies.append(self._attempt(opened, task, race))

    async def _stop(self, worker: _WorkerProcess, race: _Race) -> None:
        await self.process.runtime.sleep_ms(max((race.stop_at or 0) - self.process.runtime.now_ms(), 0))
        if not race.winner.done():
            worker.process.kill()

    def _end_losers(self, runners: list[_WorkerProcess]) -> None:
        """Kill losing copies. Some are left running, as if they finished before the kill."""
        for worker in runners:
            if worker.process.busy and self._chance.random() < 0.6:
                worker.process.kill()

    def _idle_executor(self) -> _WorkerProcess | None:
        self._executors = [executor for executor in self._executors if executor.process.alive]
        idle = next((executor for executor in self._executors if not executor.process.busy), None)
        if idle is not None:
            self._executors.remove(idle)
        return idle

    # --- processes ---

    def _worker(self, role: str, known: _WorkerProcess | None) -> _WorkerProcess:
        """Return a process for the role: the known one if it is still usable."""
        if known is None or not known.process.alive or known.process.busy:
            self._worker_number += 1
            process = self._world.process(f"{self._name}.{role}{self._worker_number}")
            self._children.append(process)
            known = _WorkerProcess(process, self._world.sink_process(process, self.checkpoint.sink))
        self._world.schedule_fault(known.process)
        return known

    def leave_children(self) -> None:
        """Leave the driver's child processes behind. They die now or later, or finish their work first."""
        children, self._children = self._children, []
        for process in children:
            choice = self._chance.random()
            if not process.busy or choice < 0.5:
                process.kill()
            elif choice < 0.75:
                process.freeze(self._chance.uniform(100, 300_000))


class _Race:
    """Copies of one task. The first message wins; the result is None if all copies failed."""

    def __init__(self, stop_at: float | None, now_ms: Callable[[], int]) -> None:
        self.winner: SimFuture[bytes | None] = SimFuture()
        self.copies: list[_WorkerProcess] = []
        self.stop_at = stop_at
        self._running = 0

    def enter(self) -> None:
        self._running += 1

    def arrived(self, message: bytes) -> None:
        self._running -= 1
        self.winner.set_result(message)

    def fell(self) -> None:
        self._running -= 1
        if self._running == 0:
            self.winner.set_result(None)
