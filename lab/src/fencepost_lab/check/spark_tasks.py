"""The processes around a Spark driver: planner, task attempts and commit worker, each with its own client.

They exchange only bytes, as Spark exchanges pickles. The plans, the steps and the writing of rows are production code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.config import ProducerConfig
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink import plan, plan_abilities, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.content import content_of
from fencepost.spark.sink.decision import Content, SourceOffsets
from fencepost.spark.sink.names import UNIQUE_BYTES
from fencepost.spark.sink.rows import ProducerIdentity, producer_for, send_rows
from fencepost.spark.sink.steps import SinkConfig, StepRunner
from fencepost.spark.sink.task_ids import IdPool
from fencepost_lab.check.process import Process

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowsFailed", "SinkProcess", "TaskInput"]

T = TypeVar("T")
OwnStep = Callable[[Any], Coroutine[Any, Any, object]]

BATCH_BYTES: Final = 400


class RowsFailed(Exception):
    """The code that produces a row failed after earlier rows were written."""


@dataclass(frozen=True, slots=True)
class TaskInput:
    """One partition of a batch. `breaks`: an error follows its rows. `pause_ms`: the pause between chunks, in ms."""

    query_id: str
    batch: int
    partition: int
    values: tuple[str, ...]
    topic: str
    breaks: bool = False
    pause_ms: float = 0.0


class SinkProcess:
    """The sink's code in one process. `abilities` None: the sink asks the broker."""

    def __init__(
        self,
        process: Process,
        sink: str,
        abilities: BrokerAbilities | None,
        config: SinkConfig,
        chance: Random,
        trace: Callable[[str], None],
        pool: IdPool,
    ) -> None:
        self._process = process
        self._sink = sink
        self._abilities = abilities
        self._config = config
        self._chance = chance
        self._trace = trace
        self._task = ""
        self._steps = StepRunner(
            ClusterCalls(process.admin.cluster), config, lambda: unique_bytes(self._chance, self._task), pool
        )

    async def open(self) -> bytes:
        """Open the sink in the planning process, as pickling the writer does."""
        abilities = self._abilities
        if abilities is None:
            abilities = await self._run(plan_abilities.ask_abilities(self._sink, None), {})
        return pickle.dumps(await self._run(plan.open_sink(self._sink, abilities), {}))

    async def write(self, opened: bytes, task: TaskInput) -> bytes:
        """Run one task attempt."""
        self._task = f"{self._sink} {task.partition}"

        async def has_rows(step: plan_steps.HasRows) -> bool:
            return bool(task.values)

        async def drain(step: plan_steps.DrainRows) -> Content:
            await self._process.runtime.sleep_ms(1.0)
            return content_of(_arrow(task.values, keyed=False), task.topic)

        async def write_rows(step: plan_steps.WriteRows) -> Content:
            await self._write_rows(step, task)
            return content_of(_arrow(task.values, keyed=False), task.topic)

        steps = plan.write_task(pickle.loads(opened), task.query_id, task.batch)
        own: dict[type, OwnStep] = {
            plan_steps.HasRows: has_rows,
            plan_steps.DrainRows: drain,
            plan_steps.WriteRows: write_rows,
        }
        return pickle.dumps(await self._run(steps, own))

    async def commit(
        self, batch: int, messages: Sequence[bytes | None], offsets: Callable[[], SourceOffsets | None]
    ) -> bool:
        """Commit the batch in the commit worker, which can read the checkpoint."""

        async def save(step: plan_steps.SaveOffsets) -> SourceOffsets | None:
            return offsets()

        return await self._run(
            plan.commit_batch(self._sink, batch, _unpickled(messages)), {plan_steps.SaveOffsets: save}
        )

    async def abort(self, messages: Sequence[bytes | None], opened: bytes) -> plan_steps.AbortOutcome:
        """Abort the batch in the commit worker, which has the claim of the driver's `opened`."""
        own: plan_steps.OpenedSink = pickle.loads(opened)
        return await self._run(plan.abort_batch(self._sink, _unpickled(messages), own.claim), {})

    async def _run(self, steps: plan.Plan[T], own: dict[type, OwnStep]) -> T:
        """Run a plan as StepRunner.run does, with a task's own steps and a trace line for each step."""
        try:
            step = next(steps)
            while True:
                self._trace(f"{self._process.name}: {step}")
                own_step = own.get(type(step))
                try:
                    observation = await (own_step(step) if own_step is not None else self._steps.perform(step))
                except Exception as error:  # noqa: BLE001 - the plan decides
                    step = steps.throw(error)
                else:
                    self._trace(f"{self._process.name}: {type(step).__name__} -> {observation}")
                    step = steps.send(observation)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _write_rows(self, step: plan_steps.WriteRows, task: TaskInput) -> None:
        cluster = self._process.admin.cluster
        config = ProducerConfig.make(
            {
                "bootstrap_servers": "the cluster is known",  # not used
                "max_request_size": BATCH_BYTES,
                "delivery_timeout_ms": self._config.step_timeout_ms,
            }
        )
        producer = producer_for(cluster, config, ProducerIdentity(step.transactional_id, step.pair, step.verified))
        try:
            size = max(len(task.values) // 2, 1)
            for at in range(0, len(task.values), size):
                rows = _arrow(task.values[at : at + size], keyed=bool(at))
                await send_rows(producer, task.topic, rows, self._config.decision_topic)
                await self._process.runtime.sleep_ms(task.pause_ms)
            if task.breaks:
                raise RowsFailed(f"batch {task.batch}, partition {task.partition}")
            await producer.flush()
        finally:
            producer.stop()


def unique_bytes(chance: Random, task: str) -> bytes:
    """Return bytes that no other attempt gets. `task` names sink and partition, for plants that misuse it."""
    return chance.randbytes(UNIQUE_BYTES)


def _unpickled(messages: Sequence[bytes | None]) -> list[plan_steps.TaskResult | None]:
    return [None if message is None else pickle.loads(message) for message in messages]


def _arrow(values: Sequence[str], *, keyed: bool) -> pa.RecordBatch:
    import pyarrow as pa

    keys = [value if keyed else None for value in values]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string()), pa.array(values, pa.string())], ["key", "value"])
