"""Base class of the applications in the simulated world. An actor has several lives, each in its own process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol, TypeVar

from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.client.types import TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import (
    CorruptRecordError,
    DataLossError,
    FatalError,
    KafkaError,
    PreparedTransactionLostError,
    RetriableError,
    TransactionCommittedError,
    TransactionOutcomeUnknownError,
)
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost_lab.check.history import Outcome, RecordRead, RecordWrite, Summary, TransactionSummary
from fencepost_lab.check.history.operations import Abort, Commit, Init, Operation
from fencepost_lab.check.options import SimulationOptions
from fencepost_lab.check.process import Process, ProcessLost
from fencepost_lab.check.scheduler import SimFuture, SimTask, TaskCancelled
from fencepost_lab.check.transactional_id_recorder import TransactionalIdRecorder

__all__ = ["FLEETING", "Actor", "ActorWorld", "ApplicationError", "cancelled_early", "producer_in"]

T = TypeVar("T")

FLEETING: Final = TopicPartition("fleeting", 0)
"""A partition of a topic that operators delete and recreate.

Its records may be lost, so the history leaves them out.
"""
SUSPENSIONS_AT_MOST: Final = 12
CANCELLED_WITHIN_MS: Final = (3, 15, 60)
SHARE_OF_FAULTS: Final = 0.1
"""Fraction of the kill and pause chance per second with which a fault hits one piece of the actor's own work."""


class ApplicationError(Exception):
    """An exception of the application's own code in the middle of its work."""


class ActorWorld(Protocol):
    """The world, as far as an actor uses it."""

    options: SimulationOptions
    history: Summary

    @property
    def has_faults(self) -> bool:
        """True while faults are injected. Afterwards the actors finish."""
        ...

    @property
    def drained(self) -> bool:
        """True if consumers have nothing left to do."""
        ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The ends of the partitions, once all is drained."""
        ...

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that actors write records to."""
        ...

    def process(self, name: str) -> Process: ...

    @property
    def sessions(self) -> TransactionalIdRecorder:
        """The record of all uses of transactional ids."""
        ...

    def kill(self, process: Process) -> None:
        """Kill the process immediately; it takes no further step."""
        ...

    def pause(self, process: Process) -> None:
        """Freeze the process immediately, for longer than other clients may wait for it."""
        ...

    def schedule_fault(self, process: Process) -> None:
        """Schedule a random fault for the process."""
        ...

    def trace(self, line: str) -> None: ...

    def record_fault(self, kind: str, line: str) -> None: ...

    async def rest(self) -> None:
        """Sleep as long as an operator takes to restart a program."""
        ...

    def now_ms(self) -> int: ...

    def random_partition(self, chance: Random) -> TopicPartition:
        """Choose a partition to write a record to."""
        ...

    def found(self, check: str, detail: str) -> None:
        """Report an anomaly: the name of the check, and a description."""
        ...

    @property
    def replaceable(self) -> list[str]:
        """Transactional ids whose owners survive when another client takes the id over."""
        ...

    async def add_partition(self, admin: AdminCore) -> None:
        """Add a partition to a topic that actors write to."""
        ...

    async def replace_topic(self, admin: AdminCore) -> None:
        """Delete the topic of FLEETING and recreate it."""
        ...

    async def change_settings(self, admin: AdminCore, chance: Random) -> None:
        """Change a topic or broker setting that does not affect which records are retained."""
        ...

    def seen(self, read: RecordRead) -> None:
        """Judge a record that a reader received."""
        ...


FALSE_HERE: Final = (
    DataLossError,
    CorruptRecordError,
    PreparedTransactionLostError,
    TransactionOutcomeUnknownError,
)


class Actor:
    """An application that runs until it has finished. After a kill or an error the simulated operator restarts it."""

    def __init__(self, world: ActorWorld, name: str, chance: Random) -> None:
        self.name = name
        self.world = world
        self.chance = chance
        self.lives = 0
        self.doing = "nothing yet"
        """The call in progress and its start time. The report quotes it if the call never ends."""

    async def supervise(self) -> None:
        """Restart the actor until one life returns."""
        world = self.world
        while True:
            self.lives += 1
            process = world.process(self.name)
            ended = process.start("life", lambda process=process: self.live(process))  # type: ignore[misc]
            world.schedule_fault(process)
            try:
                await ended
            except ProcessLost:
                world.trace(f"{self.name} begins again")
            except (KafkaError, ApplicationError) as error:
                world.trace(f"{self.name} gives up its clients: {type(error).__name__}: {error}")
                process.kill()
                await world.rest()
            else:
                process.kill()
                return

    async def live(self, process: Process) -> None:
        """Run one life. Return when all work is done; an exception ends the life."""
        raise NotImplementedError

    async def claim(
        self, process: Process, config: ProducerConfig, call_name: str, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Make a call that initialises the transactional id."""
        # If the clock may jump forward, a timeout can pass earlier than the history shows, so it is recorded as
        # unknown.
        timeout_ms = NO_TIMEOUT_MS if config.two_phase_commit else config.transaction_timeout_ms
        known_ms = 0 if self.world.options.clock_jump_chance else timeout_ms
        init = Init(process=process.life_name, transactional_id=config.transactional_id or "", timeout_ms=known_ms)
        return await self.ask(process, call_name, init, work)

    async def ask(
        self, process: Process, call_name: str, operation: Operation, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Make a call and record it in the history as `operation`."""
        return await self.world.sessions.ask(operation, lambda: self.call(process, call_name, work))

    async def by_block(
        self,
        process: Process,
        call_name: str,
        producer: ProducerCore,
        consumer: ConsumerCore | None,
        name: str,
        fill: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run a transaction in a `transaction()` block and record its outcome. Raises what the block raises."""
        sessions, commit = self.world.sessions, Commit(process=process.life_name, transaction=name)

        async def work() -> None:
            async with TransactionBlock(producer, consumer):
                await fill()
                sessions.invoke(commit)

        try:
            await self.call(process, call_name, work)
        except (KafkaError, TaskCancelled) as error:
            over = not isinstance(error, FatalError | TaskCancelled) and not producer.abort_is_pending
            if commit.invoked:
                sessions.ended(commit, error, done=False)
            sessions.ended(sessions.invoke(Abort(process=process.life_name, transaction=name)), error, done=over)
            raise
        except ApplicationError:
            over = not producer.abort_is_pending
            sessions.ended(sessions.invoke(Abort(process=process.life_name, transaction=name)), done=over)
            raise
        sessions.ended(commit)

    async def call(self, process: Process, call_name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a client call and sometimes cancel it.

        Raises TaskCancelled after a cancellation, and what the call raises.
        """
        self.doing = f"{call_name} since {self.world.now_ms()}"
        try:
            return await self._cancel_by_chance(process, call_name, work)
        except KafkaError as error:
            self._check_reason(error)
            raise

    def _check_reason(self, error: BaseException) -> None:
        """Report an error that claims data loss or a forgotten outcome. The simulated broker never causes either."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, FALSE_HERE):
                self.world.found("false_loss", f"{self.name} was told: {cause}")
            cause = cause.__cause__

    async def _cancel_by_chance(
        self, process: Process, call_name: str, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        if not self.draws_fault(self.world.options.cancel_chance):
            return await work()
        if self.chance.random() < 0.5:
            suspension = self.chance.randint(1, SUSPENSIONS_AT_MOST)
            self.world.record_fault(
                "calls cancelled", f"{self.name} will cancel {call_name} at its suspension {suspension}"
            )
            return await cancelled_early(process, work(), lambda task: task.cancel_at(suspension))
        after_ms = self.chance.choice((0.0, *(self.chance.uniform(0, most) for most in CANCELLED_WITHIN_MS)))
        self.world.record_fault("calls cancelled", f"{self.name} will cancel {call_name} after {after_ms:.2f} ms")
        return await cancelled_early(process, work(), lambda task: process.clock.call_later(after_ms, task.cancel))

    def draws_fault(self, chance: float) -> bool:
        """Draw a fault with that chance. Return false after the faults have ended."""
        return self.world.has_faults and chance > 0 and self.chance.random() < chance

    def break_by_chance(self) -> None:
        """Raise ApplicationError by chance."""
        if self.draws_fault(self.world.options.raise_chance):
            raise ApplicationError(self.name)

    async def work(self, process: Process) -> None:
        """Simulate the application's work between two calls.

        It takes time, and faults have a higher chance here.
        """
        options, sleep_ms = self.world.options, process.runtime.sleep_ms
        if self.draws_fault(options.kill_chance * SHARE_OF_FAULTS):
            self.world.kill(process)
        elif self.draws_fault(options.pause_chance * SHARE_OF_FAULTS):
            self.world.pause(process)
        if self.chance.random() < 0.3 or not process.busy or process.clock.frozen:
            await sleep_ms(self.chance.uniform(0, 30))
        self.break_by_chance()

    async def abort(self, process: Process, producer: ProducerCore, record: TransactionSummary, name: str) -> None:
        """Abort the transaction. Repeat until an answer arrives, and record the outcome from it."""
        while True:
            try:
                abort = Abort(process=process.life_name, transaction=name)
                await self.ask(process, "abort_transaction", abort, producer.abort_transaction)
            except TransactionCommittedError:
                record.outcome = Outcome.COMMITTED
                return
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} {record.number} abort: {type(error).__name__}: {error}")
            else:
                record.outcome = Outcome.ABORTED
                return

    def write(self, producer: ProducerCore, record: TransactionSummary, partition: TopicPartition, value: str) -> None:
        """Record a write in the transaction, then append it to the producer."""
        if partition != FLEETING:
            record.writes.append(RecordWrite(partition.topic, partition.partition, value))
        key = value.encode() if self.world.options.compacted else None
        producer.append(partition.topic, value.encode(), key, partition.partition)


async def cancelled_early(process: Process, work: Coroutine[Any, Any, T], arrange: Callable[[SimTask], None]) -> T:
    """Run `work` as a task that `arrange` schedules a cancellation for, as `asyncio.timeout` does.

    Raises TaskCancelled if the cancellation took effect.
    """
    ended: SimFuture[T] = SimFuture()

    async def run() -> None:
        try:
            result = await work
        except BaseException as error:  # noqa: BLE001 (passed to the waiting task)
            ended.set_error(error)
        else:
            ended.set_result(result)

    task = process.clock.spawn(run())
    arrange(task)
    try:
        return await ended
    finally:
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:  # the process died before the work began
            work.close()


def producer_in(process: Process, config: ProducerConfig) -> ProducerCore:
    """Return a producer whose actions run as steps of the process."""
    return ProducerCore(Cluster(process.runtime, config), config, wake=_at_once)


def _at_once(action: Callable[[], object]) -> object:
    """Run the action directly. The simulation has one thread, so no hand-over to the runtime is needed."""
    return action()
