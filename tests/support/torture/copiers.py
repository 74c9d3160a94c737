"""Applications that copy a topic to another in transactions, and everything that happens to such an application.

A copier keeps its consumer through all of it and replaces its producer when it must, as the documents of the client
tell an application to. It knows nothing of what was lost: the check at the end does.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from enum import Enum

from fencepost import AsyncConsumer, AsyncProducer
from fencepost.errors import (
    AbortableError,
    DataLossError,
    FatalError,
    KafkaError,
    TransactionCommitFailedError,
)

__all__ = ["Copier"]

TRANSACTION_TIMEOUT_MS = 4_000


class Mishap(Enum):
    """Failure of a transaction on the application's own side."""

    RAISES = "its code raises"
    CANCELLED = "it is cancelled"
    DAWDLES = "it takes longer than its timeout"
    REPLACED = "somebody else takes its id"


class PlannedFailure(Exception):
    """The application's own code raises."""


class Copier:
    """Copies `source` to `target` as a member of `group` until `stopping` is set. `calm` ends its own mishaps."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        source: str,
        target: str,
        group: str,
        *,
        auto_offset_reset: str,
        seed: int,
        happened: Counter[str],
    ) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._source, self._target, self._group = source, target, group
        self._reset = auto_offset_reset
        self._chance = random.Random(seed)
        self.happened = happened
        self.calm = False
        self.stopping = False
        self.losses: list[str] = []
        self.journal: list[tuple[float, list[bytes], str]] = []  # when, what, and how a transaction ended
        self.ready = asyncio.Event()
        self.committed = asyncio.Event()

    async def live(self) -> None:
        """The whole life, with a new consumer now and then."""
        while not self.stopping:
            try:
                await self._one_consumer()
            except KafkaError as error:
                self._note(error)
                await asyncio.sleep(0.2)

    async def _one_consumer(self) -> None:
        async with AsyncConsumer(
            self._bootstrap,
            group_id=self._group,
            auto_offset_reset=self._reset,
            session_timeout_ms=6_000,
            request_timeout_ms=4_000,
            default_api_timeout_ms=10_000,
            max_poll_records=40,
        ) as consumer:
            await consumer.subscribe([self._source])
            leaves_after = self._chance.randint(10, 60)
            while not self.stopping and (leaves_after > 0 or self.calm or not self.committed.is_set()):
                try:
                    leaves_after -= await self._one_producer(consumer)
                except DataLossError as error:
                    self.losses.append(f"{self.name}: {error}")
                    self._note(error)
                except KafkaError as error:  # a new producer, the same consumer
                    self._note(error)
                    await asyncio.sleep(0.1)
            self.happened["consumers closed"] += 1

    async def _one_producer(self, consumer: AsyncConsumer) -> int:
        """Transactions with one producer until it is done for; returns how many."""
        producer = AsyncProducer(
            self._bootstrap,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=6_000,
            request_timeout_ms=3_000,
            max_block_ms=5_000,
        )
        count = 0
        try:
            await producer.init_transactions()
            while not self.stopping and count < 30:
                records = await consumer.poll(300)
                self.ready.set()
                if not records:
                    count += self.calm is False
                    continue
                count += 1
                if not await self._one_transaction(producer, consumer, [record.value or b"" for record in records]):
                    break
        finally:
            await self._close(producer)
        return count

    async def _one_transaction(self, producer: AsyncProducer, consumer: AsyncConsumer, values: list[bytes]) -> bool:
        """Run one transaction. Return true if the producer may be used again."""
        mishap = self._mishap()
        told = "committed"
        try:
            if mishap is Mishap.CANCELLED:
                async with asyncio.timeout(self._chance.uniform(0.001, 0.5)):
                    await self._copy(producer, consumer, values, mishap)
            else:
                await self._copy(producer, consumer, values, mishap)
        except DataLossError as error:
            told = self._note(error)
            self.losses.append(f"{self.name}: {error}")
            raise
        except (TransactionCommitFailedError, AbortableError, PlannedFailure, TimeoutError) as error:
            told = self._note(error)
        except FatalError as error:
            told = self._note(error)
            return False
        except KafkaError as error:
            told = self._note(error)
            return self._chance.random() < 0.5  # either way must be right
        else:
            self.happened["transactions committed"] += 1
            self.committed.set()
        finally:
            self.journal.append((time.time(), values, f"{mishap and mishap.value}: {told}"))
        return True

    async def _copy(
        self, producer: AsyncProducer, consumer: AsyncConsumer, values: list[bytes], mishap: Mishap | None
    ) -> None:
        async with producer.transaction(consumer):
            for number, value in enumerate(values):
                await producer.send(self._target, value, key=value)
                if mishap is Mishap.RAISES and number == len(values) // 2:
                    raise PlannedFailure
            if mishap is Mishap.DAWDLES:
                await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 + self._chance.uniform(-1, 2))
            elif mishap is Mishap.CANCELLED:
                await asyncio.sleep(self._chance.uniform(0, 0.2))
            elif mishap is Mishap.REPLACED:
                await self._fence()

    async def _fence(self) -> None:
        other = AsyncProducer(self._bootstrap, transactional_id=self.name, max_block_ms=5_000, request_timeout_ms=3_000)
        try:
            await other.init_transactions()
        finally:
            await self._close(other)

    def _mishap(self) -> Mishap | None:
        if self.calm or self._chance.random() < 0.6:
            return None
        mishap: Mishap = self._chance.choice((*Mishap, Mishap.CANCELLED))
        self.happened[f"mishap: {mishap.value}"] += 1
        return mishap

    async def _close(self, producer: AsyncProducer) -> None:
        try:
            await producer.close()
        except KafkaError as error:
            self.happened[f"close: {type(error).__name__}"] += 1

    def _note(self, error: BaseException) -> str:
        self.happened[f"told: {type(error).__name__}"] += 1
        if isinstance(error, FatalError) and self.calm:
            print(f"{self.name} while calm: {error!r}", file=sys.stderr)
        return repr(error)
