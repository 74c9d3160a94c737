"""Two phases, decided elsewhere (KIP-939): an application that prepares, stores its decision, and completes.

Its decision is what counts: once it is stored, the transaction has to end that way, whoever is killed when, and whoever
completes it: the producer, its successor, or a coordinator outside that knows only the id and the stored token.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.check.actors.actor import Actor, ApplicationBroke, producer_in
from fencepost.check.history import Outcome, Transaction
from fencepost.check.process import Process
from fencepost.check.scheduler import TaskCancelled
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.producer.core import ProducerCore
from fencepost.config import ProducerConfig
from fencepost.errors import AbortableError, KafkaError, PreparedTransactionLostError, RetriableError

__all__ = ["Decider"]

T = TypeVar("T")


SLOW_ENDS: Final = 0.05
SLOW_MS: Final = (1_000.0, 90_000.0)
"""Nothing may happen to what is prepared until somebody says so."""


class _Decision(NamedTuple):
    """What the application's own database holds."""

    token: str
    commit: bool


class Decider(Actor):
    """Each life first does what the database says, as the recipe for two phases has it."""

    _transactions = 0
    _stored: _Decision | None = None

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
        await self._resume(process, producer)
        while self.world.storming:
            await self._transaction(process, producer, life)
        await self.call(process, "close", lambda: producer.close(10_000))

    async def _resume(self, process: Process, producer: ProducerCore) -> None:
        kept = await self._patiently(
            process, "init_transactions(keep_prepared)", lambda: producer.init_transactions(keep_prepared=True)
        )
        stored = self._stored
        if stored is not None and stored.commit:
            await self._commit_as_stored(process, producer, stored)
        elif kept is not None:
            await self._patiently(process, "abort_transaction", producer.abort_transaction)
        self._stored = None

    async def _commit_as_stored(self, process: Process, producer: ProducerCore, stored: _Decision) -> None:
        try:
            await self.call(process, "complete_transaction", lambda: producer.complete_transaction(stored.token))
        except PreparedTransactionLostError as error:
            # A life before that saw the commit and died without writing it down used that evidence up. What was decided
            # is judged by the records.
            self.world.trace(f"{self.name} {stored.token} was to be committed: {error}")
        except (AbortableError, RetriableError, TaskCancelled) as error:
            raise ApplicationBroke(f"complete_transaction: {type(error).__name__}: {error}") from error

    async def _patiently(self, process: Process, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await self.call(process, what, work)
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} {what}: {type(error).__name__}: {error}")

    async def _transaction(self, process: Process, producer: ProducerCore, life: int) -> None:
        self._transactions += 1
        record = Transaction(self.name, self._transactions, outcome=Outcome.ABORTED)
        self.world.history.transactions.append(record)
        try:
            producer.begin_transaction()
            for index in range(self.chance.randint(1, 4)):
                value = f"{self.name}-{record.number}-{index}"
                self.write(producer, record, self.world.place_for(self.chance), value)
            await self.work(process)
            token = await self.call(process, "prepare_transaction", producer.prepare_transaction)
        except (AbortableError, RetriableError, ApplicationBroke, TaskCancelled) as error:
            self.world.trace(f"{self.name} {record.number} failed: {type(error).__name__}: {error}")
            await self._patiently(process, "abort_transaction", producer.abort_transaction)
            return
        if life != self.lives:
            raise ApplicationBroke("the database has another owner, who looked before this decision")
        self._stored = stored = _Decision(str(token), self.chance.random() < 0.7)
        record.outcome = Outcome.COMMITTED if stored.commit else Outcome.ABORTED
        self.world.trace(f"{self.name} {record.number} decided: {record.outcome.value} {stored.token}")
        if self.chance.random() < 0.4:
            self._complete_outside(stored)
            await process.runtime.sleep_ms(self.chance.uniform(0, 50))
        await self.work(process)
        if self.strikes(SLOW_ENDS):
            await process.runtime.sleep_ms(self.chance.uniform(*SLOW_MS))
        if stored.commit:
            await self._commit_as_stored(process, producer, stored)
        else:
            await self._patiently(process, "abort_transaction", producer.abort_transaction)
        if life == self.lives:
            self._stored = None

    def _complete_outside(self, stored: _Decision) -> None:
        """Somebody who knows the id and what was stored; he may come late."""
        outside = self.world.process("outside")
        after_ms = self.chance.choice((0.0, self.chance.uniform(0, 20), self.chance.uniform(0, 3_000)))

        async def complete() -> None:
            await outside.runtime.sleep_ms(after_ms)
            try:
                token = PreparedTransaction.parse(stored.token)
                await outside.admin.complete(self.name, token, commit=stored.commit)
            except KafkaError as error:  # it was completed before, and the id has moved on
                self.world.trace(f"outside {stored.token}: {type(error).__name__}")

        outside.start("complete", complete)
