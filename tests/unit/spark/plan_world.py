"""A small world for plan.py: Kafka's transaction coordinator, Spark as it was seen to call a Python sink, and faults.

The coordinator gives InitProducerId's and EndTxn v5's answers as Apache Kafka 4.3.1 was seen to give them; markers are
instant, so 51 never shows. Level A (keep-prepared) follows KIP-939's two pairs. Everything is driven by `choose(n)`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fencepost.errors import KafkaError, PreparedTransactionLostError
from fencepost.spark import names, plan
from fencepost.spark.decision import Decision, Pair

SINK = "s"
QUERY = "q"
S = names.sink_id(SINK)
Call = Callable[[], Any]
Row = tuple[int, int]  # (batch, partition)


@dataclass
class Txn:
    """One transactional id. `ended`: (epoch, commit) of the last EndTxn or timeout, while a retry is recognised."""

    producer_id: int
    epoch: int = -1
    state: str = "Empty"
    two_phase: bool = False
    next_epoch: int | None = None
    ended: tuple[int, bool] | None = None
    timed_out: bool = False
    rows: list[Any] = field(default_factory=list)


class Coordinator:
    """The broker: transactions, what they committed, and the decision topic."""

    def __init__(self, timed_out_code: int = 48) -> None:
        self.timed_out_code = timed_out_code  # Kafka 4.3.1's answer to the commit; 120 is our broker's
        self.txns: dict[str, Txn] = {}
        self.committed: list[tuple[str, Row]] = []
        self.decisions: list[Decision] = []

    def init(self, transactional_id: str, two_phase: bool) -> Pair:
        txn = self.txns.setdefault(transactional_id, Txn(len(self.txns) + 100))
        if txn.state == "Ongoing":
            self._finish(txn, False)
        txn.epoch += 1
        txn.state, txn.ended, txn.two_phase = "Empty", None, two_phase
        return Pair(txn.producer_id, txn.epoch)

    def keep(self, transactional_id: str, pair: Pair) -> Pair | None:
        txn = self.txns[transactional_id]
        if txn.state != "Ongoing" or txn.next_epoch is not None or txn.epoch != pair.epoch:
            return None
        txn.two_phase, txn.next_epoch = True, txn.epoch + 1
        return Pair(txn.producer_id, txn.next_epoch)

    def produce(self, transactional_id: str, pair: Pair, row: Any) -> bool:
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id or txn.epoch != pair.epoch or txn.next_epoch is not None:
            return False
        if row not in txn.rows:  # idempotence: the same batch again
            txn.rows.append(row)
        txn.state, txn.ended = "Ongoing", None
        return True

    def end(self, transactional_id: str, pair: Pair, commit: bool) -> int:
        txn = self.txns.get(transactional_id)
        if txn is None or txn.producer_id != pair.producer_id:
            return 49
        if txn.state == "Ongoing":
            if pair.epoch != (txn.epoch if txn.next_epoch is None else txn.next_epoch):
                return 90
            self._finish(txn, commit, transactional_id)
            return 0
        if txn.ended is not None and txn.ended[0] == pair.epoch:
            if txn.ended[1] == commit:
                return 0
            return self.timed_out_code if txn.timed_out else 48
        if pair.epoch != txn.epoch:
            return 90
        if commit:
            return 48
        self._finish(txn, False)
        return 0

    def _finish(self, txn: Txn, commit: bool, transactional_id: str = "") -> None:
        epoch = txn.epoch if txn.next_epoch is None else txn.next_epoch
        for row in txn.rows if commit else ():
            if transactional_id == S:
                self.decisions.append(row)
            else:
                self.committed.append((transactional_id, row))
        txn.rows = []
        txn.ended, txn.next_epoch, txn.timed_out = (epoch, commit), None, False
        txn.epoch, txn.state = epoch + 1, "CompleteCommit" if commit else "CompleteAbort"

    def time_out(self, transactional_id: str) -> None:
        self._finish(self.txns[transactional_id], False)
        self.txns[transactional_id].timed_out = True

    def timeouts(self) -> list[str]:
        return [name for name, txn in self.txns.items() if txn.state == "Ongoing" and not txn.two_phase]

    def listed(self) -> tuple[plan.Listed, ...]:
        return tuple(
            plan.Listed(name, Pair(txn.producer_id, txn.epoch if txn.next_epoch is None else txn.next_epoch), txn.state)
            for name, txn in self.txns.items()
        )

    def last_decisions(self) -> tuple[Decision, ...]:
        last: dict[str, Decision] = {}
        for decision in self.decisions:
            last[decision.query_id] = decision
        return tuple(last.values())


@dataclass(frozen=True)
class Rules:
    """The protocol under test; a planted bug replaces one of these."""

    open_sink: Callable[[str, plan.Level], plan.Plan[plan.Opened]] = plan.open_sink
    write_task: Callable[[plan.Opened, str, int], plan.Plan[plan.Message]] = plan.write_task
    commit_batch: Callable[..., plan.Plan[Any]] = plan.commit_batch
    abort_batch: Callable[..., plan.Plan[Any]] = plan.abort_batch
    names_by_attempt: bool = False


@dataclass
class Settings:
    level: plan.Level = plan.Level.TWO_PHASE
    batches: int = 2
    partitions: int = 2
    faults: int = 4
    may_time_out: bool = False
    timed_out_code: int = 48


class Process:
    """One process running one plan, call by call. `done` is told the result or the KafkaError."""

    def __init__(self, name: str, run: Generator[Call, Any, Any], done: Callable[[Any], None]) -> None:
        self.name, self._run, self.done = name, run, done
        self.alive = True
        self.call: Call | None = None
        self.send(None)

    def send(self, reply: Any) -> None:
        try:
            self.call = self._run.send(reply)
        except StopIteration as stop:
            self.alive, self.call = False, None
            self.done(stop.value)
        except KafkaError as error:
            self.alive, self.call = False, None
            self.done(error)


LOST = object()


class Run:
    """One start of the query: Spark's driver. It ends when it has no more batches, fails, or is killed."""

    def __init__(self, world: World) -> None:
        self.world, self.alive = world, True
        self.messages: dict[int, plan.Message] = {}
        self.attempts: dict[int, int] = {}
        self.batch = 0
        self.next_batch()

    def next_batch(self) -> None:
        self.batch = self.world.spark_commits
        self.messages, self.attempts = {}, {}
        if self.batch == self.world.settings.batches + (1 if self.world.healing else 0):
            self.alive = False
            return
        world = self.world
        world.spawn(f"open {self.batch}", world.rules.open_sink(SINK, world.settings.level), self.opened, self)

    def opened(self, result: Any) -> None:
        if not self.alive:
            return
        if isinstance(result, KafkaError):
            self.fail(result)
            return
        self.writer = result
        for partition in range(self.world.settings.partitions):
            self.attempt(partition)

    def attempt(self, partition: int) -> None:
        number = self.attempts[partition] = self.attempts.get(partition, -1) + 1
        batch = self.batch
        world = self.world
        world.spawn(
            f"task {batch}.{partition}.{number}",
            world.rules.write_task(self.writer, QUERY, batch),
            lambda result: self.written(batch, partition, result),
            self,
            (batch, partition, number),
        )

    def written(self, batch: int, partition: int, result: Any) -> None:
        if not self.alive or batch != self.batch or partition in self.messages:
            return  # a loser: Spark drops its message
        if isinstance(result, KafkaError):
            if self.attempts[partition] >= 2:
                self.abort([self.messages.get(number) for number in range(self.world.settings.partitions)], result)
            else:
                self.attempt(partition)
            return
        self.messages[partition] = result
        if len(self.messages) == self.world.settings.partitions:
            messages = [self.messages[number] for number in range(self.world.settings.partitions)]
            world = self.world
            world.spawn(
                f"commit {batch}",
                world.rules.commit_batch(SINK, batch, messages),
                lambda outcome: self.committed(batch, messages, outcome),
                self,
            )

    def committed(self, batch: int, messages: list[plan.Message], result: Any) -> None:
        if isinstance(result, PreparedTransactionLostError):
            self.world.lost_reports += 1
        if not self.alive:
            return
        if isinstance(result, KafkaError):
            self.abort(messages, result)
        elif self.world.spark_commits == batch:
            self.world.spark_commits += 1
            self.next_batch()
        else:
            self.alive = False  # another driver wrote Spark's commit log first

    def abort(self, messages: Any, cause: KafkaError) -> None:
        self.world.spawn("abort", self.world.rules.abort_batch(SINK, messages), self.aborted, self)
        self.fail(cause)

    def aborted(self, result: Any) -> None:
        if isinstance(result, PreparedTransactionLostError):
            self.world.lost_reports += 1

    def fail(self, error: KafkaError) -> None:
        if isinstance(error, PreparedTransactionLostError):
            self.world.lost_reports += 1
        self.world.errors.append(error)
        self.alive = False


class World:
    """Runs, processes, faults; `choose(n)` in [0, n) decides everything, 0 being the undisturbed way."""

    def __init__(self, settings: Settings, rules: Rules, choose: Callable[[int], int]) -> None:
        self.settings, self.rules, self.choose = settings, rules, choose
        self.broker = Coordinator(settings.timed_out_code)
        self.processes: list[tuple[Process, Run]] = []
        self.late: list[Call] = []
        self.errors: list[KafkaError] = []
        self.spark_commits = 0
        self.lost_reports = 0
        self.minted = 0
        self.faults = settings.faults
        self.healing = False
        self.runs: list[Run] = []
        self.trace: list[str] = []

    # -- carrying plans out --

    def spawn(
        self, name: str, run: plan.Plan[Any], done: Any, owner: Run, task: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        process = Process(name, self._calls(run, task), done)
        if process.alive:
            self.processes.append((process, owner))

    def _calls(self, run: plan.Plan[Any], task: tuple[int, int, int]) -> Generator[Call, Any, Any]:
        observation: Any = None
        while True:
            try:
                step = run.send(observation)
            except StopIteration as stop:
                return stop.value
            observation = yield from self._step(step, task)

    def _step(self, step: plan.Step, task: tuple[int, int, int]) -> Generator[Call, Any, Any]:  # noqa: C901, PLR0912 - one arm per step
        broker = self.broker
        match step:
            case plan.ListTransactions():
                return (yield from _retried(broker.listed))
            case plan.Claim():
                return (yield from _retried(lambda: broker.init(S, False)))
            case plan.ReadDecisions():
                return (yield from _retried(broker.last_decisions))
            case plan.EndTransactions(ends):
                codes = []
                for end in ends:
                    codes.append((yield from _retried(partial(broker.end, end.transactional_id, end.pair, end.commit))))
                return tuple(codes)
            case plan.AskOwner(_, claim):
                return (yield from _retried(lambda: broker.end(S, claim, False)))
            case plan.WriteDecision(claim, decision):
                if not (yield from _retried(lambda: broker.produce(S, claim, decision))):
                    return 90
                code = yield lambda: broker.end(S, claim, True)
                while code is LOST:
                    if self.choose(2):
                        return None  # it gives up; the request may still take effect
                    code = yield lambda: broker.end(S, claim, True)
                return code
            case plan.HasRows():
                return True
            case plan.Mint():
                self.minted += 1
                unique = (task[1] * 10 + task[2] if self.rules.names_by_attempt else 1000 + self.minted).to_bytes(16)
                return names.task_id(SINK, unique)
            case plan.BeginTask(transactional_id, two_phase):
                pair = yield lambda: broker.init(transactional_id, two_phase)
                return None if pair is LOST else pair
            case plan.WriteRows(transactional_id, pair):
                row = (task[0], task[1])
                if not (yield from _retried(lambda: broker.produce(transactional_id, pair, row))):
                    raise KafkaError("the task's producer was fenced")
                return None
            case plan.Prepare(transactional_id, pair):
                kept = yield lambda: broker.keep(transactional_id, pair)
                if kept is LOST or kept is None:
                    raise KafkaError("the task could not prepare")
                return kept
            case _:
                return None

    # -- one tick --

    def tick(self) -> bool:
        """One action; False when nothing is left to do. The first option is to go on with what ran last."""
        self.processes = [(process, owner) for process, owner in self.processes if process.alive]
        options: list[tuple[str, Call]] = []
        for process, _ in reversed(self.processes):
            options.append((f"{process.name} goes on", partial(self._go, process)))
        if not options:
            if self.runs and (self.spark_commits == self.settings.batches or len(self.runs) > self.settings.faults + 4):
                return False
            self._start()
            return True
        if self.faults > 0:
            options += self._fault_options()
        name, action = options[self.choose(len(options))]
        self.trace.append(name)
        action()
        return True

    def _start(self) -> None:
        self.trace.append("start")
        self.runs.append(Run(self))

    def _go(self, process: Process) -> None:
        self.processes.sort(key=lambda entry: entry[0] is process)  # what ran last goes on by default
        call = process.call
        if call is not None:
            process.send(call())

    def _fault_options(self) -> list[tuple[str, Call]]:
        options: list[tuple[str, Call]] = []
        for process, owner in reversed(self.processes):
            options.append((f"{process.name} dies", partial(self._die, process, owner)))
            options.append((f"{process.name} loses a reply", partial(self._lose, process, late=False)))
            options.append((f"{process.name} has a late request", partial(self._lose, process, late=True)))
        for run in self.runs:
            if run.alive:
                options.append(("driver dies", partial(self._kill_driver, run)))
                if run.attempts:
                    partition = max(run.attempts)
                    options.append(("speculation", partial(self._faulty, partial(run.attempt, partition))))
        options.append(("another driver starts", partial(self._faulty, self._start)))
        for number in range(len(self.late)):
            options.append(("a late request arrives", partial(self._arrive, number)))
        if self.settings.may_time_out:
            for name in self.broker.timeouts():
                options.append((f"{name} times out", partial(self._faulty, partial(self.broker.time_out, name))))
        return options

    def _faulty(self, action: Call) -> None:
        self.faults -= 1
        action()

    def _die(self, process: Process, owner: Run) -> None:
        """The process is killed; its request may be on the way all the same. A living driver learns of it."""
        self.faults -= 1
        if process.call is not None and self.choose(2):
            self.late.append(process.call)
        process.alive = False
        if owner.alive:
            process.done(KafkaError("killed"))

    def _kill_driver(self, run: Run) -> None:
        """kill -9 of driver and JVM: every process of the run may live on as a zombie."""
        self.faults -= 1
        run.alive = False

    def _lose(self, process: Process, late: bool) -> None:
        self.faults -= 1
        call = process.call
        if call is None:
            return
        if late:
            self.late.append(call)
        else:
            call()
        process.send(LOST)

    def _arrive(self, number: int) -> None:
        # Not a fault of its own: the request was sent before.
        self.late.pop(number)()

    # -- from the first tick to the verdict --

    def live(self, max_ticks: int = 400) -> None:
        """Let it run with faults, then heal: all processes end, and one healthy run does one batch more than asked."""
        for _ in range(max_ticks):
            if not self.tick():
                break
        self.processes.clear()
        for run in self.runs:
            run.alive = False
        for call in self.late:
            call()
        self.late.clear()
        self.faults, self.healing, self.choose = 0, True, lambda options: 0
        self.errors.clear()
        self._start()
        for _ in range(max_ticks):
            if not self.runs[-1].alive:
                break
            self.tick()

    def verdict(self) -> str | None:
        """What is wrong in the end; None when all is well."""
        wanted = {(b, p) for b in range(self.settings.batches + 1) for p in range(self.settings.partitions)}
        rows = [row for _, row in self.broker.committed]
        winners = {winner.transactional_id for decision in self.broker.decisions for winner in decision.winners}
        if len(rows) != len(set(rows)):
            return "a batch was committed twice"
        if any(name not in winners for name, _ in self.broker.committed):
            return "a transaction was committed that no decision names"
        batches = [decision.batch_id for decision in self.broker.decisions]
        if len(batches) != len(set(batches)):
            return "a batch was decided twice"
        if self.lost_reports or any(isinstance(error, PreparedTransactionLostError) for error in self.errors):
            return None if self.settings.may_time_out else "a decided transaction was lost"
        if self.errors:
            return f"the healthy run failed: {self.errors[0]!r}"
        if set(rows) != wanted:
            return "rows are missing and nobody said so"
        if any(txn.state == "Ongoing" for txn in self.broker.txns.values()):
            return "a transaction is still in doubt"
        return None


def _retried(call: Call) -> Generator[Call, Any, Any]:
    while True:
        reply = yield call
        if reply is not LOST:
            return reply


def walk(settings: Settings, rules: Rules, choose: Callable[[int], int]) -> tuple[str | None, World]:
    """One whole life of a world, judged."""
    world = World(settings, rules, choose)
    world.live()
    return world.verdict(), world
