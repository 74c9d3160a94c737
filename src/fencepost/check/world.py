"""The simulated world: production broker and client cores, joined in memory under one clock, with faults from a seed.

One run: several transactional producers take random steps (send, commit offsets, commit, abort, die and come back)
while requests and replies are lost, the network is slow, and the broker crashes and opens its log again. Then the world
is healed, everything in doubt is resolved, readers read to the end, and the history is judged. The same seed gives the
same run: `Report.trace` is compared by a test. `seed` and the commit name a run for good.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random

from fencepost.check.checks import check_all
from fencepost.check.history import Anomaly, History, Outcome, Transaction, Write
from fencepost.check.net import NetworkFaults, SimRuntime
from fencepost.check.reader import read_group_offsets, read_to_end
from fencepost.check.stage import Stage
from fencepost.client.admin.core import AdminCore
from fencepost.client.net.cluster import Cluster
from fencepost.client.producer.core import ProducerCore
from fencepost.client.types import TopicPartition
from fencepost.config import AdminConfig, ProducerConfig
from fencepost.errors import AbortableError, CommitFailedError, KafkaError

__all__ = ["Faults", "Report", "World", "run_world"]

TOPICS = {"red": 2, "blue": 1}
INPUT = TopicPartition("input", 0)
COMPACTING: dict[str, str | int | bool] = {
    "log.segment.bytes": 2_000,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": "0.01",
}
RUN_MS_AT_MOST = 3_600_000.0
HEALED_MS_AT_MOST = 300_000.0


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong in a run; drawn from the seed unless given."""

    request_lost_chance: float
    reply_lost_chance: float
    slow_chance: float
    crash_interval_ms: float
    power_cut_chance: float
    producer_death_chance: float

    @classmethod
    def draw(cls, random: Random) -> Faults:
        """Some runs have every fault, some have one, some none: each finds other defects."""
        return cls(
            request_lost_chance=random.choice((0.0, 0.005, 0.03)),
            reply_lost_chance=random.choice((0.0, 0.005, 0.03)),
            slow_chance=random.choice((0.0, 0.01, 0.05)),
            crash_interval_ms=random.choice((0.0, 3_000.0, 800.0)),
            power_cut_chance=random.choice((0.0, 0.5)),
            producer_death_chance=random.choice((0.0, 0.01, 0.04)),
        )


@dataclass(slots=True)
class Report:
    """What a run did and what was found."""

    seed: int
    faults: Faults
    history: History = field(default_factory=History)
    anomalies: list[Anomaly] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    steps: int = 0
    crashes: int = 0
    simulated_ms: int = 0


class World:
    """One run. `steps` is the number of steps of all producers together."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        producers: int = 3,
        faults: Faults | None = None,
        compacted: bool = False,
        within_ms: float = RUN_MS_AT_MOST,
    ) -> None:
        random = Random(seed)
        chosen = faults or Faults.draw(random)
        self.report = Report(seed, chosen)
        network = NetworkFaults(
            slow_chance=chosen.slow_chance,
            request_lost_chance=chosen.request_lost_chance,
            reply_lost_chance=chosen.reply_lost_chance,
        )
        self.compacted = compacted
        self.stage = Stage(random, network, COMPACTING if compacted else {}, self.report.trace)
        self.trace = self.stage.trace
        self._steps_left = steps
        self._within_ms = within_ms
        self._producers = [_Actor(self, f"p{number}", self.stage.fork()) for number in range(producers)]

    @property
    def bootstrap_servers(self) -> str:
        return self.stage.host.bootstrap_servers

    def runtime(self) -> SimRuntime:
        """The world as one more client sees it."""
        return SimRuntime(self.stage.network, self.stage.fork())

    def take_step(self) -> bool:
        """Whether there is one more step to do."""
        self._steps_left -= 1
        if self._steps_left < 0:
            return False
        self.report.steps += 1
        return True

    def run(self) -> Report:
        """Faults first, then healing, then the verdict. Raises SimulationStuck when something never ends."""
        stage, faults = self.stage, self.report.faults
        stage.host.start()
        stage.wait_for(stage.scheduler.spawn(self._create_topics()), HEALED_MS_AT_MOST)
        if faults.crash_interval_ms:
            stage.scheduler.spawn(stage.crash_again_and_again(faults.crash_interval_ms, faults.power_cut_chance))
        actors = [stage.scheduler.spawn(actor.live()) for actor in self._producers]
        for actor in actors:
            stage.wait_for(actor, self._within_ms)
        stage.heal()
        stage.wait_for(stage.scheduler.spawn(self._judge()), HEALED_MS_AT_MOST)
        self.report.crashes = stage.crashes
        self.report.simulated_ms = stage.scheduler.now_ms()
        return self.report

    async def _create_topics(self) -> None:
        admin = AdminCore(Cluster(self.runtime(), AdminConfig(bootstrap_servers=self.bootstrap_servers)))
        configs = {"cleanup.policy": "compact"} if self.compacted else {}
        for name, partitions in {**TOPICS, INPUT.topic: 1}.items():
            await admin.create_topic(name, partitions, 1, configs, exist_ok=True)

    async def _judge(self) -> None:
        """Claim every id once more, so that nothing is left in doubt, then read everything."""
        admin = AdminCore(Cluster(self.runtime(), AdminConfig(bootstrap_servers=self.bootstrap_servers)))
        for actor in self._producers:
            await admin.init_producer_id(actor.name, timeout_ms=60_000)
        in_doubt = await admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
        self.report.anomalies += [Anomaly("in_doubt", transaction.transactional_id) for transaction in in_doubt]
        history = self.report.history
        for reader in ("first", "second"):
            for topic, partitions in TOPICS.items():
                for partition in range(partitions):
                    history.reads += await read_to_end(admin, reader, TopicPartition(topic, partition))
        history.committed_offsets = await read_group_offsets(admin, [a.name for a in self._producers], INPUT)
        self.report.anomalies += check_all(history)


class _Actor:
    """One transactional producer's application: it takes random steps and writes down what it was told."""

    def __init__(self, world: World, name: str, chance: Random) -> None:
        self.name = name
        self._world = world
        self._chance = chance
        self._transactions = 0
        self._position = 0

    async def live(self) -> None:
        """Work until no steps are left; die and come back with a new client now and then."""
        while await self._one_life():
            self._world.trace(f"{self.name} died")

    async def _one_life(self) -> bool:
        """False when the work is done, True when this life ended before."""
        runtime = self._world.runtime()
        config = ProducerConfig(
            bootstrap_servers=self._world.bootstrap_servers,
            transactional_id=self.name,
            transaction_timeout_ms=self._chance.choice((2_000, 60_000)),
            linger_ms=self._chance.choice((0, 5)),
        )
        producer = ProducerCore(Cluster(runtime, config), config, lock=nullcontext(), wake=_at_once)
        try:
            return await self._work(producer, runtime)
        except KafkaError as error:
            self._world.trace(f"{self.name} gives up its client: {type(error).__name__}")
            return True
        finally:
            runtime.kill()

    async def _work(self, producer: ProducerCore, runtime: SimRuntime) -> bool:
        await producer.init_transactions()
        while self._world.take_step():
            self._transactions += 1
            record = Transaction(self.name, self._transactions)
            self._world.report.history.transactions.append(record)
            try:
                producer.begin_transaction()
                if await self._fill(producer, runtime, record):
                    return True
                await self._end(producer, record)
            except (AbortableError, CommitFailedError) as error:
                self._world.trace(f"{self.name} {record.number} failed: {type(error).__name__}")
                await producer.abort_transaction()
                record.outcome = Outcome.ABORTED
            self._world.trace(f"{self.name} {record.number} {record.outcome.value}")
        await producer.close(10_000)
        return False

    async def _fill(self, producer: ProducerCore, runtime: SimRuntime, record: Transaction) -> bool:
        """Random steps of one transaction. True when the application dies in it."""
        for index in range(self._chance.randint(1, 6)):
            if not self._world.take_step():
                break
            topic = self._chance.choice(sorted(TOPICS))
            partition = self._chance.randrange(TOPICS[topic])
            value = f"{self.name}-{record.number}-{index}"
            record.writes.append(Write(topic, partition, value))
            producer.append(topic, value.encode(), value.encode() if self._world.compacted else None, partition)
            if self._chance.random() < 0.3:
                await runtime.sleep_ms(self._chance.uniform(0, 30))
            if self._chance.random() < self._world.report.faults.producer_death_chance:
                return True
            if self._chance.random() < 0.01:
                await runtime.sleep_ms(5_000)  # long enough for the shorter transaction timeout
        if self._chance.random() < 0.5 and self._world.take_step():
            self._position += 1
            record.offsets[self.name] = self._position
            await producer.send_offsets_to_transaction({INPUT: self._position}, self.name)
        return False

    async def _end(self, producer: ProducerCore, record: Transaction) -> None:
        if self._chance.random() < 0.75:
            await producer.commit_transaction()
            record.outcome = Outcome.COMMITTED
        else:
            await producer.abort_transaction()
            record.outcome = Outcome.ABORTED


def _at_once(action: Callable[[], object]) -> object:
    """In a world of one thread, whatever is to run in the runtime runs where it is."""
    return action()


def run_world(
    seed: int,
    *,
    steps: int = 1_000,
    faults: Faults | None = None,
    compacted: bool = False,
    within_ms: float = RUN_MS_AT_MOST,
) -> Report:
    """One whole run. `compacted`: all topics are, all the time, with a key of its own for every record, so that all of
    them have to stay. Raises SimulationStuck when something never ends, or a producer not `within_ms` of simulated
    time; anomalies are in the report."""
    return World(seed, steps=steps, faults=faults, compacted=compacted, within_ms=within_ms).run()
