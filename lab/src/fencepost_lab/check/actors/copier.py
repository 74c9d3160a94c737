"""Consume, transform, produce: a member of a group that copies the input to the output, exactly once (KIP-447)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final

from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.producer.core import ProducerCore
from fencepost.client.records import Record
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.config import ConsumerConfig, ProducerConfig
from fencepost.errors import AbortableError, FatalError, RetriableError, TransactionCommittedError
from fencepost_lab.check.actors.actor import Actor, ApplicationError, producer_in
from fencepost_lab.check.history import Outcome, TransactionSummary
from fencepost_lab.check.history.operations import Commit
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import TaskCancelled

__all__ = ["COPIES_OF", "GROUP", "INPUT", "OUTPUT", "OUTPUT_PARTITIONS", "Copier"]

GROUP: Final = "copiers"
INPUT: Final = "input"
OUTPUT: Final = "output"
OUTPUT_PARTITIONS: Final = 2
COPIES_OF: Final = " in "
"""Separator in a copy's value.

The value is the input's value, this text, and the copy's number within its life, so that values are unique.
"""


Work = Callable[[Process, ProducerCore, ConsumerCore, list[Record], TransactionSummary, str], Coroutine[Any, Any, None]]

EARLY_OFFSETS: Final = 0.2
"""Chance that positions are also sent before the work, so that they are pending during it."""
HALVES: Final = 0.1
SLOW_ROUNDS: Final = 0.03
SLOW_MS: Final = (500.0, 9_000.0)
"""Range of pauses in ms. They are long enough for the member to be removed, or for another member to join."""


class Copier(Actor):
    """The loop of `examples/consume_transform_produce.py`. Each life has its own producer and transactional id."""

    producer_name = ""
    """The transactional id of the current life."""
    _producers = 0
    _transactions = 0
    _at_first: GroupMetadata | None = None

    async def live(self, process: Process) -> None:
        """Copy until nothing is left to copy."""
        consumer = self._consumer(process)
        producer = await self._producer(process)
        copy = self._copy if self.chance.random() < 0.7 else self._copy_by_calls
        await consumer.subscribe([INPUT])
        while not self.world.drained:
            try:
                await self._round(process, consumer, producer, copy)
            except FatalError as error:
                if self.chance.random() < 0.5:
                    raise
                self.world.trace(f"{self.name} takes another producer: {type(error).__name__}: {error}")
                producer = await self._producer(process)
        await self.call(process, "close of the producer", producer.close)
        await self.call(process, "close of the consumer", consumer.close)

    async def _producer(self, process: Process) -> ProducerCore:
        """Create a producer with a new transactional id, because an earlier life may still be running."""
        self._producers += 1
        self.producer_name = f"{self.name}#{self._producers}"
        config = ProducerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            transactional_id=self.producer_name,
            transaction_timeout_ms=self.chance.choice((2_000, 10_000, 60_000)),
            max_block_ms=self.chance.choice((100, 1_000, 60_000)),
        )
        producer = producer_in(process, config)
        while True:
            try:
                await self.claim(process, config, "init_transactions", producer.init_transactions)
            except (RetriableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} init_transactions: {type(error).__name__}")
            else:
                return producer

    def _consumer(self, process: Process) -> ConsumerCore:
        protocol = self.world.options.group_protocol
        if protocol == "mixed":
            protocol = self.chance.choice(("classic", "consumer"))
        classic = protocol == "classic"
        config = ConsumerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            metadata_max_age_ms=5_000,
            group_protocol=protocol,
            max_poll_records=self.chance.choice((3, 500)),
            max_poll_interval_ms=self.chance.choice((10_000, 300_000)),
            session_timeout_ms=6_000 if classic else 45_000,  # else the broker's counts
            heartbeat_interval_ms=1_000 if classic else 3_000,
        )
        return ConsumerCore(Cluster(process.runtime, config), config)

    async def _round(self, process: Process, consumer: ConsumerCore, producer: ProducerCore, work: Work) -> None:
        options = self.world.options
        try:
            records = await self.call(process, f"poll ({consumer.state()})", lambda: consumer.poll(500))
        except (RetriableError, AbortableError, TaskCancelled) as error:
            self.world.trace(f"{self.name} poll: {type(error).__name__}: {error}")
            return
        gathers = records and self.chance.random() < options.second_poll_chance
        if gathers and not await self._gather(process, consumer, records):
            return
        if records and self.chance.random() < HALVES:  # the iteration ends early
            records = list(islice(consumer.one_by_one(records), (len(records) + 1) // 2))
        if not records:
            return
        self._transactions += 1
        copy = TransactionSummary(producer.config.transactional_id or "", self._transactions, outcome=Outcome.ABORTED)
        self.world.history.transactions.append(copy)
        name = self.world.sessions.begin(process.life_name, copy.producer, copy.number)
        try:
            await work(process, producer, consumer, records, copy, name)
            copy.outcome = Outcome.COMMITTED
        except TransactionCommittedError as error:
            self.world.trace(f"{self.name} {copy.number} after all: {error}")
        except (AbortableError, RetriableError, ApplicationError, TaskCancelled) as error:
            self.world.trace(f"{self.name} {copy.number} failed: {type(error).__name__}: {error}")
            if getattr(error, "outcome_unknown", None) is False and not producer.abort_is_pending:
                copy.outcome = Outcome.ABORTED
            if work == self._copy_by_calls:
                await self.abort(process, producer, copy, name)
        first, last = records[0], records[-1]
        what = f"{len(records)} from {first.partition}@{first.offset} to {last.partition}@{last.offset}"
        self.world.trace(f"{self.name} {copy.number} {copy.outcome.value}: {what}")

    async def _gather(self, process: Process, consumer: ConsumerCore, records: list[Record]) -> bool:
        """Poll for `gather_ms` longer, for the same transaction. Return false if a poll failed."""
        until_ms = process.runtime.now_ms() + self.world.options.gather_ms
        while True:
            try:
                records += await self.call(process, f"second poll ({consumer.state()})", lambda: consumer.poll(100))
            except (RetriableError, AbortableError, TaskCancelled) as error:
                self.world.trace(f"{self.name} second poll: {type(error).__name__}: {error}")
                consumer.forget_positions()
                return False
            if process.runtime.now_ms() >= until_ms:
                return True

    async def _copy(
        self,
        process: Process,
        producer: ProducerCore,
        consumer: ConsumerCore,
        records: list[Record],
        copy: TransactionSummary,
        name: str,
    ) -> None:
        async def fill() -> None:
            now = consumer.group_metadata()
            if self._at_first is None or self._at_first.member_id != now.member_id:
                self._at_first = now
            if self.draws_fault(EARLY_OFFSETS):
                await self._send_early(producer, consumer)
            await self._write_copies(process, producer, records, copy)
            copy.outcome = Outcome.UNKNOWN

        await self.by_block(process, "transaction(consumer)", producer, consumer, name, fill)

    async def _copy_by_calls(
        self,
        process: Process,
        producer: ProducerCore,
        consumer: ConsumerCore,
        records: list[Record],
        copy: TransactionSummary,
        name: str,
    ) -> None:
        """Send the positions first, so that they are pending during the work.

        The member's identity is not read again.
        """

        async def work() -> None:
            producer.begin_transaction()
            try:
                positions = consumer.take_positions()
                await self._send_positions(process, producer, consumer, positions)
                await self._write_copies(process, producer, records, copy)
                copy.outcome = Outcome.UNKNOWN
                await producer.commit_transaction()
            except BaseException:
                consumer.forget_positions()
                raise
            consumer.transaction_ended(positions)

        commit = Commit(process=process.life_name, transaction=name)
        await self.ask(process, "a transaction by calls", commit, work)

    async def _send_positions(
        self,
        process: Process,
        producer: ProducerCore,
        consumer: ConsumerCore,
        positions: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Send the positions. Sometimes the application ignores a failure here; its commit must then fail."""
        what, member = "send_offsets_to_transaction", consumer.group_metadata()
        try:
            await self.call(process, what, lambda: producer.send_offsets_to_transaction(positions, member))
        except (RetriableError, TaskCancelled) as error:
            if self.chance.random() < 1 - self.world.options.careless_chance:
                raise
            self.world.trace(f"{self.name} goes on after {type(error).__name__}: {error}")

    async def _write_copies(
        self, process: Process, producer: ProducerCore, records: list[Record], copy: TransactionSummary
    ) -> None:
        if self.draws_fault(SLOW_ROUNDS):
            await process.runtime.sleep_ms(self.chance.uniform(*SLOW_MS))
        for index, record in enumerate(records):
            value = f"{(record.value or b'').decode()}{COPIES_OF}{copy.producer}-{copy.number}-{index}"
            await self.work(process)
            self.write(producer, copy, TopicPartition(OUTPUT, record.offset % OUTPUT_PARTITIONS), value)

    async def _send_early(self, producer: ProducerCore, consumer: ConsumerCore) -> None:
        """Sometimes send positions with the first member identity of this life. A newer generation must refuse them."""
        first, now = self._at_first, consumer.group_metadata()
        member = first if first is not None and self.chance.random() < 0.5 else now
        await producer.send_offsets_to_transaction(consumer.positions(), member)
        if member.generation_id < now.generation_id and self.world.options.group_protocol == "classic":
            message = (
                f"{self.name} committed positions in generation {member.generation_id}; it was {now.generation_id}"
            )
            self.world.found("fenced_commit", message)
