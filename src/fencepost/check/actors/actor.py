"""An application of the simulated world: lives, one after the other, each in a process of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol, TypeVar

from fencepost.check.history import History, Outcome, Read, Transaction, Write
from fencepost.check.history.operations import Abort, Commit, Init, Operation
from fencepost.check.options import Options
from fencepost.check.process import Process, ProcessLost
from fencepost.check.scheduler import SimFuture, SimTask, TaskCancelled
from fencepost.check.sessions import Sessions
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

__all__ = ["FLEETING", "Actor", "ApplicationBroke", "Surroundings", "cut_short", "producer_in"]

T = TypeVar("T")

FLEETING: Final = TopicPartition("fleeting", 0)
"""Of a topic that operators delete and make anew: whatever is in it may be lost, so it is no part of the history."""
SUSPENSIONS_AT_MOST: Final = 12
CANCELLED_WITHIN_MS: Final = (3, 15, 60)
NO_TIMEOUT_MS: Final = 2**31 - 1
SHARE_OF_STRIKES: Final = 0.1
"""Of the chances of a second that a process is struck in each piece of its own work."""


class ApplicationBroke(Exception):
    """An exception of the application's own code in the middle of its work."""


class Surroundings(Protocol):
    """The world, as far as an actor uses it."""

    options: Options
    history: History

    @property
    def storming(self) -> bool:
        """True while faults strike. Afterwards the actors finish."""
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

    def places(self) -> list[TopicPartition]:
        """All partitions with records."""
        ...

    def process(self, name: str) -> Process: ...

    @property
    def sessions(self) -> Sessions:
        """The record of all uses of transactional ids."""
        ...

    def kill(self, process: Process) -> None:
        """Now: it takes no further step."""
        ...

    def pause(self, process: Process) -> None:
        """Let it stand still, now, for so long that others may have given it up."""
        ...

    def threaten(self, process: Process) -> None:
        """Perhaps have something happen to the process."""
        ...

    def trace(self, line: str) -> None: ...

    def strike(self, kind: str, line: str) -> None: ...

    async def rest(self) -> None:
        """The time after which an operator restarts a program, in ms."""
        ...

    def now_ms(self) -> int: ...

    def place_for(self, chance: Random) -> TopicPartition:
        """Choose a partition to write a record to."""
        ...

    def found(self, check: str, detail: str) -> None:
        """Something that must not be."""
        ...

    @property
    def replaceable(self) -> list[str]:
        """Transactional ids whose owners live on when somebody takes theirs away."""
        ...

    async def add_partition(self, admin: AdminCore) -> None:
        """One more partition for a topic that is written to."""
        ...

    async def replace_topic(self, admin: AdminCore) -> None:
        """Delete FLEETING's topic and make it anew."""
        ...

    async def change_settings(self, admin: AdminCore, chance: Random) -> None:
        """Another value for a setting that changes nothing about which records are kept."""
        ...

    def seen(self, read: Read) -> None:
        """A reader got a record."""
        ...


FALSE_HERE: Final = (
    DataLossError,
    CorruptRecordError,
    PreparedTransactionLostError,
    TransactionOutcomeUnknownError,
)


class Actor:
    """Lives until it has finished; killed or broken, it begins again as an operator would have it."""

    def __init__(self, world: Surroundings, name: str, chance: Random) -> None:
        self.name = name
        self.world = world
        self.chance = chance
        self.lives = 0
        self.doing = "nothing yet"
        """What is being waited for, since when: told when it never ends."""

    async def supervise(self) -> None:
        """Restart it until it has finished."""
        world = self.world
        while True:
            self.lives += 1
            process = world.process(self.name)
            ended = process.start("life", lambda process=process: self.live(process))  # type: ignore[misc]
            world.threaten(process)
            try:
                await ended
            except ProcessLost:
                world.trace(f"{self.name} begins again")
            except (KafkaError, ApplicationBroke) as error:
                world.trace(f"{self.name} gives up its clients: {type(error).__name__}: {error}")
                process.kill()
                await world.rest()
            else:
                process.kill()
                return

    async def live(self, process: Process) -> None:
        """One life. Returns when all is done; what it raises ends the life."""
        raise NotImplementedError

    async def claim(
        self, process: Process, config: ProducerConfig, what: str, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Make a call that initialises the transactional id."""
        # Where clocks are set forward, time may be over sooner than the history can tell.
        timeout_ms = NO_TIMEOUT_MS if config.two_phase_commit else config.transaction_timeout_ms
        known_ms = 0 if self.world.options.clock_jump_chance else timeout_ms
        init = Init(process=process.who, transactional_id=config.transactional_id or "", timeout_ms=known_ms)
        return await self.ask(process, what, init, work)

    async def ask(
        self, process: Process, what: str, operation: Operation, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Make a call, and write it down as that operation."""
        return await self.world.sessions.ask(operation, lambda: self.call(process, what, work))

    async def by_block(
        self,
        process: Process,
        what: str,
        producer: ProducerCore,
        consumer: ConsumerCore | None,
        name: str,
        fill: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """A transaction by `transaction()`, and how it ended written down. Raises what the block raises."""
        sessions, commit = self.world.sessions, Commit(process=process.who, transaction=name)

        async def work() -> None:
            async with TransactionBlock(producer, consumer):
                await fill()
                sessions.invoke(commit)

        try:
            await self.call(process, what, work)
        except (KafkaError, TaskCancelled) as error:
            over = not isinstance(error, FatalError | TaskCancelled) and not producer.abort_is_owed
            if commit.invoked:
                sessions.ended(commit, error, done=False)
            sessions.ended(sessions.invoke(Abort(process=process.who, transaction=name)), error, done=over)
            raise
        except ApplicationBroke:
            over = not producer.abort_is_owed
            sessions.ended(sessions.invoke(Abort(process=process.who, transaction=name)), done=over)
            raise
        sessions.ended(commit)

    async def call(self, process: Process, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call of a client, cancelled now and then: raises TaskCancelled then, and whatever the call does."""
        self.doing = f"{what} since {self.world.now_ms()}"
        try:
            return await self._cut_short_perhaps(process, what, work)
        except KafkaError as error:
            self._check_reason(error)
            raise

    def _check_reason(self, error: BaseException) -> None:
        """No broker here loses what it has acknowledged, or forgets how it ended: a client that says so is wrong."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, FALSE_HERE):
                self.world.found("false_loss", f"{self.name} was told: {cause}")
            cause = cause.__cause__

    async def _cut_short_perhaps(self, process: Process, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self.strikes(self.world.options.cancel_chance):
            return await work()
        if self.chance.random() < 0.5:
            suspension = self.chance.randint(1, SUSPENSIONS_AT_MOST)
            self.world.strike("calls cancelled", f"{self.name} will cancel {what} at its suspension {suspension}")
            return await cut_short(process, work(), lambda task: task.cancel_at(suspension))
        after_ms = self.chance.choice((0.0, *(self.chance.uniform(0, most) for most in CANCELLED_WITHIN_MS)))
        self.world.strike("calls cancelled", f"{self.name} will cancel {what} after {after_ms:.2f} ms")
        return await cut_short(process, work(), lambda task: process.clock.call_later(after_ms, task.cancel))

    def strikes(self, chance: float) -> bool:
        """Return true if a fault with that chance strikes. None does after the faults have ended."""
        return self.world.storming and chance > 0 and self.chance.random() < chance

    def perhaps_break(self) -> None:
        """Raises ApplicationBroke, now and then."""
        if self.strikes(self.world.options.raise_chance):
            raise ApplicationBroke(self.name)

    async def work(self, process: Process) -> None:
        """The application's own work, between two calls: it takes time, and a strike hurts most here."""
        options, sleep_ms = self.world.options, process.runtime.sleep_ms
        if self.strikes(options.kill_chance * SHARE_OF_STRIKES):
            self.world.kill(process)
        elif self.strikes(options.pause_chance * SHARE_OF_STRIKES):
            self.world.pause(process)
        if self.chance.random() < 0.3 or not process.busy or process.clock.frozen:
            await sleep_ms(self.chance.uniform(0, 30))
        self.perhaps_break()

    async def abort(self, process: Process, producer: ProducerCore, record: Transaction, name: str) -> None:
        """Until it is answered, which tells what became of the transaction."""
        while True:
            try:
                abort = Abort(process=process.who, transaction=name)
                await self.ask(process, "abort_transaction", abort, producer.abort_transaction)
            except TransactionCommittedError:
                record.outcome = Outcome.COMMITTED
                return
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} {record.number} abort: {type(error).__name__}: {error}")
            else:
                record.outcome = Outcome.ABORTED
                return

    def write(self, producer: ProducerCore, record: Transaction, place: TopicPartition, value: str) -> None:
        """Send a record of a transaction, and write it down first."""
        if place != FLEETING:
            record.writes.append(Write(place.topic, place.partition, value))
        key = value.encode() if self.world.options.compacted else None
        producer.append(place.topic, value.encode(), key, place.partition)


async def cut_short(process: Process, work: Coroutine[Any, Any, T], arrange: Callable[[SimTask], None]) -> T:
    """Do the work as a task, which `arrange` has cancelled some time, as `asyncio.timeout` would. Raises TaskCancelled
    when it was."""
    ended: SimFuture[T] = SimFuture()

    async def run() -> None:
        try:
            result = await work
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
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
    """A producer whose steps are its process's."""
    return ProducerCore(Cluster(process.runtime, config), config, wake=_at_once)


def _at_once(action: Callable[[], object]) -> object:
    """In a world of one thread, whatever is to run in the runtime runs where it is."""
    return action()
