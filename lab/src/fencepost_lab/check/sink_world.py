"""Spark's sink in the simulated world: drivers, planners, tasks and commit workers with crashes and pauses.

One run: a supervisor restarts each query's driver until all its input is committed. Meanwhile the world injects the
faults that it drew from the seed. Then all faults end, the query runs to its end, the last zombie ends, and a last Open
resolves open transactions. The output is compared with the input. The same seed gives the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from random import Random
from typing import Any, Final

from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError, KafkaTimeoutError, PreparedTransactionLostError
from fencepost.protocol.records.walk import pairs_of
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.errors import (
    BatchChangedError,
    CheckpointRolledBackError,
    CorruptDecisionError,
    SinkContradictionError,
)
from fencepost.spark.sink import wire
from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Decision, decode_value
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC, DecisionStore, partition_of
from fencepost.spark.sink.steps import SinkConfig
from fencepost.spark.sink.task_ids import OwnPool
from fencepost_lab.check.history import Anomaly
from fencepost_lab.check.machine import MachineFaults
from fencepost_lab.check.net import NetworkFaults
from fencepost_lab.check.process import Process, ProcessLost
from fencepost_lab.check.reader import read_to_end
from fencepost_lab.check.sim_cluster import SimCluster
from fencepost_lab.check.sink_history import BatchRecord, DecisionRead, SinkHistory
from fencepost_lab.check.sink_once import sink_once
from fencepost_lab.check.spark_driver import Driver, QueryFailed, QueryStopped, SimCheckpoint, SparkFaults
from fencepost_lab.check.spark_tasks import RowsFailed, SinkProcess

__all__ = ["FAULT_KINDS", "Brokers", "SinkFaults", "SinkReport", "SinkWorld", "run_sink_world"]

TOPIC: Final = "out"
PARTITIONS: Final = 2
SINKS: Final = ("orders", "orders/no")  # both keep their decisions in the same partition
LIVES_WITH_FAULTS: Final = 25
FAULTY_MS: Final = 1_800_000
RUN_MS_AT_MOST: Final = 20_000_000.0
HEALED_MS_AT_MOST: Final = 2_000_000.0
LATE_MS_AT_MOST: Final = 60_000.0
NEVER_MS: Final = 900_000  # a transaction timeout in ms that no decided transaction of a run reaches
FAULT_KINDS: Final = {
    "kill": "processes killed",
    "zombie": "processes taken for dead that go on",
    "stall": "processes held up",
    "orphan": "processes that nobody waits for",
}
NEVER_RIGHT: Final = (SinkContradictionError, CorruptDecisionError)
CHECKPOINT_IS_WRONG: Final = (CheckpointRolledBackError, BatchChangedError)


class Brokers(Enum):
    """The simulated broker, by the abilities that the sink finds (sink/abilities.py)."""

    KEEPS_PREPARED = "keeps-prepared"
    TWO_PHASE = "two-phase"
    ONE_PHASE = "one-phase"
    TRANSACTION_VERSION_0 = "transaction-version-0"

    @property
    def abilities(self) -> BrokerAbilities:
        """The abilities that the sink finds. TWO_PHASE passes them to the sink, because the broker has more."""
        return BrokerAbilities(
            two_phase=self in (Brokers.KEEPS_PREPARED, Brokers.TWO_PHASE),
            keeps_prepared=self is Brokers.KEEPS_PREPARED,
            raises_epochs=self is not Brokers.TRANSACTION_VERSION_0,
        )

    @property
    def settings(self) -> Mapping[str, str | int | bool]:
        """The broker's settings."""
        return _SETTINGS.get(self, {})


_SETTINGS: Final[Mapping[Brokers, Mapping[str, str | int | bool]]] = {
    Brokers.ONE_PHASE: {"transaction.two.phase.commit.enable": False},
    Brokers.TRANSACTION_VERSION_0: {"transaction.version": 0},
}


@dataclass(frozen=True, slots=True)
class SinkFaults:
    """The faults of a run and the settings of the sink, drawn from the seed unless given."""

    brokers: Brokers
    transaction_timeout_ms: int
    step_timeout_ms: int
    sinks: int
    spark: SparkFaults
    network: NetworkFaults
    crash_interval_ms: float
    power_cut_chance: float
    inherits: bool  # true if processes inherit task ids
    machine: MachineFaults = field(default_factory=MachineFaults)

    @classmethod
    def draw(cls, random: Random, brokers: Brokers | None = None) -> SinkFaults:
        """Draw faults. Some runs have every fault and some have few, because each kind finds other defects."""
        pick = random.choice
        drawn = pick((Brokers.KEEPS_PREPARED, Brokers.KEEPS_PREPARED, Brokers.TWO_PHASE, Brokers.ONE_PHASE))
        return cls(
            brokers=brokers or drawn,
            transaction_timeout_ms=pick((3_000, 20_000, 900_000)),
            step_timeout_ms=pick((5_000, 120_000)),
            sinks=pick((1, 1, 1, 2)),
            spark=SparkFaults(
                fault_chance=pick((0.0, 0.05, 0.15)),
                driver_fault_chance=pick((0.0, 0.1, 0.3)),
                second_driver_chance=pick((0.0, 0.1, 0.4)),
                speculation_chance=pick((0.0, 0.1, 0.4)),
                broken_rows_chance=pick((0.0, 0.05, 0.2)),
                stop_chance=pick((0.0, 0.1)),
                damage_chance=pick((0.0, 0.0, 0.2)),
            ),
            network=NetworkFaults(
                slow_chance=pick((0.0, 0.01, 0.05)),
                request_lost_chance=pick((0.0, 0.005, 0.03)),
                reply_lost_chance=pick((0.0, 0.005, 0.03)),
                late_chance=pick((0.0, 0.01)),
                late_ms_at_most=LATE_MS_AT_MOST,
            ),
            crash_interval_ms=pick((0.0, 0.0, 5_000.0, 1_000.0)),
            power_cut_chance=pick((0.0, 0.5)),
            machine=MachineFaults(**{fault.name: pick((0.0, 0.0, 0.0, 0.02)) for fault in fields(MachineFaults)}),
            inherits=pick((False, True, True)),
        )


@dataclass(slots=True)
class SinkReport:
    """The report of a run. `ends` counts the ends of the drivers' lives by exception name."""

    seed: int
    faults: SinkFaults
    history: SinkHistory = field(default_factory=SinkHistory)
    anomalies: list[Anomaly] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    happened: Mapping[str, int] = field(default_factory=dict)
    simulated_ms: int = 0


class SinkWorld:
    """One run. `rows` is the number of input rows per query."""

    def __init__(self, seed: int, *, rows: int, faults: SinkFaults) -> None:
        self._random = Random(seed)
        self._given = faults
        self.report = SinkReport(seed, faults)
        settings = dict(faults.brokers.settings)
        network = _copy(faults.network)
        self._cluster = SimCluster(
            Random(self._random.getrandbits(64)), network, settings, self.report.trace, self._record_defect
        )
        self._config = SinkConfig(
            transaction_timeout_ms=faults.transaction_timeout_ms, step_timeout_ms=faults.step_timeout_ms
        )
        self._processes: list[Process] = []
        self._drivers: dict[Process, Driver] = {}
        self._inherited = OwnPool()  # shared by all executors, which end, are killed, freeze and continue
        self._lives = 0
        # Only a timeout can end a decided transaction, and only without two-phase commit.
        is_timed = faults.brokers.abilities.guarantee is Guarantee.TIMED
        self._may_lose = is_timed and faults.transaction_timeout_ms < NEVER_MS
        self.faults = faults.spark
        self._checkpoints = [SimCheckpoint(f"query-of-{sink}", sink, rows) for sink in SINKS[: faults.sinks]]

    # --- used by drivers ---

    def trace(self, line: str) -> None:
        self._cluster.trace(line)

    def process(self, name: str) -> Process:
        process = Process(
            name, self._cluster.network, self._cluster.fork(), self._cluster.host.bootstrap_servers, self._ended
        )
        self._processes = [process for process in self._processes if process.alive]
        self._processes.append(process)
        return process

    def sink_process(self, process: Process, sink: str) -> SinkProcess:
        abilities = self._given.brokers.abilities if self._given.brokers is Brokers.TWO_PHASE else None
        pool = self._inherited if self._given.inherits else OwnPool()
        return SinkProcess(process, sink, abilities, self._config, self._cluster.fork(), self.trace, pool)

    def _record_defect(self, what: str) -> None:
        self.report.anomalies.append(Anomaly("defect", f"the broker: {what}"))

    def _ended(self, what: str, result: object) -> None:
        if isinstance(result, BaseException):
            self.trace(f"{what} failed: {type(result).__name__}: {result}")
            loss = isinstance(result, PreparedTransactionLostError) and not self._may_lose
            if loss or isinstance(result, NEVER_RIGHT):
                self.report.anomalies.append(Anomaly("sink_contradiction", f"{what}: {result}"))
            if not isinstance(result, KafkaError | ProcessLost | RowsFailed | QueryFailed | QueryStopped):
                self.report.anomalies.append(Anomaly("sink_defect", f"{what}: {type(result).__name__}: {result}"))
        else:
            self.trace(f"{what} ended")

    def schedule_fault(self, process: Process) -> None:
        """Strike the process at one of its next steps: a driver always, any other process by chance."""
        chance = self._cluster.fork()
        is_driver = process in self._drivers
        if is_driver or chance.random() < self.faults.fault_chance:
            most = 30 if is_driver else chance.choice((12, 40, 120))
            process.clock.call_after_steps(chance.randint(1, most), lambda: self._inject(process, chance))

    def _inject(self, process: Process, chance: Random) -> None:
        if not process.busy or self._cluster.healed:
            return
        kind = chance.choices(tuple(FAULT_KINDS), (0.3, 0.4, 0.15, 0.15))[0]
        duration_ms = math.exp(chance.uniform(math.log(100), math.log(300_000)))
        how_long = f" for {duration_ms:.0f} ms" if kind in ("zombie", "stall") else ""
        self._cluster.record_fault(FAULT_KINDS[kind], f"{kind} {process.name}{how_long}")
        later = self._cluster.scheduler.call_later
        if kind == "kill":
            driver = self._drivers.get(process)
            process.kill()
            if driver is not None:
                driver.leave_children()
            return
        if kind in ("zombie", "stall"):
            process.freeze(duration_ms)
        if kind in ("zombie", "orphan"):
            later(chance.uniform(0, 500), process.lose)

    # --- the run ---

    def run(self) -> SinkReport:
        """Run the storm, the healing and the final judgement. Raises SimulationStuck if something never ends."""
        try:
            return self._to_the_verdict()
        finally:
            self._cluster.end()

    def _to_the_verdict(self) -> SinkReport:
        cluster = self._cluster
        began_ms = cluster.scheduler.now_ms()
        cluster.host.start()
        setup = self.process("setup")
        cluster.wait_for(setup.runtime.spawn(self._create_topic(setup)), HEALED_MS_AT_MOST)
        given = self._given
        cluster.inject_machine_faults(given.machine)
        if given.crash_interval_ms:
            cluster.scheduler.spawn(cluster.crash_repeatedly(given.crash_interval_ms, given.power_cut_chance))
        watcher = self.process("watcher")
        watching = watcher.start("watch", lambda: self._watch(watcher))
        queries = [cluster.scheduler.spawn(self._supervise(checkpoint)) for checkpoint in self._checkpoints]
        cluster.scheduler.run_until(lambda: all(query.done() for query in queries), within_ms=RUN_MS_AT_MOST)
        for query in queries:
            query.result()
        self._await_late_requests()
        self._until_quiet(watching.done)
        cluster.wait_for(cluster.scheduler.spawn(self._resolve_and_read()), HEALED_MS_AT_MOST)
        if cluster.scheduler.failures:
            raise cluster.scheduler.failures[0]
        report = self.report
        report.anomalies += sink_once(report.history)
        batches = sum(len(checkpoint.commits) for checkpoint in self._checkpoints)
        report.happened = {**cluster.happened, "batches": batches}
        report.simulated_ms = cluster.scheduler.now_ms() - began_ms
        return report

    def _await_late_requests(self) -> None:
        if not self._cluster.healed:
            self.faults = SparkFaults()
            self._cluster.heal()

    def _until_quiet(self, watched: Callable[[], bool]) -> None:
        """Wait until the last zombie has ended and the last late request has arrived."""
        scheduler = self._cluster.scheduler
        scheduler.run_until(
            lambda: watched() and not any(process.busy for process in self._processes), within_ms=HEALED_MS_AT_MOST
        )
        for process in self._processes:
            process.kill()
        self._cluster.wait_for(scheduler.spawn(scheduler.sleep_ms(LATE_MS_AT_MOST)), HEALED_MS_AT_MOST)

    async def _create_topic(self, process: Process) -> None:
        await process.admin.create_topic(TOPIC, PARTITIONS, exist_ok=True)

    async def _supervise(self, checkpoint: SimCheckpoint) -> None:
        """Restart the query until its input is used up, or until it reports the loss of a decided transaction."""
        chance, sleep_ms = self._cluster.fork(), self._cluster.scheduler.sleep_ms
        while not checkpoint.finished:
            self._lives += 1
            if self._lives > LIVES_WITH_FAULTS * self._given.sinks or self._is_late():
                self._await_late_requests()
            if chance.random() < self.faults.second_driver_chance:
                self._cluster.scheduler.spawn(self._second(checkpoint, chance.uniform(0, 1_500), chance))
            error = await self._life(checkpoint, chance)
            if isinstance(error, PreparedTransactionLostError):
                self.report.history.lost.add(checkpoint.query)
                return
            if isinstance(error, CHECKPOINT_IS_WRONG):
                await self._repair(checkpoint, error)
            elif chance.random() < self.faults.damage_chance:
                self._stop(checkpoint)
                checkpoint.damage(chance.choice((1, 1, 2, 4)))
                left = sorted(checkpoint.offsets)
                message = f"the checkpoint of {checkpoint.query} has lost batches: {left} left"
                self._cluster.record_fault("files damaged", message)
            await sleep_ms(chance.uniform(10, 2_000))

    def _stop(self, checkpoint: SimCheckpoint) -> None:
        """Stop all drivers of the query. The processes that they started may continue."""
        for process, driver in self._drivers.items():
            if driver.checkpoint is checkpoint and process.alive:
                process.kill()
                driver.leave_children()

    async def _repair(self, checkpoint: SimCheckpoint, error: KafkaError) -> None:
        """Repair the checkpoint, as a person does after the query reported that it was rolled back."""
        if not checkpoint.damages:
            if not isinstance(error, CheckpointRolledBackError) or len(self._drivers) < 2:
                self.report.anomalies.append(Anomaly("sink_false_alarm", str(error)))
            return
        self._stop(checkpoint)
        process = self.process("repairer")
        found = await process.start("read", lambda: self._decisions_of(process, checkpoint.sink))
        for decision in found:
            if decision.query_id == checkpoint.query:
                checkpoint.repair(decision)
                self.trace(f"the checkpoint of {checkpoint.query} is repaired: {sorted(checkpoint.offsets)}")

    async def _decisions_of(self, process: Process, sink: str) -> tuple[Decision, ...]:
        while True:
            try:
                return await DecisionStore(ClusterCalls(process.admin.cluster)).read(
                    sink, process.runtime.now_ms() + 60_000
                )
            except KafkaTimeoutError as error:
                self.trace(f"repairer: {error}")

    def _is_late(self) -> bool:
        return self._cluster.scheduler.now_ms() - 1_700_000_000_000 > FAULTY_MS

    async def _second(self, checkpoint: SimCheckpoint, after_ms: float, chance: Random) -> None:
        await self._cluster.scheduler.sleep_ms(after_ms)
        if not checkpoint.finished:
            await self._life(checkpoint, chance)

    async def _life(self, checkpoint: SimCheckpoint, chance: Random) -> KafkaError | None:
        """Run the query once. Return the error that a person has to act on, if any."""
        fork = Random(chance.getrandbits(64))
        driver = Driver(self, checkpoint, TOPIC, f"{checkpoint.sink}#{len(self._drivers)}", fork)
        self._drivers[driver.process] = driver
        end = "finished"
        try:
            await driver.process.start("run", driver.live)
        except (KafkaError, ProcessLost, QueryFailed, QueryStopped) as error:
            end = type(error).__name__
            if isinstance(error, (PreparedTransactionLostError, *CHECKPOINT_IS_WRONG)):
                return error
        finally:
            self.report.ends[end] = self.report.ends.get(end, 0) + 1
        return None

    # --- readable state ---

    async def _watch(self, process: Process) -> None:
        """Read the decisions repeatedly, as an Open does."""
        chance = self._cluster.fork()
        store = DecisionStore(ClusterCalls(process.admin.cluster))
        number = 0
        while not all(
            checkpoint.finished or checkpoint.query in self.report.history.lost for checkpoint in self._checkpoints
        ):
            await process.runtime.sleep_ms(chance.uniform(50, 2_000))
            number += 1
            if chance.random() < 0.3:
                store = DecisionStore(ClusterCalls(process.admin.cluster))
            for checkpoint in self._checkpoints:
                try:
                    found = await store.read(checkpoint.sink, process.runtime.now_ms() + 60_000)
                except KafkaError as error:
                    self.trace(f"watcher: {type(error).__name__}")
                    continue
                self.report.history.decisions += [_as_read("watcher", decision) for decision in found]

    async def _resolve_and_read(self) -> None:
        """Open each sink once more, then read everything to its end."""
        history, scheduler = self.report.history, self._cluster.scheduler
        process = self.process("resolver")
        for checkpoint in self._checkpoints:
            sink_process = self.sink_process(process, checkpoint.sink)
            try:
                await process.start("open", sink_process.open)
            except PreparedTransactionLostError:
                history.lost.add(checkpoint.query)
            except KafkaError as error:
                self.report.anomalies.append(Anomaly("sink_unresolved", f"{checkpoint.sink}: {error}"))
        if history.lost:
            await scheduler.sleep_ms(2.0 * self._given.transaction_timeout_ms + 120_000)
        history.in_doubt = await self._in_doubt(process)
        for partition in range(PARTITIONS):
            try:
                history.reads += await read_to_end(process.admin, "reader", TopicPartition(TOPIC, partition))
            except KafkaTimeoutError as error:  # an open transaction blocks the read
                self.report.anomalies.append(Anomaly("sink_unreadable", f"{TOPIC}-{partition}: {error}"))
        for partition in sorted({partition_of(checkpoint.sink) for checkpoint in self._checkpoints}):
            await self._read_decisions(process, partition)
        history.batches = [batch for checkpoint in self._checkpoints for batch in _batches(checkpoint)]

    async def _in_doubt(self, process: Process) -> list[str]:
        """Return the transactions that stay open. A transaction that has just ended may be listed for a moment."""
        found: list[str] = []
        for _ in range(20):
            shown = await process.admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
            found = [f"{transaction.transactional_id} {transaction.state}" for transaction in shown]
            if not found:
                break
            await process.runtime.sleep_ms(500)
        return found

    async def _read_decisions(self, process: Process, partition: int) -> None:
        cluster = process.admin.cluster
        topic_partition = TopicPartition(DEFAULT_TOPIC, partition)
        end = (await process.admin.list_offsets({topic_partition: -1}))[topic_partition].offset
        deadline_ms = process.runtime.now_ms() + 60_000
        async for header, batch in wire.batches(cluster, DEFAULT_TOPIC, partition, 0, end, deadline_ms):
            for _, _, value in pairs_of(header, batch):
                if value is not None:
                    self.report.history.decisions.append(_as_read("end", decode_value(value)))


def _batches(checkpoint: SimCheckpoint) -> list[BatchRecord]:
    """Return the batches to be written. A damaged checkpoint has all rows, but not all batches."""
    if checkpoint.damages and checkpoint.finished:
        return [BatchRecord(checkpoint.query, 0, checkpoint.rows_of((0, checkpoint.rows)), committed=True)]
    gone = [BatchRecord(checkpoint.query, number, checkpoint.rows_of(rows), False) for number, rows in checkpoint.gone]
    return gone + [
        BatchRecord(checkpoint.query, number, checkpoint.rows_of(rows), number in checkpoint.commits)
        for number, rows in sorted(checkpoint.offsets.items())
    ]


def _as_read(reader: str, decision: Any) -> DecisionRead:
    winners = tuple(
        (winner.transactional_id, winner.pair.producer_id, winner.pair.epoch) for winner in decision.winners
    )
    return DecisionRead(reader, decision.query_id, decision.batch_id, winners)


def _copy(faults: NetworkFaults) -> NetworkFaults:
    """Copy the faults, because healing changes them."""
    return NetworkFaults(**{name: getattr(faults, name) for name in NetworkFaults.__slots__})


def run_sink_world(
    seed: int, *, rows: int = 80, brokers: Brokers | None = None, faults: SinkFaults | None = None
) -> SinkReport:
    """Run the sink's world once. Raises SimulationStuck if something never ends; anomalies are in the report."""
    drawn = faults or SinkFaults.draw(Random(seed * 7919 + 1), brokers)
    return SinkWorld(seed, rows=rows, faults=drawn).run()
