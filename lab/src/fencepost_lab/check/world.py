"""The simulated world: production cores of broker and clients, joined in memory under one clock, with random faults.

In a run, applications (`actors`) work while requests and replies are lost, processes are killed or frozen, calls are
cancelled, and the broker crashes and recovers its log. Then all faults end, and all work must end within a time limit.
The report names each actor that does not end, and its call in progress. Open transactions are resolved, readers read to
the end, and the checks judge the history. The same seed and options give the same run, event for event
(`SimulationReport.trace`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from fencepost.client.admin.core import AdminCore
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError
from fencepost_lab.check.actors.actor import FLEETING, Actor, ApplicationError
from fencepost_lab.check.actors.copier import COPIES_OF, GROUP, INPUT, OUTPUT, OUTPUT_PARTITIONS, Copier
from fencepost_lab.check.actors.crowd import Readers, Senders, judge_readers, judge_senders
from fencepost_lab.check.actors.decider import Decider
from fencepost_lab.check.actors.feeder import Feeder
from fencepost_lab.check.actors.message_size_operator import MessageSizeOperator
from fencepost_lab.check.actors.operator import Operator
from fencepost_lab.check.actors.slow_reader import SlowReader
from fencepost_lab.check.actors.watcher import Watcher
from fencepost_lab.check.actors.writer import POSITIONS_OF, TransactionalWriter
from fencepost_lab.check.checks import check_all
from fencepost_lab.check.checks.aborted_read import aborted_read
from fencepost_lab.check.checks.divergence import divergence
from fencepost_lab.check.checks.reordered import reordered
from fencepost_lab.check.copied_once import copied_once
from fencepost_lab.check.file_corruption import FRAGILE, FileCorruption, judge_fragile
from fencepost_lab.check.history import Anomaly, Outcome, RecordRead, SentRecord, Summary
from fencepost_lab.check.history.model import History
from fencepost_lab.check.history.operations import Init
from fencepost_lab.check.options import SimulationOptions
from fencepost_lab.check.process import Process
from fencepost_lab.check.reader import read_group_offsets, read_to_end
from fencepost_lab.check.scheduler import SimTask, SimulationStuck
from fencepost_lab.check.sim_cluster import SimCluster
from fencepost_lab.check.transactional_id_recorder import TransactionalIdRecorder

__all__ = ["SimulationReport", "World", "run_world"]

TOPICS: Final = {"red": 2, "blue": 1}
INPUT_PARTITIONS: Final = 2
BROKER: Final[dict[str, str | int | bool]] = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "queued.max.response.bytes": 1_048_576,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
COMPACTING: Final[dict[str, str | int | bool]] = {
    "log.segment.bytes": 2_000,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": "0.01",
}
PARTITIONS_AT_MOST: Final = 4
CLOCKS_MS: Final = (0, 0, -600_000, 600_000)
"""Errors of the clients' clocks in ms."""
CHANGES: Final[tuple[tuple[str, tuple[str | None, ...]], ...]] = (
    ("compression.type", ("producer", "gzip", "zstd", "uncompressed", None)),
    ("segment.bytes", ("1048576", None)),
    ("segment.ms", ("50", None)),
    ("index.interval.bytes", ("0", None)),
    ("message.timestamp.type", ("LogAppendTime", "CreateTime")),
)
RESETTINGS: Final[tuple[tuple[str, tuple[str | int | bool, ...]], ...]] = (
    ("transaction.state.log.num.partitions", (1, 3, 50)),
    ("offsets.topic.num.partitions", (1, 3, 50)),
    ("num.partitions", (1, 3)),
    ("log.segment.bytes", (2_000, 20_000, 1_000_000)),
    ("log.index.interval.bytes", (0, 4_096)),
    ("compression.type", ("producer", "gzip", "zstd", "uncompressed")),
    ("group.initial.rebalance.delay.ms", (0, 100, 3_000)),
)
"""Broker settings that an operator changes before a restart."""
SETUP_MS_AT_MOST: Final = 300_000.0
REST_MS: Final = 200.0
PAUSE_MS: Final = (100.0, 60_000.0)
ENDED_MS_AT_MOST: Final = 200_000.0
"""Time limit in ms after the storm: the longest pause, the longest transaction timeout, and two rebalances."""
JUDGES: Final = ("first", "second")
"""Names of the readers that read all partitions at the end."""
WHILE_READING: Final = (aborted_read, divergence, reordered)
"""Checks that also hold for a reader that did not reach the end."""


@dataclass(slots=True)
class SimulationReport:
    """The report of a run. `happened` counts faults and transactions by kind."""

    seed: int
    options: SimulationOptions
    history: Summary = field(default_factory=Summary)
    anomalies: list[Anomaly] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    happened: Mapping[str, int] = field(default_factory=dict)
    simulated_ms: int = 0


class World:
    """The state of one run: the cluster, the actors and the report."""

    def __init__(self, seed: int, options: SimulationOptions) -> None:
        random = Random(seed)
        self.options = options
        self.report = SimulationReport(seed, options)
        self.history = self.report.history
        self.drained = False
        self.ends: dict[TopicPartition, int] = {}
        self._settings = {**BROKER, **(COMPACTING if options.compacted else {})}
        self._settings["transaction.version"] = options.transaction_version
        self.cluster = SimCluster(random, options.network(), self._settings, self.report.trace, self._record_defect)
        self.trace = self.cluster.trace
        self.record_fault = self.cluster.record_fault
        self.now_ms = self.cluster.scheduler.now_ms
        self._began_ms = self.now_ms()
        self._processes: list[Process] = []
        self.sessions = TransactionalIdRecorder(self.now_ms)
        self._unfinished: dict[Actor, SimTask] = {}
        self._partial: list[RecordRead] = []
        self._pauses = self.cluster.fork()
        self._partitions = dict(TOPICS)
        if options.copiers:
            self._partitions |= {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
        self.writers = [
            TransactionalWriter(self, f"p{number}", self.cluster.fork()) for number in range(options.producers)
        ]
        self.copiers = [Copier(self, f"c{number}", self.cluster.fork()) for number in range(options.copiers)]
        # Before version 2 transactions share an epoch, so a stored token also matches later transactions.
        deciders = options.deciders if options.transaction_version >= 2 else 0
        self.deciders = [Decider(self, f"d{number}", self.cluster.fork()) for number in range(deciders)]
        self.operators = [Operator(self, f"o{number}", self.cluster.fork()) for number in range(options.operators)]
        self.watchers = [Watcher(self, f"w{number}", self.cluster.fork()) for number in range(options.watchers)]
        self.feeders = [Feeder(self, f"f{number}", self.cluster.fork()) for number in range(options.feeders)]
        self.mutes = [SlowReader(self, f"m{number}", self.cluster.fork()) for number in range(options.mutes)]
        self._fragile = [Feeder(self, "fragile", self.cluster.fork(), FRAGILE)] if options.fragile else []
        self._corruption = FileCorruption(
            *(self.cluster.disk, self.cluster.fork(), self.record_fault),
            flip=options.flip_chance,
            restore=options.restore_chance,
            sent=self._sent_to_fragile,
        )
        self._resetting = self.cluster.fork()
        self.shrinkers = (
            [MessageSizeOperator(self, "s0", self.cluster.fork(), sorted(TOPICS))] if options.shrink_interval_ms else []
        )
        self.readers = [Readers(self, f"r{number}", self.cluster.fork()) for number in range(options.crowds)]
        self.senders = [Senders(self, f"n{number}", self.cluster.fork()) for number in range(options.crowds)]
        self.cluster.at_rest = self._while_down
        self.cluster.power_may_go = self._corruption.is_met

    # --- used by actors ---

    @property
    def has_faults(self) -> bool:
        return not self.cluster.healed

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.host.bootstrap_servers

    async def rest(self) -> None:
        await self.cluster.scheduler.sleep_ms(REST_MS)

    def process(self, name: str) -> Process:
        random = self.cluster.fork()
        ahead_ms = random.choice(CLOCKS_MS) if self.options.clock_jump_chance else 0
        number = len(self._processes) + 1
        process = Process(name, self.cluster.network, random, self.bootstrap_servers, self._ended, ahead_ms, number)
        self._processes.append(process)
        return process

    def _ended(self, what: str, result: object) -> None:
        """Report an exception that ended a piece of work as a defect, unless calls are documented to raise it."""
        if (
            isinstance(result, BaseException)
            and not isinstance(result, KafkaError | ApplicationError)
            and not self.cluster.over
        ):
            self.found("defect", f"{what}: {type(result).__name__}: {result}")

    def _record_defect(self, what: str) -> None:
        """Report a defect of the broker."""
        self.found("defect", f"the broker: {what}")

    def found(self, check: str, detail: str) -> None:
        self.trace(f"{check}: {detail}")
        self.report.anomalies.append(Anomaly(check, detail))

    def schedule_fault(self, process: Process) -> None:
        self._schedule_faults(process, self.cluster.fork())

    def _schedule_faults(self, process: Process, chance: Random) -> None:
        """Strike the process about every second of its life, before one of its next steps."""
        options = self.options
        if options.kill_chance or options.pause_chance:
            self.cluster.scheduler.call_later(chance.uniform(0, 2_000), lambda: self._inject_later(process, chance))

    def _inject_later(self, process: Process, chance: Random) -> None:
        if not self.has_faults or not process.busy:
            return
        options, dice = self.options, chance.random()
        if dice < options.kill_chance:
            process.clock.call_after_steps(chance.randint(1, 60), lambda: self.kill(process))
        elif dice < options.kill_chance + options.pause_chance:
            process.clock.call_after_steps(chance.randint(1, 60), lambda: self.pause(process))
        self._schedule_faults(process, chance)

    def kill(self, process: Process) -> None:
        if self.has_faults and process.busy:
            self.record_fault("clients killed", f"kill {process.name}")
            process.kill()

    def pause(self, process: Process) -> None:
        chance = self._pauses
        if not self.has_faults or not process.busy:
            return
        least, most = PAUSE_MS
        for_ms = math.exp(chance.uniform(math.log(least), math.log(most)))
        is_replaced = chance.random() < 0.6
        replaced = ", and replace it" if is_replaced else ""
        self.record_fault("clients held up", f"pause {process.name} for {for_ms:.0f} ms{replaced}")
        process.freeze(for_ms)
        if is_replaced:
            self.cluster.scheduler.call_later(chance.uniform(0, for_ms), process.lose)

    def random_partition(self, chance: Random) -> TopicPartition:
        if self.copiers and chance.random() < 0.6:
            return TopicPartition(INPUT, chance.randrange(self._partitions[INPUT]))
        if self.operators and chance.random() < 0.2:
            return FLEETING
        topic = chance.choice(sorted(TOPICS))
        return TopicPartition(topic, chance.randrange(self._partitions[topic]))

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that actors write records to."""
        return [TopicPartition(topic, number) for topic, count in self._partitions.items() for number in range(count)]

    @property
    def replaceable(self) -> list[str]:
        return [writer.name for writer in self.writers] + [
            copier.producer_name for copier in self.copiers if copier.producer_name
        ]

    async def add_partition(self, admin: AdminCore) -> None:
        topic = INPUT if self.copiers else "red"
        count = self._partitions[topic]
        if count < PARTITIONS_AT_MOST:
            await admin.create_partitions(topic, count + 1)
            self._partitions[topic] = max(self._partitions[topic], count + 1)

    async def replace_topic(self, admin: AdminCore) -> None:
        await admin.delete_topic(FLEETING.topic, missing_ok=True)
        await admin.create_topic(FLEETING.topic, 1, exist_ok=True)

    async def change_settings(self, admin: AdminCore, chance: Random) -> None:
        name, values = chance.choice(CHANGES)
        await admin.alter_configs(chance.choice(sorted(self._partitions)), {name: chance.choice(values)})

    def seen(self, read: RecordRead) -> None:
        """Judge a record: none may be visible before its commit was requested."""
        self._partial.append(read)
        for transaction in reversed(self.history.transactions):
            if transaction.outcome is Outcome.ABORTED and any(
                write.value == read.value for write in transaction.writes
            ):
                name = f"{transaction.producer} {transaction.number}"
                self.found("uncommitted_read", f"{read.reader} read {read.value} of {name} before its commit")

    def _sent_to_fragile(self) -> list[SentRecord]:
        return [sent for feeder in self._fragile for sent in feeder.sent]

    def _while_down(self) -> None:
        host, chance = self.cluster.host, self._resetting
        if self._fragile:
            self._corruption.corrupt(killed=not host.lost_power)
        if self.options.resetting_chance and chance.random() < self.options.resetting_chance:
            name, values = chance.choice(RESETTINGS)
            self._settings[name] = chance.choice(values)
            self.record_fault("settings changed", f"from this start on {name} is {self._settings[name]}")
            host.config = self.cluster.configured(self._settings)

    # --- the run ---

    def run(self) -> SimulationReport:
        """Run the storm, the healing and the final judgement. Work that never ends is an anomaly."""
        try:
            return self._to_the_verdict()
        finally:
            self.cluster.end()

    def _to_the_verdict(self) -> SimulationReport:
        cluster, options = self.cluster, self.options
        cluster.host.start()
        cluster.wait_for(cluster.scheduler.spawn(self._create_topics()), SETUP_MS_AT_MOST)
        self._began_ms = self.now_ms()
        cluster.inject_machine_faults(options.machine())
        if options.crash_interval_ms:
            cluster.scheduler.spawn(
                cluster.crash_repeatedly(options.crash_interval_ms, options.power_cut_chance, options.outage_ms)
            )
        workers: list[Actor] = [
            *self.writers,
            *self.deciders,
            *self.operators,
            *self.feeders,
            *self.mutes,
            *self._fragile,
            *self.shrinkers,
            *self.senders,
        ]
        actors: list[Actor] = [*workers, *self.copiers, *self.watchers, *self.readers]
        self._unfinished = {actor: cluster.scheduler.spawn(actor.supervise()) for actor in actors}
        over_ms = self._began_ms + options.storm_ms
        cluster.scheduler.call_at(over_ms, cluster.heal)
        try:
            cluster.scheduler.run_until(lambda: cluster.healed, within_ms=options.storm_ms + 1)
            self._all_end(workers)
            cluster.wait_for(cluster.scheduler.spawn(self._settle()), ENDED_MS_AT_MOST)
            self._all_end([*self.copiers, *self.watchers, *self.readers])
            self._judge()
        except SimulationStuck as error:
            self._report_stuck(str(error))
        except KafkaError as error:  # raised by the world's own calls, after the end of all faults
            self._report_stuck(f"{type(error).__name__}: {error}")
        self.report.happened = {**cluster.happened, "transactions": len(self.history.transactions)}
        self.report.simulated_ms = self.now_ms() - self._began_ms
        return self.report

    def _admin(self) -> AdminCore:
        return self.process("judge").admin

    async def _create_topics(self) -> None:
        admin = self._admin()
        configs = {"cleanup.policy": "compact"} if self.options.compacted else {}
        partitions: dict[str, int] = {}
        for topic, number in self.partitions():
            partitions[topic] = number + 1
        for topic, count in {**partitions, POSITIONS_OF.topic: 1}.items():
            await admin.create_topic(topic, count, 1, configs, exist_ok=True)
        if self._fragile:
            await admin.create_topic(FRAGILE.topic, 1, exist_ok=True)
        if self.operators:
            await admin.create_topic(FLEETING.topic, 1, exist_ok=True)

    def _all_end(self, actors: Sequence[Actor]) -> None:
        """Wait for all actors, and for processes that were considered dead and still run."""
        waited = [self._unfinished[actor] for actor in actors]
        self.cluster.scheduler.run_until(lambda: all(task.done() for task in waited), within_ms=ENDED_MS_AT_MOST)
        for actor, task in zip(actors, waited, strict=True):
            task.result()
            del self._unfinished[actor]
        names = {"outside", *(actor.name for actor in actors)}
        zombies = [process for process in self._processes if process.name in names]
        self.cluster.scheduler.run_until(
            lambda: not any(process.busy for process in zombies), within_ms=ENDED_MS_AT_MOST
        )

    def _report_stuck(self, reason: str) -> None:
        waiting = [f"{actor.name}: {actor.doing}" for actor in self._unfinished]
        waiting += [f"process {process.name}" for process in self._processes if process.busy and not self._unfinished]
        self.found("stuck", f"{reason}; waiting: {'; '.join(waiting) or 'nobody but the judge'}")

    async def _settle(self) -> None:
        """Wait until no request is in flight, no transaction is open, and consumers have read to the end."""
        await self.cluster.scheduler.sleep_ms(max(0.0, self.cluster.network.late_until_ms - self.now_ms()))
        admin = self._admin()
        for writer in self.writers:
            claim = Init(process="judge", transactional_id=writer.name)
            await self.sessions.ask(claim, partial(admin.init_producer_id, writer.name, timeout_ms=60_000))
        while open_ones := await admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"]):
            for copier in self.copiers:
                copier.doing = f"{copier.doing} ({len(open_ones)} transactions open)"
            if not any(transaction.transactional_id.startswith("c") for transaction in open_ones):
                self.report.anomalies += [
                    Anomaly("in_doubt", transaction.transactional_id) for transaction in open_ones
                ]
                break
            await self.cluster.scheduler.sleep_ms(500)
        goals = await self._goals(admin) if self.copiers else {}
        while not await self._reached(admin, goals):
            await self.cluster.scheduler.sleep_ms(500)
        found = await admin.list_offsets(dict.fromkeys(self.partitions(), LATEST))
        self.ends = {partition: at.offset for partition, at in found.items()}
        self.drained = True
        self.trace("drained")

    async def _goals(self, admin: AdminCore) -> dict[TopicPartition, int]:
        """Return the group's positions after the last record of each partition was copied."""
        goals = {}
        for partition in self.partitions():
            if partition.topic == INPUT:
                reads = await read_to_end(admin, "judge", partition)
                goals[partition] = reads[-1].offset + 1 if reads else 0
        return goals

    async def _reached(self, admin: AdminCore, goals: dict[TopicPartition, int]) -> bool:
        at = await admin.group_offsets(GROUP, goals) if goals else {}
        return all(not goal or (partition in at and at[partition].offset >= goal) for partition, goal in goals.items())

    def _judge(self) -> None:
        self.cluster.wait_for(self.cluster.scheduler.spawn(self._read()), SETUP_MS_AT_MOST)
        complete = {watcher.complete for watcher in self.watchers}
        history = self.history
        history.sessions = self.sessions.operations
        history.reads += [read for read in self._partial if read.reader in complete]
        anomalies = check_all(history) if history.reads else []
        incomplete = [read for read in self._partial if read.reader not in complete]
        seen = Summary(history.transactions, history.sent, incomplete)
        anomalies += [anomaly for check in WHILE_READING for anomaly in check(History(seen.operations()))]
        if self.copiers:
            source = [read.value for read in history.reads if read.topic == INPUT]
            anomalies += copied_once(source, (read for read in history.reads if read.topic == OUTPUT), COPIES_OF)
        log = [read for read in history.reads if read.reader == JUDGES[0]]
        for readers in self.readers:
            anomalies += judge_readers(readers.all_lives, log, compacted=self.options.compacted)
        for senders in self.senders:
            anomalies += judge_senders(senders.all_lives, log)
        for anomaly in anomalies:
            self.found(anomaly.check, anomaly.detail)

    async def _read(self) -> None:
        admin = self._admin()
        for reader in JUDGES:
            for partition in self.partitions():
                self.history.reads += await read_to_end(admin, reader, partition)
        if self.operators:
            # an operator may have been killed between deletion and creation
            await admin.create_topic(FLEETING.topic, 1, exist_ok=True)
            await read_to_end(admin, "judge", FLEETING)
        if self._fragile:
            for anomaly in await judge_fragile(admin, self._sent_to_fragile()):
                self.found(anomaly.check, anomaly.detail)
        names = [writer.name for writer in self.writers]
        self.history.committed_offsets = await read_group_offsets(admin, names, POSITIONS_OF)


def run_world(seed: int, options: SimulationOptions | None = None) -> SimulationReport:
    """Run the world once. Without `options` the seed draws them. Anomalies are in the report."""
    return World(seed, options or SimulationOptions.draw(seed)).run()
