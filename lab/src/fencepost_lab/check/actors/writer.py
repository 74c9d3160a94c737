"""An application with a transactional producer. It takes random steps and records their results."""

from __future__ import annotations

from typing import Final

from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import TopicPartition
from fencepost.config import ProducerConfig
from fencepost.errors import (
    AbortableError,
    KafkaError,
    RetriableError,
    TransactionCommitFailedError,
    TransactionCommittedError,
)
from fencepost_lab.check.actors.actor import Actor, ApplicationError, producer_in
from fencepost_lab.check.actors.looking import unseen
from fencepost_lab.check.history import Outcome, TransactionSummary
from fencepost_lab.check.history.operations import Commit, SendOffsets
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["POSITIONS_OF", "TransactionalWriter"]

POSITIONS_OF: Final = TopicPartition("elsewhere", 0)
"""Partition that the writers' committed positions refer to. Each writer has a group of its own name."""


class _Abandoned(ApplicationError):
    """The application decides to abandon its transaction."""


class TransactionalWriter(Actor):
    """An application that draws each transaction at random: records, partitions, offsets, commit or abort.

    It uses single calls or `transaction()`.
    """

    _transactions = 0
    _position = 0

    async def live(self, process: Process) -> None:
        """Write until the storm is over."""
        config = ProducerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            transactional_id=self.name,
            transaction_timeout_ms=self.chance.choice(self._timeouts_ms()),
            metadata_max_age_ms=5_000,
            linger_ms=self.chance.choice((0, 5)),
            # 1 makes a batch of each record, so that several are in flight
            batch_size=self.chance.choice((1, 262_144)),
            max_block_ms=self.chance.choice((100, 1_000, 60_000)),
        )
        producer = producer_in(process, config)
        await self._ready(process, producer, config)
        by_block = self.chance.random() < 0.5
        while self.world.has_faults:
            self._transactions += 1
            # ABORTED until the commit is requested, because no reader may see the transaction before.
            record = TransactionSummary(self.name, self._transactions, outcome=Outcome.ABORTED)
            self.world.history.transactions.append(record)
            name = self.world.sessions.begin(process.life_name, self.name, record.number)
            if by_block:
                await self._block(process, producer, record, name)
            else:
                await self._by_calls(process, producer, record, name)
            self.world.trace(f"{self.name} {record.number} {record.outcome.value}")
            if record.outcome is Outcome.COMMITTED:
                await self._check_visible(process, record)
        await self.call(process, "close", lambda: producer.close(10_000))

    async def _check_visible(self, process: Process, record: TransactionSummary) -> None:
        """Check that a reader sees the whole transaction. A disk error that delays a marker is no defect."""
        options = self.world.options
        if not options.look_chance or options.disk_fails or self.chance.random() >= options.look_chance:
            return
        try:
            message = await self.call(process, "look", lambda: unseen(process.admin, record, POSITIONS_OF))
        except (KafkaError, TaskCancelled) as error:
            self.world.trace(f"{self.name} look: {type(error).__name__}: {error}")
            return
        if message is not None:
            self.world.found("commit_not_seen", f"{self.name} {record.number} is committed, and {message}")

    def _timeouts_ms(self) -> tuple[int, ...]:
        given = self.world.options.transaction_timeout_ms
        return (given,) if given else (2_000, 60_000)

    async def _ready(self, process: Process, producer: ProducerCore, config: ProducerConfig) -> None:
        while True:
            try:
                await self.claim(process, config, "init_transactions", producer.init_transactions)
                return
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} init_transactions: {type(error).__name__}")

    async def _by_calls(self, process: Process, producer: ProducerCore, record: TransactionSummary, name: str) -> None:
        try:
            producer.begin_transaction()
            await self._fill(process, producer, record, name)
            if self.chance.random() < 0.75:
                record.outcome = Outcome.UNKNOWN
                await self._commit(process, producer, name)
                record.outcome = Outcome.COMMITTED
                return
        except (AbortableError, RetriableError, ApplicationError, TaskCancelled) as error:
            self.world.trace(f"{self.name} {record.number} failed: {type(error).__name__}: {error}")
        await self.abort(process, producer, record, name)

    async def _commit(self, process: Process, producer: ProducerCore, name: str) -> None:
        """Commit. A failure is fatal or a TransactionCommitFailedError, which tells if the outcome is unknown."""
        try:
            commit = Commit(process=process.life_name, transaction=name)
            await self.ask(process, "commit_transaction", commit, producer.commit_transaction)
        except (AbortableError, RetriableError) as error:
            if not isinstance(error, TransactionCommitFailedError):
                message = f"{self.name} was told by commit_transaction: {type(error).__name__}: {error}"
                self.world.found("undocumented_error", message)
            raise

    async def _block(self, process: Process, producer: ProducerCore, record: TransactionSummary, name: str) -> None:
        async def fill() -> None:
            await self._fill(process, producer, record, name)
            if self.chance.random() > 0.75:
                raise _Abandoned
            record.outcome = Outcome.UNKNOWN

        try:
            await self.by_block(process, "transaction()", producer, None, name, fill)
        except ApplicationError:
            return
        except TransactionCommittedError as error:
            # The error concerns this block's commit, or an earlier block's whose abort came too late. The latter is
            # unknown here.
            self.world.trace(f"{self.name} {record.number} after all: {error}")
        except TaskCancelled:
            self.world.trace(f"{self.name} {record.number} cancelled")
        except (AbortableError, RetriableError) as error:
            self.world.trace(f"{self.name} {record.number} failed: {type(error).__name__}: {error}")
            if getattr(error, "outcome_unknown", None) is False and not producer.abort_is_pending:
                record.outcome = Outcome.ABORTED
        else:
            record.outcome = Outcome.COMMITTED

    async def _fill(self, process: Process, producer: ProducerCore, record: TransactionSummary, name: str) -> None:
        """Take the random steps of one transaction."""
        sleep_ms = process.runtime.sleep_ms
        for index in range(self.chance.randint(1, 6)):
            self.write(
                producer, record, self.world.random_partition(self.chance), f"{self.name}-{record.number}-{index}"
            )
            await self.work(process)
            if self.chance.random() < 0.005:
                await sleep_ms(5_000)  # longer than the shorter transaction timeout
        if self.chance.random() < 0.5:
            self._position += 1
            record.offsets[self.name] = position = self._position
            await self.ask(
                process,
                "send_offsets_to_transaction",
                SendOffsets(process=process.life_name, transaction=name, group=self.name, offsets=[]),
                lambda: producer.send_offsets_to_transaction({POSITIONS_OF: position}, self.name),
            )
