"""In transactions, too, DataLossError comes if and only if acknowledged records are gone; and no half is committed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata
from fencepost.errors import (
    AbortableError,
    DataLossError,
    KafkaError,
    TransactionTimedOutError,
    UnsupportedVersionError,
)
from fencepost.protocol.messages.end_txn import EndTxnResponse
from fencepost.protocol.records.batch import parse_header
from tests.unit.client.producer.lossy import LOST_REPLY, LOST_REQUEST, NOT_APPENDED, Appended, Log, Partition
from tests.unit.client.scripted import World, run

SEEDS = 25
STEPS = 30
STEPS_OF = {
    level: ["send", "send", "send", "other", "commit", "commit", "abort", "outage", "short outage"]
    + [LOST_REPLY, LOST_REQUEST, "vague", "anew", "retention"]
    + (["timeout"] if level == 2 else [])  # Kafka tells producers of older levels that they are fenced
    for level in (0, 1, 2)
}


class Coordinator(Partition):
    """These partitions, and one transaction at a time over them."""

    def __init__(self, dice: random.Random, level: int, *, is_old: bool) -> None:
        """`is_old`: as Kafka before 2.5, which hands no next epoch to a producer (KIP-360)."""
        super().__init__(dice)
        if is_old:
            self.offered[22] = (0, 2)
        self.features = {"transaction.version": level} if level else {}
        self.ended_by_time = False
        self.fenced = -1  # the newest epoch that may not be used any more
        self.open: list[tuple[str, Log, Appended]] = []  # what was appended in the transaction, in which log
        self.commits = self.halves = 0  # halves: committed without what had been appended, and it could be known

    def answer_0(self, version: int, request: Any) -> Any:
        if any(parse_header(partition.records).producer_epoch <= self.fenced for partition in request.partitions):
            return self.produced(request, code=47, log_start=-1)
        before = {name: len(log.batches) for name, log in self.logs.items()}
        try:
            return super().answer_0(version, request)
        finally:
            for name, log in self.logs.items():
                self.open += [(name, log, batch) for batch in log.batches[before[name] :]]

    def _is_half(self, name: str, log: Log, batch: Appended) -> bool:
        """Return true if the batch is gone and its partition got a later one, so that the producer could know."""
        now = self.logs[name]
        later = any(
            later_log is now and later_batch.base >= 0
            for _, later_log, later_batch in self.open[self.open.index((name, log, batch)) + 1 :]
        )
        return later and (log is not now or (batch.base >= log.start and batch not in log.batches))

    def _end(self, *, commit: bool) -> None:
        if commit:
            self.commits += 1
            self.halves += any(self._is_half(*entry) for entry in self.open)
        self.open.clear()

    def answer_22(self, version: int, request: Any) -> Any:
        self._end(commit=False)
        self.ended_by_time = False
        reply = super().answer_22(version, request)
        self.fenced = reply.producer_epoch - 1
        return reply

    def answer_26(self, version: int, request: Any) -> Any:
        if request.producer_epoch <= self.fenced:
            return EndTxnResponse(error_code=47)
        self._end(commit=request.committed)
        reply = super().answer_26(version, request)
        if version >= 5:
            self.fenced = self.epoch - 1
        return reply

    def time_out(self) -> None:
        """Abort the open transaction, as a coordinator does at its timeout."""
        if self.open:
            self._end(commit=False)
            self.ended_by_time = True
            self.fenced = self.epoch


class Application:
    """Begins, sends, commits, and aborts when it is told to."""

    def __init__(self, world: World, broker: Coordinator, make: Callable[[], ProducerCore]) -> None:
        self.world = world
        self.broker = broker
        self.producer = make()
        self._make = make
        self.replaced = 0
        self.begun = False
        self.raised_types: set[type[BaseException]] = set()  # what the calls raised, with all causes

    async def send(self, topic: str, count: int = 1) -> bool:
        """True when all were acknowledged."""
        if not self.begun:
            self.producer.begin_transaction()
            self.begun = True
        try:
            sent = [
                (value, self.producer.append(topic, value)) for value in [self.broker.value() for _ in range(count)]
            ]
        except AbortableError:
            return False
        outcomes = [await self.world.outcome(delivery) for _, delivery in sent]
        assert not self.broker.swallowed(
            value for (value, _), outcome in zip(sent, outcomes, strict=True) if isinstance(outcome, RecordMetadata)
        )
        return not any(isinstance(outcome, KafkaError) for outcome in outcomes)

    async def end(self, *, commit: bool) -> bool:
        """True when it is committed."""
        if not self.begun:
            return False
        self.begun = False
        try:
            if commit and await self._commit():
                return True
            await self.producer.abort_transaction()
        except UnsupportedVersionError:
            await self.producer.close(0)
            self.replaced += 1
            self.producer = self._make()
            await self.producer.init_transactions()
        return False

    async def _commit(self) -> bool:
        try:
            await self.producer.commit_transaction()
        except AbortableError as error:
            self._note(error)
            return False
        return True

    def _note(self, error: BaseException | None) -> None:
        while error is not None:
            self.raised_types.add(type(error))
            error = error.__cause__


async def live(world: World, broker: Coordinator, dice: random.Random, steps: list[str]) -> Application:
    """Random troubles."""
    linger_ms = dice.choice([0, 2])
    make = partial(
        world.producer, transactional_id="x", delivery_timeout_ms=3_000, request_timeout_ms=500, linger_ms=linger_ms
    )
    application = Application(world, broker, make)
    await application.producer.init_transactions()
    for _ in range(dice.randrange(5, STEPS)):
        step = dice.choice(steps)
        match step:
            case "send" | "other":
                await application.send("t" if step == "send" else "other", dice.randrange(1, 4))
            case "commit" | "abort":
                await application.end(commit=step == "commit")
            case "anew":
                broker.make_anew()
            case "retention":
                broker.retain()
            case "timeout":
                broker.time_out()
            case "outage":
                broker.trouble = NOT_APPENDED
                await application.send("t")
            case _:
                broker.trouble = LOST_REPLY if step == "vague" else NOT_APPENDED if step == "short outage" else step
                broker.vague = step == "vague"
                task = world.runtime.spawn(_ignore(application.send("t", dice.randrange(1, 4))))
                await world.runtime.sleep_ms(dice.randrange(1, 2_000))
                broker.trouble = None
                while not task.done():
                    await world.runtime.sleep_ms(1)
                broker.vague = False
                if step == "vague":
                    await application.send("t")  # so that the last acknowledged offset is known again
        broker.trouble = None
    await application.end(commit=dice.random() < 0.5)
    # By name, a topic that was made anew goes unnoticed.
    await application.producer.cluster.refresh(["t"], world.runtime.now_ms() + 1_000)
    await application.send("t")  # which may meet what happened last
    await application.end(commit=True)
    return application


async def _ignore(call: Any) -> None:
    await call


@pytest.mark.parametrize(("level", "is_old"), [(0, True), (0, False), (1, False), (2, False)])
def test_without_a_loss_none_is_told(level: int, is_old: bool) -> None:
    commits, replaced, reported = 0, 0, set()
    for seed in range(SEEDS):
        dice = random.Random(f"{seed} {level}")
        broker = Coordinator(dice, level, is_old=is_old)

        async def body(world: World, broker: Coordinator = broker, dice: random.Random = dice) -> None:
            application = await live(world, broker, dice, STEPS_OF[level])
            reported.update(application.raised_types)
            assert await application.send("t")  # it goes on
            assert await application.end(commit=True)
            nonlocal replaced
            replaced += application.replaced
            await application.producer.close(0)

        run(body, broker)
        assert broker.halves == 0, seed
        commits += broker.commits
    assert commits > 2 * SEEDS
    assert (replaced > 0) == is_old  # it has to be made anew where nobody knows which sequences were taken
    assert DataLossError not in reported
    assert (TransactionTimedOutError in reported) == (level == 2)


@pytest.mark.parametrize(
    ("level", "within", "is_old"),
    [
        (0, True, True),
        (0, False, True),
        (0, True, False),
        (0, False, False),
        (1, True, False),
        (1, False, False),
        (2, True, False),
    ],
)
def test_a_loss_is_told(level: int, within: bool, is_old: bool) -> None:
    """Of what the open transaction sent; on levels 0 and 1, where sequences go on, of earlier ones as well.

    On level 2 each transaction begins at sequence 0 of a new epoch: of earlier ones nobody knows.
    """
    commits = 0
    for seed in range(SEEDS):
        dice = random.Random(f"{seed} {level} loss")
        broker = Coordinator(dice, level, is_old=is_old)

        async def body(world: World, broker: Coordinator = broker, dice: random.Random = dice) -> None:
            application = await live(world, broker, dice, STEPS_OF[level])
            application.raised_types.clear()
            assert await application.send("t")
            assert await application.send("t")
            if not within:
                assert await application.end(commit=True)
            broker.logs["t"].lose(dice.randrange(1, 3), forget=dice.random() < 0.5)
            await application.send("t")
            if level == 2:
                assert not await application.end(commit=True)
                assert DataLossError in application.raised_types
                assert await application.send("t")
                assert await application.end(commit=True)
            else:
                with pytest.raises(DataLossError) as raised:
                    await application.end(commit=True)
                assert raised.value.topic == "t"
            assert broker.open == []  # nothing waits for the transaction's timeout
            await application.producer.close(0)

        run(body, broker)
        assert broker.halves == 0, seed
        commits += broker.commits
    assert commits > SEEDS
