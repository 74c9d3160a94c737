"""Several tasks that share one client: overlapping calls, cancellations at any await, and closing during a call.

`Readers` share a consumer through the asyncio API, which admits one task at a time. `Senders` share a producer. Each
records its results; `judge_readers` and `judge_senders` compare them with the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final

from fencepost.client.aio.consumer import AsyncConsumer
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.turn import Turn
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import RecordMetadata, TopicPartition
from fencepost.config import ConsumerConfig, ProducerConfig
from fencepost.errors import (
    AbortableError,
    ClosedError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RetriableError,
    UsageError,
    WakeupError,
)
from fencepost_lab.check.actors.actor import Actor, producer_in
from fencepost_lab.check.history import Anomaly, RecordRead, SentRecord
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import SimFuture, TaskCancelled

__all__ = ["Readers", "Senders", "judge_readers", "judge_senders"]

HANDS: Final = 4
LONG_MS: Final = 10_000_000
"""Timeout in ms of a poll that only a record, wakeup() or close() ends."""
WAKE_UP_EVERY_MS: Final = 100.0
PASSES: Final = (RetriableError, AbortableError, WakeupError, TaskCancelled)
"""Errors after which a task of the crowd continues, even if another task caused them."""


async def run_all(process: Process, works: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run all works concurrently. Raises the first error.

    Each coroutine is created when its work begins, so that a process that ends earlier leaves none un-awaited.
    """
    ends: list[SimFuture[None]] = []

    async def run(work: Callable[[], Coroutine[Any, Any, None]], end: SimFuture[None]) -> None:
        try:
            await work()
        except BaseException as error:  # noqa: BLE001 (passed to the waiting task)
            end.set_error(error)
        else:
            end.set_result(None)

    for work in works:
        ends.append(SimFuture())
        process.clock.spawn(run(work, ends[-1]))
    for end in ends:
        await end


class SharedConsumer(AsyncConsumer):
    """The asyncio consumer, run in a process of the simulated world."""

    def __init__(self, core: ConsumerCore, process: Process) -> None:
        core.turn = Turn(lambda: process.clock.running)
        runtime: Any = process.runtime
        self._core = core
        self._begin(runtime)

    def __del__(self) -> None:
        """Suppress the warning about an unclosed client, because the simulated process may have been killed."""

    def _here(self) -> ConsumerCore:
        if self._closed:
            raise self._refusal()
        return self._core

    def wakeup(self) -> None:
        """Make the current or the next poll raise WakeupError."""
        self._check_open()
        self._core.wakeup()


@dataclass(slots=True)
class ReportedPosition:
    """A position reported by the client. `given`: the number of the partition's records returned before the report."""

    partition: TopicPartition
    position: int
    given: int
    by: str


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call of the shared consumer. `beside_another`: another call was in progress during some of it."""

    beside_another: bool


@dataclass(slots=True)
class ReadersLife:
    """The records that one life of the process received."""

    name: str
    given: defaultdict[TopicPartition, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    reports: list[ReportedPosition] = field(default_factory=list)
    complete: bool = False
    partitions: list[TopicPartition] = field(default_factory=list)
    consumer: Any = None  # the current one
    calls: list[PendingCall] = field(default_factory=list)
    closing: int = 0

    def next_of(self, partition: TopicPartition) -> int:
        """Return the offset at which reading must continue."""
        given = self.given[partition]
        return given[-1][0] + 1 if given else 0


class Readers(Actor):
    """Readers that share one consumer of all partitions and one group for commits.

    Each life starts at the beginning.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.all_lives: list[ReadersLife] = []

    async def live(self, process: Process) -> None:
        """Read until all is read."""
        life = ReadersLife(f"{self.name}#{self.lives}")
        self.all_lives.append(life)
        life.partitions = self.world.partitions()
        life.consumer = await self._new(process, life)
        left = [HANDS]

        async def hand() -> None:
            try:
                while self.world.has_faults:
                    await self._something(process, life)
                    if self.chance.random() < 0.3:
                        await process.runtime.sleep_ms(self.chance.uniform(0, 20))
            finally:
                left[0] -= 1

        async def wake() -> None:
            while self.world.has_faults:
                await process.runtime.sleep_ms(WAKE_UP_EVERY_MS)
            while left[0]:
                if not life.consumer.closed:
                    life.consumer.wakeup()
                await process.runtime.sleep_ms(WAKE_UP_EVERY_MS)

        await run_all(process, [hand] * HANDS + [wake])
        await self._read_on(process, life)

    async def _new(self, process: Process, life: ReadersLife) -> SharedConsumer:
        config = ConsumerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            # specific to this life, because an earlier life considered dead may still commit
            group_id=f"{life.name}-group",
            auto_offset_reset="earliest",
            max_poll_records=self.chance.choice((1, 3, 500)),
            default_api_timeout_ms=5_000,
        )
        consumer = SharedConsumer(ConsumerCore(Cluster(process.runtime, config), config), process)
        await consumer.assign(life.partitions)
        for partition in life.partitions:
            consumer.seek(partition, life.next_of(partition))
        return consumer

    async def _something(self, process: Process, life: ReadersLife) -> None:
        consumer, dice = life.consumer, self.chance.random()
        if dice < 0.6:
            timeout_ms = self.chance.choice((0, 50, 500, LONG_MS))
            await self._use(process, life, "poll", lambda: self._poll(consumer, life, timeout_ms))
        elif dice < 0.7:
            await self._use(process, life, "commit", lambda: self._commit(consumer, life))
        elif dice < 0.8:
            self._check_position(consumer, life)
        elif dice < 0.9:
            if not consumer.closed:
                consumer.wakeup()
        elif dice < 0.97:
            partition = self.chance.choice(life.partitions)
            await self._use(process, life, "seek", lambda: self._seek(consumer, life, partition))
        elif consumer is life.consumer and not life.closing:
            life.closing += 1
            try:
                await self._use(process, life, "close", consumer.close)
            finally:
                life.closing -= 1
            if consumer.closed and consumer is life.consumer:
                life.consumer = await self._new(process, life)

    async def _use(
        self, process: Process, life: ReadersLife, what: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Make a call. It may be refused only beside another call, or while the client is closing."""
        for other in life.calls:
            other.beside_another = True
        own = PendingCall(beside_another=bool(life.calls))
        life.calls.append(own)
        consumer = life.consumer
        try:
            await self.call(process, what, work)
        except ClosedError as error:
            if not life.closing and not consumer.closed:
                self.world.found("refused_for_nothing", f"{self.name} {what}: {error}")
            await process.runtime.sleep_ms(1)
        except UsageError as error:
            if not own.beside_another:
                self.world.found("refused_for_nothing", f"{self.name} {what}, alone: {error}")
            self.world.record_fault("calls refused beside others", f"{self.name} {what}: {error}")
            await process.runtime.sleep_ms(1)
        except PASSES as error:
            self.world.trace(f"{self.name} {what}: {type(error).__name__}: {error}")
        finally:
            life.calls.remove(own)

    async def _poll(self, consumer: SharedConsumer, life: ReadersLife, timeout_ms: int) -> None:
        for record in await consumer.poll(timeout_ms):
            life.given[TopicPartition(record.topic, record.partition)].append(
                (record.offset, (record.value or b"").decode())
            )

    async def _commit(self, consumer: SharedConsumer, life: ReadersLife) -> None:
        await consumer.commit()
        for partition, at in (await consumer.committed(life.partitions)).items():
            life.reports.append(ReportedPosition(partition, at.offset, len(life.given[partition]), "committed()"))

    async def _seek(self, consumer: SharedConsumer, life: ReadersLife, partition: TopicPartition) -> None:
        consumer.seek(partition, life.next_of(partition))

    def _check_position(self, consumer: SharedConsumer, life: ReadersLife) -> None:
        if consumer.closed:
            return
        for partition, at in consumer.positions().items():
            life.reports.append(ReportedPosition(partition, at.offset, len(life.given[partition]), "positions()"))

    async def _read_on(self, process: Process, life: ReadersLife) -> None:
        while True:
            consumer, drained = life.consumer, self.world.drained
            await self._use(process, life, "poll", lambda consumer=consumer: self._poll(consumer, life, 500))  # type: ignore[misc]
            self._check_position(consumer, life)
            if len(life.partitions) < len(self.world.partitions()):
                life.partitions = self.world.partitions()
                life.consumer = await self._new(process, life)
                continue
            at, ends = consumer.positions(), self.world.ends
            if drained and all(
                partition in at and at[partition].offset >= ends[partition] for partition in life.partitions
            ):
                life.complete = True
                await self.call(process, "close", consumer.close)
                return


def judge_readers(all_lives: Iterable[ReadersLife], reads: Iterable[RecordRead], *, compacted: bool) -> list[Anomaly]:
    """Find records returned twice, never or out of order, and positions beyond the returned records.

    `reads` holds all records of the log, from one reader. In a `compacted` log, records may be missing that were
    returned earlier.
    """
    log: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for read in reads:
        log[TopicPartition(read.topic, read.partition)].append((read.offset, read.value))
    found: list[Anomaly] = []
    for life in all_lives:
        for partition in sorted({*log, *life.given}):
            wrong = _wrong(life.given[partition], log[partition], complete=life.complete, compacted=compacted)
            if wrong:
                found.append(Anomaly("given_once", f"{life.name} of {partition.topic}-{partition.partition}: {wrong}"))
        found += _ahead(life, log)
    return found


def _wrong(given: Sequence[tuple[int, str]], log: Sequence[tuple[int, str]], *, complete: bool, compacted: bool) -> str:
    offsets = [offset for offset, _ in given]
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        return f"given out twice, or out of order: {offsets}"
    if not compacted and (strange := sorted({*given} - {*log})):
        return f"given out, and not in the log: {strange[:3]}"
    most = log[-1][0] if complete and log else (offsets[-1] if offsets else -1)
    missing = [offset for offset, _ in log if offset <= most and offset not in {*offsets}]
    return f"never given out: {missing[:5]}" if missing else ""


def _ahead(life: ReadersLife, log: Mapping[TopicPartition, Sequence[tuple[int, str]]]) -> list[Anomaly]:
    found = []
    for report in life.reports:
        given = life.given[report.partition]
        least = given[report.given - 1][0] + 1 if report.given else 0
        passed = [offset for offset, _ in log[report.partition] if least <= offset < report.position]
        if passed:
            where = f"{report.partition.topic}-{report.partition.partition}@{report.position}"
            message = f"{life.name}: {report.by} returned {where} before {passed} were handed out"
            found.append(Anomaly("position_ahead", message))
    return found


@dataclass(slots=True)
class SendersLife:
    """The outcomes that one life of the process learnt about its records."""

    name: str
    sent: list[SentRecord] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)  # reported as not in the log


class Senders(Actor):
    """Tasks that share one idempotent producer. After its close they share a new one."""

    _records = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.all_lives: list[SendersLife] = []

    async def live(self, process: Process) -> None:
        """Send until the storm is over."""
        while self.world.has_faults:
            life = SendersLife(f"{self.name}#{len(self.all_lives)}")
            self.all_lives.append(life)
            producer = producer_in(process, self._config())
            await run_all(process, [partial(self._hand, process, producer, life)] * HANDS)
            await self._close(process, producer, life)

    def _config(self) -> ProducerConfig:
        return ProducerConfig(
            bootstrap_servers=self.world.bootstrap_servers,
            linger_ms=self.chance.choice((0, 5)),
            batch_size=self.chance.choice((1, 262_144)),
            request_timeout_ms=1_000,
            delivery_timeout_ms=self.chance.choice((2_000, 120_000)),
        )

    async def _hand(self, process: Process, producer: ProducerCore, life: SendersLife) -> None:
        while self.world.has_faults and not producer.closed:
            dice = self.chance.random()
            if dice < 0.7:
                self._send(producer, life)
            elif dice < 0.97:
                await self._flush(process, producer, life)
            elif dice < 0.98:
                await self._close(process, producer, life)
            await process.runtime.sleep_ms(self.chance.uniform(0, 10))

    def _send(self, producer: ProducerCore, life: SendersLife) -> None:
        self._records += 1
        partition = self.world.random_partition(self.chance)
        if partition not in self.world.partitions():
            return
        sent = SentRecord(life.name, partition.topic, partition.partition, f"{self.name}-{self._records}")

        def on_result(error: KafkaError | None, at: RecordMetadata | None) -> None:
            life.outcomes.add(sent.value)
            if at is not None:
                sent.acknowledged, sent.offset = True, at.offset
            elif not isinstance(error, ProduceFailedError) or not error.outcome_unknown:
                life.refused.append(sent.value)

        key = sent.value.encode() if self.world.options.compacted else None
        producer.append(partition.topic, sent.value.encode(), key, partition.partition, on_delivery=on_result)
        life.sent.append(sent)
        self.world.history.sent.append(sent)

    async def _flush(self, process: Process, producer: ProducerCore, life: SendersLife) -> None:
        before = [sent.value for sent in life.sent]
        try:
            await self.call(process, "flush", producer.flush)
        except (ProduceFailedError, KafkaTimeoutError, TaskCancelled) as error:
            self.world.trace(f"{self.name} flush: {type(error).__name__}: {error}")
            return
        self._check_outcomes("flush()", before, life)

    async def _close(self, process: Process, producer: ProducerCore, life: SendersLife) -> None:
        if producer.closed:
            return
        await producer.close(5_000)
        self._check_outcomes("close()", [sent.value for sent in life.sent], life)

    def _check_outcomes(self, what: str, before: Iterable[str], life: SendersLife) -> None:
        unknown = [value for value in before if value not in life.outcomes]
        if unknown:
            self.world.found("fate_unknown", f"{life.name}: {what} returned, and nobody was told of {unknown[:5]}")


def judge_senders(all_lives: Iterable[SendersLife], reads: Iterable[RecordRead]) -> list[Anomaly]:
    """Find records in the log that the client reported as not written."""
    there = {read.value for read in reads}
    return [
        Anomaly("refused_and_there", f"{life.name} was told that {value} is not in the log")
        for life in all_lives
        for value in life.refused
        if value in there
    ]
