"""An application with two-phase commit (KIP-939): it prepares a transaction, stores a decision, and completes it.

A stored decision must take effect, no matter which process is killed. The transaction is completed by the producer, by
its successor, or by an external coordinator that knows only the id and the stored token.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.client.prepared import PreparedTransaction
from fencepost.client.producer.core import ProducerCore
from fencepost.config import ProducerConfig
from fencepost.errors import AbortableError, KafkaError, RetriableError
from fencepost_lab.check.actors.actor import Actor, ActorWorld, ApplicationError, producer_in
from fencepost_lab.check.history import Outcome, TransactionSummary
from fencepost_lab.check.history.operations import Abort, Commit, Prepare
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["Decider"]

T = TypeVar("T")


SLOW_ENDS: Final = 0.05
SLOW_MS: Final = (1_000.0, 90_000.0)
"""Range of pauses in ms. A prepared transaction must stay open until it is decided."""


class _Decision(NamedTuple):
    """A decision as stored in the application's own database."""

    token: str
    commit: bool
    transaction: str
    """name of the transaction in the recorded sessions"""


class Decider(Actor):
    """An application that begins each life by carrying out the stored decision, as the two-phase recipe demands."""

    _transactions = 0
    _stored: _Decision | None = None

    def __init__(self, world: ActorWorld, name: str, chance: Random) -> None:
        super().__init__(world, name, chance)
        self._carried_out: list[_Decision] = []

    async def live(self, process: Process) -> None:
        """Decide until the storm is over."""
        life = self.lives
        config = ProducerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            transactional_id=self.name,
            two_phase_commit=True,
            max_block_ms=self.chance.choice((1_000, 60_000)),
        )
        producer = producer_in(process, config)
        await self._resume(process, producer, config)
        while self.world.has_faults:
            await self._transaction(process, producer, life)
        await self.call(process, "close", lambda: producer.close(10_000))

    async def _resume(self, process: Process, producer: ProducerCore, config: ProducerConfig) -> None:
        what = "init_transactions(keep_prepared)"
        prepared = await self._patiently(
            what, lambda: self.claim(process, config, what, lambda: producer.init_transactions(keep_prepared=True))
        )
        stored = self._stored
        if stored is not None and stored.commit:
            await self._commit_as_stored(process, producer, stored)
        elif prepared is not None:
            what = "abort_transaction"
            await self._patiently(what, lambda: self.call(process, what, producer.abort_transaction))
        if stored is not None:
            self._noted_as_done(stored)
        self._stored = None

    def _noted_as_done(self, stored: _Decision) -> None:
        self._carried_out.append(stored)
        if self.chance.random() < 0.2:
            self._complete_outside(self.chance.choice(self._carried_out))  # simulates a restored checkpoint
        if self.draws_fault(0.2):
            raise ApplicationError("it ends before it clears the stored decision")

    async def _commit_as_stored(self, process: Process, producer: ProducerCore, stored: _Decision) -> None:
        try:
            commit = Commit(process=process.life_name, transaction=stored.transaction)
            complete = partial(producer.complete_transaction, stored.token)
            await self.ask(process, "complete_transaction", commit, complete)
        except (AbortableError, RetriableError, TaskCancelled) as error:
            raise ApplicationError(f"complete_transaction: {type(error).__name__}: {error}") from error

    async def _patiently(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await work()
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} {what}: {type(error).__name__}: {error}")

    async def _transaction(self, process: Process, producer: ProducerCore, life: int) -> None:
        self._transactions += 1
        record = TransactionSummary(self.name, self._transactions, outcome=Outcome.ABORTED)
        self.world.history.transactions.append(record)
        name = self.world.sessions.begin(process.life_name, self.name, record.number)
        try:
            producer.begin_transaction()
            for index in range(self.chance.randint(1, 4)):
                value = f"{self.name}-{record.number}-{index}"
                self.write(producer, record, self.world.random_partition(self.chance), value)
            await self.work(process)
            prepare = Prepare(process=process.life_name, transaction=name)
            token = await self.ask(process, "prepare_transaction", prepare, producer.prepare_transaction)
        except (AbortableError, RetriableError, ApplicationError, TaskCancelled) as error:
            self.world.trace(f"{self.name} {record.number} failed: {type(error).__name__}: {error}")
            await self._abort(process, producer, name)
            return
        if life != self.lives:
            raise ApplicationError("the database has another owner that read it before this decision")
        self._stored = stored = _Decision(str(token), self.chance.random() < 0.7, name)
        record.outcome = Outcome.COMMITTED if stored.commit else Outcome.ABORTED
        self.world.trace(f"{self.name} {record.number} decided: {record.outcome.value} {stored.token}")
        if self.chance.random() < 0.4:
            self._complete_outside(stored)
            await process.runtime.sleep_ms(self.chance.uniform(0, 50))
        await self.work(process)
        if self.draws_fault(SLOW_ENDS):
            await process.runtime.sleep_ms(self.chance.uniform(*SLOW_MS))
        if stored.commit:
            await self._commit_as_stored(process, producer, stored)
        else:
            await self._abort(process, producer, name)
        self._noted_as_done(stored)
        if life == self.lives:
            self._stored = None

    async def _abort(self, process: Process, producer: ProducerCore, name: str) -> None:
        def ask() -> Coroutine[Any, Any, None]:
            abort = Abort(process=process.life_name, transaction=name)
            return self.ask(process, "abort_transaction", abort, producer.abort_transaction)

        await self._patiently("abort_transaction", ask)

    def _complete_outside(self, stored: _Decision) -> None:
        """Complete the transaction as an external coordinator that knows only the id and the token, possibly late."""
        outside = self.world.process("outside")
        after_ms = self.chance.choice((0.0, self.chance.uniform(0, 20), self.chance.uniform(0, 3_000)))

        async def complete() -> None:
            await outside.runtime.sleep_ms(after_ms)
            try:
                token = PreparedTransaction.parse(stored.token)
                end = (Commit if stored.commit else Abort)(process=outside.life_name, transaction=stored.transaction)
                complete = partial(outside.admin.complete, self.name, token, commit=stored.commit)
                await self.world.sessions.ask(end, complete)
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"outside {stored.token}: {type(error).__name__}")
            except KafkaError as error:
                self.world.found("false_outcome", f"a decision about {stored.token} that may be repeated: {error}")

        outside.start("complete", complete)
