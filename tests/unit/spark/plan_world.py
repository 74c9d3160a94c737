"""A small world for plan.py: a coordinator, drivers, and faults. Everything is driven by `choose(n)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

from fencepost.errors import KafkaError, PreparedTransactionLostError
from fencepost.spark.errors import CheckpointRolledBackError
from fencepost.spark.sink import names, plan, plan_steps
from fencepost.spark.sink.decision import NO_ROWS, Decision, Pair, SourceOffsets, Winner
from fencepost.spark.sink.task_ids import TaskIds
from tests.support.sink_abilities import KEEPING, TWO_PHASE, VERSION_0, may_lose
from tests.unit.spark.plan_coordinator import SINK, Coordinator, Row, S, content
from tests.unit.spark.plan_coordinator_v1 import CoordinatorV1, RollingCoordinator
from tests.unit.spark.plan_driver import LOST, QUERY, Call, Process, ProcessState, Read, Run, View, Worker
from tests.unit.spark.plan_settings import Rules, Settings

GONE = "gone"
GONE_ROW: Row = (-1, 0, 0)
Task = tuple[int, int, int, int]  # (batch, partition, attempt, input)


class World:
    """Runs, processes, faults; `choose(n)` in [0, n) decides everything, 0 being the undisturbed way."""

    def __init__(
        self,
        settings: Settings,
        rules: Rules,
        choose: Callable[[int], int],
        may_depart: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings, self.rules, self.choose, self.may_depart = settings, rules, choose, may_depart
        self.rolling = RollingCoordinator() if settings.rolls else None
        self.old = self.rolling or (CoordinatorV1() if settings.abilities == VERSION_0 else None)
        self.broker = self.old or Coordinator()
        self.broker.timed_out_code, self.broker.epochs = settings.timed_out_code, settings.epochs
        self.processes: list[tuple[Process, Run]] = []
        self.late: list[Call] = []
        self.errors: list[KafkaError] = []
        self.spark_commits = 0
        self.inputs: dict[int, int] = {}  # of each planned batch: the checkpoint's offsets
        self.finished = {GONE_ROW[0]: GONE_ROW[2]}  # of each batch that Spark believes written
        self.is_damaged = False
        self.false_alarms: list[KafkaError] = []
        self.repairs = 0
        self.strays: list[str] = []
        self.swept: Pair | None = None  # whose batch is decided or to be aborted, and no task has done anything since
        self.sweeps: Counter[str] = Counter()
        self.noted: Pair | None = None  # the newest claim, of whatever run: drivers share a host
        self.lost_reports = 0
        self.unknown_batches: list[int] = []  # with transactions whose outcome was reported as unknown
        self.refused = 0  # starts of the query, because brokers are too old
        self.minted = 0
        self.reused = 0
        self.idle: list[Worker] = []  # what was busy last is the last
        self.host = rules.pool()
        self.faults = settings.faults
        self.healing = False
        self.runs: list[Run] = []
        self.trace: list[str] = []
        self.offered: list[str] = []  # what `choose` is asked for, where it is an action
        self.met: Callable[[], bool] = lambda: False  # whether the rest of this life is known: plan_ends.py
        self.is_known = False
        if settings.gone:
            self._decide_for_the_gone()

    def _decide_for_the_gone(self) -> None:
        """Decided, and complete only where it could be lost."""
        name, abilities = names.task_id(SINK, bytes(16)), self.settings.abilities
        pair = self.broker.init(name, abilities == TWO_PHASE)
        if self.old is not None:
            self.old.enlist(name, pair)
        self.broker.produce(name, pair, GONE_ROW)
        if abilities == KEEPING:
            pair = self.broker.keep(name, pair) or pair
        self.broker.decisions.append(Decision(SINK, GONE, 9, (Winner(name, pair),), NO_ROWS))
        if may_lose(abilities):
            self.broker.end(name, pair, True)

    def _upgrade(self) -> None:
        """A query is refused while a broker is too old. A person then upgrades all brokers."""
        if self.rolling is not None:
            old = [part for part, verifies in self.rolling.verifies.items() if not verifies]
            self.refused += bool(old)
            for part in old:
                self.rolling.roll(part)

    # -- carrying plans out --

    def spawn(self, name: str, run: plan.Plan[Any], done: Any, owner: Run, task: Task = (0, 0, 0, 0)) -> None:
        state = ProcessState()
        calls = self._calls(state, run, task)
        process = Process(name, self._in_worker(state, calls) if name.startswith("task") else calls, done, state)
        if process.alive:
            self.processes.append((process, owner))

    def _in_worker(self, state: ProcessState, calls: Generator[Call, Any, Any]) -> Generator[Call, Any, Any]:
        """Tasks begin when they are scheduled: a late copy runs where a newer run's task has been."""
        yield Read(lambda: None)
        if self.settings.one_host:
            state.worker = Worker(self.rules.ids(self._unique, View(self.host)))
            return (yield from calls)
        known = (number := self.choose(len(self.idle) + 1)) < len(self.idle)
        worker = state.worker = (
            self.idle.pop(-1 - number) if known else Worker(self.rules.ids(self._unique, self.rules.pool()))
        )
        try:
            return (yield from calls)
        finally:
            if worker.alive:
                self.idle.append(worker)

    def _unique(self) -> bytes:
        self.minted += 1
        return (1000 + self.minted).to_bytes(16)

    def _calls(self, state: ProcessState, run: plan.Plan[Any], task: Task) -> Generator[Call, Any, Any]:
        try:
            step = next(run)
            while True:
                try:
                    observation = yield from self._step(state, step, task)
                except KafkaError as error:
                    step = run.throw(error)
                else:
                    if isinstance(step, plan_steps.WriteDecision) and observation == 0:
                        self.swept = step.claim
                    step = run.send(observation)
        except StopIteration as stop:
            return stop.value

    def _step(self, state: ProcessState, step: plan_steps.Step, task: Task) -> Generator[Call, Any, Any]:  # noqa: C901, PLR0912 - one arm per step
        broker = self.broker
        match step:
            case plan_steps.WriteDecision(claim, decision, others, verified):
                if not (yield from self._enlist_decision(claim)):
                    return 90
                if not (yield from self._produce(S, claim, (decision, *others), verified)):
                    return 90
                code = yield lambda: broker.end(S, claim, True)
                while code is LOST:
                    if self.choose(2):
                        return None  # it gives up; the request may still take effect
                    code = yield lambda: broker.end(S, claim, True)
                return code
            case plan_steps.SaveOffsets():
                return SourceOffsets(str(task[3]), None)
            case plan_steps.HasRows():
                return True
            case plan_steps.DrainRows():
                return content((task[0], task[1], task[3]))
            case plan_steps.AcquireTaskId(opened):
                if self.rules.names_by_attempt:
                    return names.task_id(SINK, (task[1] * 10 + task[2]).to_bytes(16))
                return (yield from self._take(state.worker.ids, opened))
            case plan_steps.BeginTask(transactional_id, use, two_phase):
                pair = yield lambda: broker.init(transactional_id, two_phase)
                if pair is LOST:
                    return None
                state.worker.ids.begun(transactional_id, use)
                return pair
            case plan_steps.ReportUnknown(_, _, unknown):
                self._note_unknown(unknown)
                return None
            case plan_steps.WriteRows(transactional_id, pair, verified):
                row = (task[0], task[1], task[3])
                yield from self._enlist(transactional_id, pair)
                if not (yield from self._produce(transactional_id, pair, row, verified)):
                    raise KafkaError("the task's producer was fenced")
                if self.settings.breaking_rows and self.faults > 0 and self.choose(6) == 5:
                    self.faults -= 1
                    raise KafkaError("a row's own code raised")
                return content(row)
            case plan_steps.AbortTask(transactional_id, pair):
                return (yield partial(self._end, plan_steps.EndTxn(transactional_id, pair, commit=False)))
            case plan_steps.EndTransactions(ends):
                return (yield from self._each([partial(self._end, end) for end in ends]))
            case plan_steps.KeepWinners(winners):
                return (
                    yield from self._each(
                        [partial(broker.keep, winner.transactional_id, winner.pair) for winner in winners]
                    )
                )
            case plan_steps.VerifyClaim(sink, claim) if self.old is not None:
                return (yield from self._calls(state, self.rules.verify_claim(sink, claim), task))
            case plan_steps.Claim() | plan_steps.VerifyClaim() | plan_steps.BumpEpoch():
                return (yield from _retried(partial(broker.answer, step)))
            case _:
                return (yield from _read(partial(broker.answer, step)))

    def _enlist_decision(self, claim: Pair) -> Generator[Call, Any, bool]:
        old = self.old
        return old is None or bool((yield from _retried(partial(old.enlist, S, claim))))

    def _enlist(self, transactional_id: str, pair: Pair) -> Generator[Call, Any, None]:
        if (old := self.old) is None:
            return
        answer = yield partial(old.enlist, transactional_id, pair)
        if answer is LOST:
            raise KafkaError("it may be enlisted late, when the transaction is over")
        if not answer:
            raise KafkaError("the task's producer was fenced")

    def _produce(self, transactional_id: str, pair: Pair, row: Any, verified: bool) -> Generator[Call, Any, bool]:
        rolling = self.rolling
        if rolling is None:
            return bool((yield from _retried(partial(self.broker.produce, transactional_id, pair, row))))
        while True:
            connection = rolling.reach(transactional_id, verified and not self.rules.sends_to_all)
            answer = yield partial(rolling.send, connection, transactional_id, pair, row)
            if answer is not None and answer is not LOST:
                return bool(answer)

    def _note_unknown(self, unknown: plan_steps.UnknownOutcome) -> None:
        for winner in unknown.winners:
            if winner.transactional_id not in self.broker.forgotten:
                self.strays.append(f"{winner.transactional_id} is known, and was reported as unknown, it")
        self.unknown_batches.append(unknown.batch_id if unknown.query_id == QUERY else GONE_ROW[0])

    def _each(self, calls: Iterable[Call]) -> Generator[Call, Any, Any]:
        """Run the calls for several transactions, which may end between any two. Return the answers."""
        answers: list[Any] = []
        for call in calls:
            answers.append((yield from _retried(call)))
        return tuple(answers)

    def _end(self, end: plan_steps.EndTxn) -> int:
        return self.broker.end(end.transactional_id, end.pair, end.commit)

    def _take(self, ids: TaskIds, opened: plan_steps.OpenedSink) -> Generator[Call, Any, str]:
        if isinstance(view := ids.pool, View):
            yield Read(lambda: view.look(opened))
            yield Read(lambda: None)  # what others do meanwhile is not seen
        minted = self.minted
        taken = ids.take(opened)
        self.reused += self.minted == minted
        return taken

    # -- one tick --

    def tick(self) -> bool:
        """One action; False when nothing is left to do. The first option is to go on with what ran last."""
        self.processes = [entry for entry in self.processes if entry[0].alive]
        awake = [process for process, _ in self.processes if not process.asleep]
        if awake and not self.may_depart():
            process = awake[-self.choose(1) - 1]
            self.trace.append(f"{process.name} goes on")
            self._go(process)
            return True
        options: list[tuple[str, Call]] = []
        for process in reversed(awake):
            options.append((f"{process.name} goes on", partial(self._go, process)))
        if not options:
            if self.runs and (self.spark_commits == self.settings.batches or len(self.runs) > self.settings.faults + 4):
                return False
            self.is_known = not self.healing and self.met()
            if self.is_known:
                return False
            self._start()
            return True
        for process, _ in self.processes:
            if process.asleep:
                options.append((f"{process.name} wakes up", partial(self._go, process)))
        if self.faults > 0:
            options += self._fault_options()
        self.offered = [name for name, _ in options]
        name, action = options[self.choose(len(options))]
        self.trace.append(name)
        action()
        return True

    def _start(self) -> None:
        self.trace.append("start")
        self._upgrade()
        self.runs.append(Run(self))

    def _go(self, process: Process) -> None:
        if self.processes[-1][0] is not process:
            self.processes.sort(key=lambda entry: entry[0] is process)  # what ran last goes on by default
        call = process.call
        process.asleep = False
        if process.name.startswith("task"):
            self.swept = None
        if call is not None:
            process.send(call())

    def _fault_options(self) -> list[tuple[str, Call]]:
        options: list[tuple[str, Call]] = []
        for process, owner in reversed(self.processes):
            options.append((f"{process.name} dies", partial(self._die, process, owner)))
            options.append(
                (f"{process.name} falls asleep", partial(self._faulty, partial(setattr, process, "asleep", True)))
            )
            if not isinstance(process.call, Read):
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
        if self.settings.checkpoint_faults and self.runs:
            options.append(("the offsets of a batch are lost", partial(self._faulty, self._lose_offsets)))
            options.append(("the checkpoint is restored", partial(self._faulty, self._restore)))
        return options + self._broker_faults()

    def _broker_faults(self) -> list[tuple[str, Call]]:
        options: list[tuple[str, Call]] = []
        if self.old is not None:
            options.append(("the coordinator moves", partial(self._faulty, self.old.move)))
        if self.rolling is not None:
            for part in self.rolling.verifies:
                options.append((f"{part} go to the other release", partial(self._faulty, self._rolled(part))))
        if self.settings.others_keep:
            for name in self.broker.ongoing():
                keep = partial(self.broker.keep_as_other, name)
                options.append((f"a stranger keeps {name}", partial(self._faulty, keep)))
        if self.settings.forgets:
            for name in self.broker.ended():
                options.append((f"{name} expires", partial(self._faulty, partial(self.broker.forget, name))))
        if self.settings.may_time_out:
            for name in self.broker.timeouts() if self._may_time_out_now() else ():
                options.append((f"{name} times out", partial(self._faulty, partial(self.broker.time_out, name))))
        return options

    def _rolled(self, part: str) -> Call:
        def roll() -> None:
            if self.rolling is not None:
                self.rolling.roll(part)
                self.swept = None

        return roll

    def _may_time_out_now(self) -> bool:
        """Return true unless a timeout could lose a decided transaction although losses are forbidden."""
        return (
            not may_lose(self.settings.abilities)
            or self.settings.may_lose
            or (
                not any(process.name.startswith(("commit", "abort")) for process, _ in self.processes)
                and not any(
                    txn.state == "Ongoing" and name in self._decided() for name, txn in self.broker.txns.items()
                )
            )
        )

    def _decided(self) -> set[str]:
        return {winner.transactional_id for decision in self.broker.decisions for winner in decision.winners}

    def _faulty(self, action: Call) -> None:
        self.faults -= 1
        action()

    def _die(self, process: Process, owner: Run) -> None:
        """The process is killed; its request may be on the way all the same. A living driver learns of it."""
        self.faults -= 1
        if process.call is not None and not isinstance(process.call, Read) and self.choose(2):
            self.late.append(process.call)
        process.alive = False
        process.state.worker.alive = False
        if owner.alive:
            process.done(KafkaError("killed"))

    def _kill_driver(self, run: Run) -> None:
        """kill -9 of driver and JVM: every process of the run may live on as a zombie."""
        self.faults -= 1
        run.alive = False

    def _lose_offsets(self) -> None:
        """With the power of the driver's host: Spark plans the unfinished batch anew, of what is in the source now."""
        self._stop_query()
        self.is_damaged = True
        if self.spark_commits in self.inputs:
            self.inputs[self.spark_commits] += 1

    def _restore(self) -> None:
        """An older copy of the checkpoint: what is planned from here on has other bounds."""
        self._lose_offsets()
        if self.spark_commits:
            self.spark_commits -= 1
            self.inputs[self.spark_commits] += 1

    def look_for_strays(self, claim: Pair) -> None:
        """This claim's batch is committed or aborted. What no process and no request can still begin is not open."""
        if self.swept != claim or self.late or any(process.alive for process, _ in self.processes):
            return
        own = self.broker.txns[S]
        bumped = own.state != "Empty" if self.old is None else self.old.last.get(S) == claim
        if (own.producer_id, own.epoch) != (claim.producer_id, claim.epoch + bumped):
            return  # somebody has claimed the sink since: what is open is left to them
        self.sweeps[own.state] += 1
        if open_ones := self.broker.ongoing():
            self.strays.append(f"{open_ones} of {self.settings.abilities}")

    def check_was_decided(self, claim: Pair) -> None:
        """An abort has found that: nothing of the batch is aborted then."""
        if self.old is not None and claim not in self.old.decided_with:
            self.strays.append(f"what was begun under {claim}, which has decided nothing,")

    def _stop_query(self) -> None:
        """No driver and nothing of Spark's on its host lives; tasks may, elsewhere."""
        for run in self.runs:
            run.alive = False
        for process, _ in self.processes:
            if not process.name.startswith("task"):
                process.alive = False

    def repair(self, run: Run, error: KafkaError) -> None:
        """Repair the checkpoint as a person does after the query's error, or note a false alarm."""
        if not self.is_damaged:
            # Two drivers on one checkpoint: who is behind may be told that it is.
            if not isinstance(error, CheckpointRolledBackError) or run.batch >= self.spark_commits:
                self.false_alarms.append(error)
            return
        decision = next((candidate for candidate in self.broker.last_decisions() if candidate.query_id == QUERY), None)
        if decision is None or decision.offsets is None:
            self.false_alarms.append(error)
            return
        self._stop_query()
        self.repairs += 1
        self.spark_commits = decision.batch_id
        self.inputs[self.spark_commits] = int(decision.offsets.batch)

    def _lose(self, process: Process, late: bool) -> None:
        self.faults -= 1
        call = process.call
        self.swept = None
        if call is None:
            return
        if late:
            self.late.append(call)
        else:
            call()
        process.send(LOST)

    def _arrive(self, number: int) -> None:
        # Not a fault of its own: the request was sent before.
        self.swept = None
        self.late.pop(number)()

    # -- from the first tick to the verdict --

    def live(self, max_ticks: int = 400) -> None:
        """Let it run with faults, then heal: all processes end, and one healthy run does one batch more than asked."""
        for _ in range(max_ticks):
            if not self.tick():
                break
        if self.is_known:
            return
        self.processes.clear()
        for run in self.runs:
            run.alive = False
        for call in self.late:
            call()
        self.late.clear()
        self.faults, self.healing, self.choose = 0, True, lambda options: 0
        self.errors.clear()
        self.is_known = self.met()
        if self.is_known:
            return
        self._resolve()
        repairs = -1
        while repairs != self.repairs:  # a repair stops the query: it is started again
            repairs = self.repairs
            self.processes.clear()
            self._start()
            for _ in range(max_ticks):
                if not self.runs[-1].alive:
                    break
                self.tick()

    def _resolve(self) -> None:
        """An Open with nothing after it, as a person does who cleans up."""
        self._upgrade()
        steps = self.rules.open_sink(SINK, self.settings.abilities)
        process = Process("resolver", self._calls(ProcessState(), steps, (0, 0, 0, 0)), self._resolved)
        while process.call is not None:
            process.send(process.call())

    def _resolved(self, result: Any) -> None:
        if isinstance(result, PreparedTransactionLostError):
            self.lost_reports += 1
        open_ones = [name for name, txn in self.broker.txns.items() if txn.state == "Ongoing"]
        if open_ones and not isinstance(result, KafkaError):
            self.strays.append(f"{open_ones} after an open")

    def verdict(self) -> str | None:
        """Return the fault at the end of a run, or None."""
        if self.rolling is not None and (hanging := self.rolling.hanging()):
            return f"rows hang in a partition, of {hanging}"
        if self.strays:
            return f"a loser outlives its batch: {self.strays[0]}"
        if self.false_alarms:
            return f"a false alarm: {self.false_alarms[0]!r}"
        problem = self._doubled()
        if problem is not None:
            return problem
        winners = [winner for decision in self.broker.decisions for winner in decision.winners]
        if self.old is not None and self.lost_reports and len(self.broker.committed) == len(winners):
            return "a loss was told, and nothing is lost"
        if self.lost_reports or any(isinstance(error, PreparedTransactionLostError) for error in self.errors):
            return None if self.settings.may_lose else "a decided transaction was lost"
        if self.errors:
            return f"the healthy run failed: {self.errors[0]!r}"
        return self._unfinished()

    def _doubled(self) -> str | None:
        rows = [row[:2] for _, row in self.broker.committed]
        winners = {winner.transactional_id for decision in self.broker.decisions for winner in decision.winners}
        if len(rows) != len(set(rows)):
            return "a batch was committed twice"
        if any(name not in winners for name, _ in self.broker.committed):
            return "a transaction was committed that no decision names"
        batches = [decision.batch_id for decision in self.broker.decisions if decision.query_id == QUERY]
        return "a batch was decided twice" if len(batches) != len(set(batches)) else None

    def _unfinished(self) -> str | None:
        wanted = {(b, p) for b in range(self.settings.batches + 1) for p in range(self.settings.partitions)}
        if self.settings.gone:
            wanted.add(GONE_ROW[:2])
        missing = wanted - {row[:2] for _, row in self.broker.committed}
        if any(batch not in self.unknown_batches or not self.settings.may_lose for batch, _ in missing):
            return "rows are missing and nobody said so"
        if any(self.finished[batch] != which for _, (batch, _, which) in self.broker.committed):
            return "Spark goes on behind other rows than those in the topic"
        if any(txn.state == "Ongoing" for txn in self.broker.txns.values()):
            return "a transaction is still in doubt"
        if any(decision.winners for decision in self.broker.last_decisions() if decision.query_id == GONE):
            return "a query that is gone is looked after for ever"
        return None


def _read(call: Call) -> Generator[Call, Any, Any]:
    return (yield Read(call))


def _retried(call: Call) -> Generator[Call, Any, Any]:
    while True:
        reply = yield call
        if reply is not LOST:
            return reply


def walk(
    settings: Settings, rules: Rules, choose: Callable[[int], int], may_depart: Callable[[], bool] = lambda: True
) -> tuple[str | None, World]:
    """One whole life of a world, judged. `may_depart`: whether the next choice can be another one than 0."""
    world = World(settings, rules, choose, may_depart)
    world.live()
    return world.verdict(), world
