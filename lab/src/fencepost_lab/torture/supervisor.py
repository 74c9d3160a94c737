"""The supervisor of a run: start clients, inject faults, let the clients finish, read everything, write the history."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Protocol

from fencepost.errors import KafkaError
from fencepost.small_files import written_whole
from fencepost_lab.check.history.file import VERSION_LINE
from fencepost_lab.check.history.recorder import Recorder
from fencepost_lab.torture.access import Access
from fencepost_lab.torture.child_process import ChildProcess
from fencepost_lab.torture.fault_proxy import FaultDraw, FaultProxy
from fencepost_lab.torture.settling import clean_up, create_topics, settle
from fencepost_lab.torture.two_phase import DecisionFile, carry_out
from fencepost_lab.torture.worker import WorkerJob

__all__ = ["FAULTS", "Torture", "TortureError", "TortureOptions"]

FAULTS = ("kill-client", "pause-client", "cancel", "cut", "away", "one-way", "requests", "kill-broker", "pause-broker")
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
START_S = 120.0
END_S = 60.0
STUCK_MS = 30_000
SAY_EVERY_S = 10.0
PARTITIONS = 3


class TortureError(RuntimeError):
    """The run could not be completed. The message gives the reason."""


class RestartableBroker(Protocol):
    """A Kafka that can be killed and restarted on its data."""

    @property
    def pid(self) -> int | None: ...
    def start(self) -> object: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TortureOptions:
    """Options of a run.

    `work` is a directory for the workers' files. Without `broker` the Kafka is not killed, and `broker_pid` may be
    paused. `two_phase` is the way of completing decided transactions after a crash (torture/two_phase.py); without it
    there are none. `between_faults_s`: shortest and longest time from a fault to the next, in seconds.
    """

    access: Access
    minutes: float
    seed: int
    client: str
    prefix: str
    keep: bool
    work: Path
    broker: RestartableBroker | None = None
    broker_pid: int | None = None
    faults: tuple[str, ...] = FAULTS
    two_phase: str = ""
    between_faults_s: tuple[float, float] = (1.0, 8.0)


@dataclass(slots=True)
class _Worker:
    job: WorkerJob
    process: ChildProcess
    resumes_at: float | None = None
    starts_at: float | None = None


@dataclass(slots=True)
class Torture:
    """One run. `say` receives its progress, a line at a time."""

    options: TortureOptions
    say: Callable[[str], None]
    happened: Counter[str] = field(default_factory=Counter)
    _workers: list[_Worker] = field(default_factory=list)
    _started: int = 0
    _events_read: dict[Path, int] = field(default_factory=dict)
    _progress: Counter[str] = field(default_factory=Counter)
    _later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    @property
    def topics(self) -> dict[str, int]:
        """Topics of the run with their numbers of partitions."""
        prefix = self.options.prefix
        return {f"{prefix}in": PARTITIONS, f"{prefix}out": 2, f"{prefix}red": 2, f"{prefix}blue": 1}

    def run(self, history: Path) -> None:
        """Run the test. `history` is written even if the storm fails. Raises TortureError, KafkaError."""
        options = self.options
        servers = options.access.bootstrap_servers
        tls = options.access.tls_of_proxy()
        create_topics(options.access, self.topics)
        self.say(f"topics {', '.join(self.topics)} on {servers}")
        chance = Random(options.seed)
        fault_draw = FaultDraw(chance.randrange(2**32), requests_per_fault=40)
        fault_draw.enabled = "requests" in options.faults
        host, _, port = servers.split(",")[0].rpartition(":")
        try:
            with FaultProxy((host.strip("[]"), int(port)), fault_draw, tls) as proxy:
                try:
                    self._start_workers(options.access.proxied(f"127.0.0.1:{proxy.port}"), chance)
                    self._await_work()
                    self.say("all clients are at work: the faults begin")
                    self._storm(chance, proxy)
                except KeyboardInterrupt:
                    self.say("stopped: checking what there is")
                fault_draw.enabled = proxy.away = proxy.is_one_way = False
                self._finish()
        finally:
            self._end_all()
        self.happened.update(fault_draw.happened)
        self.say("reading everything")
        self._settle()
        self._write(history)
        if not options.keep:
            for left in clean_up(options.access, self.topics, self._inputs()):
                self.say(f"left behind: {left}")

    def processes(self) -> list[ChildProcess]:
        """Return the latest process of each worker."""
        return [worker.process for worker in self._workers]

    # Workers ---------------------------------------------------------------------------------------------------------

    def _jobs(self, proxied: Access, chance: Random) -> Iterator[WorkerJob]:
        prefix = self.options.prefix
        plain = {name: count for name, count in self.topics.items() if name in (f"{prefix}red", f"{prefix}blue")}
        read = {name: count for name, count in self.topics.items() if name != f"{prefix}in"}

        def job(name: str, role: str, topics: dict[str, int], **more: str) -> WorkerJob:
            return WorkerJob(
                role=role,
                process=name,
                name=f"{prefix}{name}",
                access=proxied,
                client=self.options.client,
                seed=chance.randrange(2**32),
                events=str(self.options.work / f"{name}.jsonl"),
                topics=topics,
                **more,
            )

        for number in range(2):
            yield job(f"writer-{number}", "writer", plain)
            copied = {"source": f"{prefix}in", "group": f"{prefix}copy"}
            yield job(f"copier-{number}", "copier", {f"{prefix}out": 2}, **copied)
            if self.options.two_phase:
                decided = {"two_phase": self.options.two_phase, "decisions": str(self._decisions(number))}
                yield job(f"decider-{number}", "decider", plain, **decided)
        yield job("feeder-0", "feeder", {f"{prefix}in": PARTITIONS})
        yield job("reader-0", "reader", read)
        yield job("reader-1", "reader", read, isolation="read_uncommitted")

    def _decisions(self, number: int) -> Path:
        return self.options.work / f"decider-{number}.decision"

    def _start_workers(self, proxied: Access, chance: Random) -> None:
        for job in self._jobs(proxied, chance):
            self._workers.append(_Worker(job, self._launch(job)))

    def _await_work(self) -> None:
        """Wait until every client was answered and the writers requested a commit, so that faults meet working clients.

        Raises TortureError.
        """
        deadline = time.monotonic() + START_S
        waiting = {Path(worker.job.events): worker.job.role for worker in self._workers}
        while waiting:
            for path, role in list(waiting.items()):
                wanted = b'"f": "commit"' if role in ("writer", "decider") else b'"type": "ok"'
                if path.exists() and wanted in path.read_bytes():
                    del waiting[path]
            self._tend(time.monotonic())
            if time.monotonic() > deadline:
                idle = ", ".join(sorted(path.stem for path in waiting))
                raise TortureError(f"without any faults, {idle} made no progress in {START_S:.0f} s")
            time.sleep(0.1)

    def _launch(self, job: WorkerJob) -> ChildProcess:
        self._started += 1
        started = replace(job, process=f"{job.process}/{self._started}", seed=job.seed + self._started)
        process = ChildProcess([sys.executable, "-m", "fencepost_lab.torture.worker"], self._log)
        # by standard input, because the process list shows arguments and the job may contain a password
        process.launch(started.to_json().encode())
        return process

    @property
    def _log(self) -> Path:
        return self.options.work / "workers.log"

    def _tend(self, now: float) -> None:
        """Resume paused workers and restart killed and crashed ones.

        Raises TortureError for a worker that ended by itself.
        """
        for worker in self._workers:
            if worker.resumes_at is not None and now >= worker.resumes_at:
                worker.resumes_at = None
                worker.process.send(signal.SIGCONT)
            if worker.starts_at is not None and now >= worker.starts_at:
                worker.starts_at = None
                worker.process = self._launch(worker.job)
            elif worker.starts_at is None and not worker.process.is_running:
                self._take_for_kill(worker)
                worker.starts_at = now

    def _take_for_kill(self, worker: _Worker) -> None:
        """Count and tell a worker that was ended by a crash of another client's library.

        To the Kafka under test a crash is the same as a kill. librdkafka 2.16.0 was seen to abort the process in its
        handler of AddPartitionsToTxn (`txn_req_cnt > 0`).

        Raises TortureError if the worker ended in another way, or runs Fencepost's client.
        """
        status = worker.process.status or 0
        if -status not in CRASHES or self.options.client == "fencepost":
            message = f"{worker.job.process} ended by itself; see {self._log}:\n{worker.process.tail()}"
            raise TortureError(message)
        self.happened["client crashed"] += 1
        last = worker.process.tail().strip().rpartition("\n")[2]
        self.say(f"{worker.job.process} crashed with {signal.Signals(-status).name} and is restarted: {last}")

    # Faults -----------------------------------------------------------------------------------------------------------

    def _storm(self, chance: Random, proxy: FaultProxy) -> None:
        began = said = time.monotonic()
        end = began + self.options.minutes * 60
        due = began + 1
        try:
            while (now := time.monotonic()) < end:
                time.sleep(0.05)
                self._tend(now)
                self._undo_due(now)
                if now >= due:
                    self._inject_fault(chance, proxy, now)
                    due = time.monotonic() + chance.uniform(*self.options.between_faults_s)
                if now - said >= SAY_EVERY_S:
                    said = now
                    self._print_progress(now - began)
        finally:
            self._undo_due(float("inf"))

    def _undo_due(self, now: float) -> None:
        for later in [later for later in self._later if later[0] <= now]:
            self._later.remove(later)
            later[1]()

    def _inject_fault(self, chance: Random, proxy: FaultProxy, now: float) -> None:
        """Inject one fault. A later call ends it."""
        possible = self._possible()
        if not possible:
            return
        action = chance.choice(possible)
        self.happened[action] += 1
        if action in ("kill-client", "pause-client", "cancel"):
            self._inject_worker_fault(action, chance, now)
        elif action == "kill-broker":
            self._kill_broker(chance)
        elif action == "pause-broker":
            self._pause_broker(now + chance.uniform(0.5, 8))
        elif action == "cut":
            proxy.cut()
        elif action == "away":
            proxy.away = True
            proxy.cut()
            self._later.append((now + chance.uniform(0.5, 8), lambda: setattr(proxy, "away", False)))
        else:
            proxy.is_one_way = True
            self._later.append((now + chance.uniform(0.5, 8), lambda: setattr(proxy, "is_one_way", False)))

    def _possible(self) -> list[str]:
        impossible = {"requests"}  # `fault_draw` injects these
        if self.options.broker is None:
            impossible.add("kill-broker")
            if self.options.broker_pid is None:
                impossible.add("pause-broker")
        return [fault for fault in self.options.faults if fault not in impossible]

    def _inject_worker_fault(self, action: str, chance: Random, now: float) -> None:
        ready = [worker for worker in self._workers if worker.starts_at is None and worker.resumes_at is None]
        if not ready:
            return
        worker = chance.choice(ready)
        if action == "cancel":
            worker.process.send(signal.SIGUSR1)
        elif action == "pause-client":
            worker.process.send(signal.SIGSTOP)
            worker.resumes_at = now + chance.choice((1, 5, 15)) * chance.uniform(0.5, 1.5)
        else:
            worker.process.kill()
            worker.starts_at = now + chance.uniform(0, 2)

    def _kill_broker(self, chance: Random) -> None:
        broker = self.options.broker
        if broker is not None and broker.pid is not None:
            self.say(f"kill -9 broker: process {broker.pid}")
            broker.kill()
            time.sleep(chance.uniform(0, 1))
            began = time.monotonic()
            broker.start()
            self.say(f"broker is back (process {broker.pid}) after {time.monotonic() - began:.1f} s")

    def _pause_broker(self, until: float) -> None:
        pid = self.options.broker.pid if self.options.broker is not None else self.options.broker_pid
        if pid is not None:
            self._later.append((until, lambda: _resume(pid)))
            os.kill(pid, signal.SIGSTOP)

    # The end ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Let all workers finish. A worker that needs more than a minute is killed."""
        living = [worker for worker in self._workers if worker.process.is_running]
        for worker in living:
            worker.process.send(signal.SIGCONT)
            worker.process.send(signal.SIGTERM)
        deadline = time.monotonic() + END_S
        for worker in living:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.say(f"{worker.job.process} did not end within {END_S:.0f} s and is killed")
                self.happened["killed at the end"] += 1

    def _end_all(self) -> None:
        for process in self.processes():
            process.kill()

    def _inputs(self) -> dict[str, str]:
        return {f"{self.options.prefix}copy": f"{self.options.prefix}in"}

    def _settle(self) -> None:
        options = self.options
        jobs = {worker.job.name: worker.job for worker in self._workers}
        names = sorted(name for name, job in jobs.items() if job.role in ("writer", "copier", "decider"))
        with (options.work / "judge.jsonl").open("w", encoding="utf-8") as file:
            recorder = Recorder(lambda: time.monotonic_ns() / 1e6, lambda line: file.write(line + "\n"))
            for name in names:
                if jobs[name].role == "decider":
                    self._carry_out(jobs[name], recorder)
            settle(
                options.access,
                recorder,
                transactional_ids=names,
                inputs=self._inputs(),
                topics=self.topics,
                patience_ms=STUCK_MS,
            )

    def _carry_out(self, decider: WorkerJob, recorder: Recorder) -> None:
        """Carry out a stored decision that the decider did not complete, before another client takes its id."""
        decisions = DecisionFile(Path(decider.decisions))
        try:
            carry_out(decider.two_phase, decider.name, self.options.access, decisions, recorder, "judge-0")
        except KafkaError as error:
            self.say(f"the decision of {decider.process} could not be carried out: {error}")

    def _write(self, history: Path) -> None:
        """Write all events in the order of time.

        An incomplete line of a killed process stands for an operation not sent.
        """
        events: list[tuple[float, str]] = []
        for path in sorted(self.options.work.glob("*.jsonl")):
            with path.open(encoding="utf-8") as file:
                events += [(_time_ms(line), line) for line in file if line.endswith("\n")]
        events.sort(key=lambda event: event[0])
        with written_whole(history) as out:
            out.write(f"{VERSION_LINE}\n".encode())
            out.writelines(line.encode() for _, line in events)

    def _print_progress(self, seconds: float) -> None:
        for path in self.options.work.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._events_read.get(path, 0))
                new = file.read()
            self._events_read[path] = self._events_read.get(path, 0) + len(new)
            self._progress["commits"] += new.count(b'"f": "commit"')
            self._progress["sends"] += new.count(b'"f": "send"')
            self._progress["polls"] += new.count(b'"f": "poll"')
        done = ", ".join(f"{count:,} {name}" for name, count in sorted(self._progress.items()))
        bad = ", ".join(f"{count} {name}" for name, count in sorted(self.happened.items()))
        self.say(f"{seconds:5.0f} s  {done} | {bad}")


def _resume(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # the process was killed meanwhile


def _time_ms(line: str) -> float:
    """Return the time of a line without parsing the whole line, because it is the first field."""
    return float(line[line.index(":") + 1 : line.index(",")])
