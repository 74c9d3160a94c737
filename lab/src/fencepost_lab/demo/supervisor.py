"""Run the demo's job while its processes are killed and restarted, and check the output.

The supervisor has the role of a cluster manager. It holds no state that the job needs: all of it is in Kafka and the
checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
from rich.console import Console

from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost_lab.demo import chaos, flights
from fencepost_lab.demo.chaos import Kill, KillTarget
from fencepost_lab.demo.progress import Counters, Progress
from fencepost_lab.demo.query import Job
from fencepost_lab.demo.verdict import DemoVerdict, judge, read_committed
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.child_process import ChildProcess

__all__ = ["DemoError", "Options", "run_demo"]

TICK_SECONDS = 0.1
STALLED_SECONDS = 180.0
BROKER_DOWN_SECONDS = 0.5
TRANSACTION_POLL_SECONDS = 0.7
LOOK_SECONDS = 1.0  # finding a driver's processes walks over all processes of the machine
FIRST_CONTACT_MS = 20_000
PARTITIONS = 2  # one per task slot of the driver: a second wave of tasks would double the time of a micro-batch
BATCHES = 30


class DemoError(RuntimeError):
    """The run could not be completed. The message gives the reason and the location of the logs."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command. `bootstrap_servers` None selects the embedded broker, which is killed too."""

    seed: int
    kills: int
    bootstrap_servers: str | None
    delivery: str
    flights: int | None
    keep: bool
    topic_prefix: str
    arrow: bool = False


class Demo:
    """One run. `work` is the folder of the broker's data, the checkpoint and the logs."""

    def __init__(self, options: Options, work: Path, console: Console) -> None:
        self.options = options
        self.work = work
        self.counters = Counters()
        self.progress = Progress(console, self.counters)
        self.broker = None if options.bootstrap_servers else BrokerProcess(folder=work / "broker")
        self.bootstrap_servers = options.bootstrap_servers or ""  # the embedded broker's when it has started
        self.source, self.sink = f"{options.topic_prefix}flights", f"{options.topic_prefix}delays"
        self.sink_id = self.sink
        self.driver: ChildProcess | None = None
        self._java: dict[str, str] | None = None
        self.finished = False
        self._seen_processes: dict[int, psutil.Process] = {}
        self._looked = 0.0
        self._last_advance = time.monotonic()
        self._broker_due: float | None = None
        self._created: list[str] = []
        self._killed: list[tuple[str, float]] = []
        """Processes killed since the last finished micro-batch, with the time."""

    # Preparing -------------------------------------------------------------------------------------------------------

    def prepare(self) -> flights.Expected:
        """Start the broker, create the topics and fill the source topic."""
        from fencepost import Admin, Producer

        if self.broker:
            self.broker.start()
            self.bootstrap_servers = self.broker.bootstrap_servers
            self.progress.say(f"broker listening on {self.bootstrap_servers} (process {self.broker.pid})")
        frame = flights.load(self.options.flights)
        self.counters.rows_total = len(frame)
        with Admin(bootstrap_servers=self.bootstrap_servers, default_api_timeout_ms=FIRST_CONTACT_MS) as admin:
            present = {self.source, self.sink} & set(admin.list_topics())
            if present:
                raise DemoError(
                    f"topics {', '.join(sorted(present))} exist already on {self.bootstrap_servers}: "
                    "delete them or use --topic-prefix"
                )
            for topic in (self.source, self.sink):
                admin.create_topic(topic, PARTITIONS)
                self._created.append(topic)
        with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            started = time.monotonic()
            table = flights.to_table(frame)
            for batch in table.to_batches(max_chunksize=10_000):
                producer.send_arrow(self.source, batch)
            producer.flush()
        self.progress.say(
            f"{len(frame):,} flights ({table.nbytes / 1e6:.0f} MB) written to topic {self.source} "
            f"in {time.monotonic() - started:.1f} s"
        )
        return flights.expected(frame)

    def start_driver(self) -> None:
        """Start a driver process on the same checkpoint."""
        from fencepost.spark.java import java_home

        job = Job(
            bootstrap_servers=self.bootstrap_servers,
            source_topic=self.source,
            sink_topic=self.sink,
            checkpoint=str(self.work / "checkpoint"),
            sink_id=self.sink_id,
            delivery=self.options.delivery,
            rows_per_batch=max(self.counters.rows_total // BATCHES, 1),
            arrow=self.options.arrow,
        )
        if self._java is None:  # once, because the search starts a JVM
            self._java = java_home(install=True).environment()
        self.driver = ChildProcess(
            [sys.executable, "-m", "fencepost_lab.demo.query", job.to_json()],
            self.work / "driver.log",
            environment={
                **self._java,
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
        )
        self.driver.launch()
        self.counters.driver_starts += 1
        self.progress.say(f"driver process {self.driver.pid} started")

    # Working ---------------------------------------------------------------------------------------------------------

    def work_through(self, kills: list[Kill]) -> None:
        """Run the job to its end with all kills. Raises DemoError if it makes no progress."""
        self.start_driver()
        due_at: float | None = None
        pending = list(kills)
        with self._transactions_watched():
            while not (self.finished and not pending):
                time.sleep(TICK_SECONDS)
                now = time.monotonic()
                self._restart_broker(now)
                self._follow_driver()
                if pending and due_at is None and (self.counters.fraction >= pending[0].fraction or self.finished):
                    due_at = now + (0.0 if self.finished else pending[0].delay_seconds)
                if due_at is not None and now >= due_at and self._carry_out(pending[0]):
                    pending.pop(0)
                    due_at = None
                if now - self._last_advance > STALLED_SECONDS:
                    raise DemoError(f"no progress for {STALLED_SECONDS:.0f} s; the logs are in {self.work}")
                self.progress.refresh()
        self.progress.say(self.counters.waited)

    def _follow_driver(self) -> None:
        """Process the driver's events, and start a new driver if it has died."""
        driver = self.driver
        if driver is None:
            return
        code = driver.status  # before its events, so that none is missed at its end
        for line in driver.new_lines():
            if line.startswith('{"event"'):  # others are of Spark and its launcher
                self._take(json.loads(line))
        if code is None:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                self._remember_processes(driver)
        elif not self.finished:
            if code > 0:
                self.progress.say(f"the driver ended with exit status {code}; see {driver.log}")
            self.start_driver()

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "batch":
                self.counters.rows_by_batch[event["id"]] = event["rows"]
                self._last_advance = time.monotonic()
                for name, killed_at in self._killed:
                    self.counters.waits.setdefault(name, []).append(self._last_advance - killed_at)
                self._killed.clear()
            case "failed":
                self.counters.query_failures += 1
                self.progress.say(f"the query failed and is started again: {event['reason']}")
            case "done":
                self.finished = True

    def _remember_processes(self, driver: ChildProcess) -> None:
        """Record the driver's descendants, regularly and before each kill, to be able to end all of them."""
        self._looked = time.monotonic()
        for process in chaos.family(driver.pid):
            self._seen_processes.setdefault(process.pid, process)

    def _carry_out(self, kill: Kill) -> bool:
        """Kill a target; return false if it does not exist yet, to try again."""
        if kill.target is KillTarget.BROKER:
            return self._kill_broker()
        driver = self.driver
        pid = None if driver is None else driver.pid
        if driver is None or pid is None:
            return self.finished
        self._remember_processes(driver)
        name = "worker" if kill.target is KillTarget.WORKER else "driver"
        if kill.target is KillTarget.WORKER:
            workers = chaos.python_workers(pid)
            victims = [Random(self.options.seed + len(workers)).choice(workers)] if workers else []
        else:
            victims = chaos.driver_processes(pid, with_workers=kill.target is KillTarget.DRIVER_TREE)
        if not victims:
            return self.finished
        hit = chaos.kill_all(victims)
        self._count(name, f"kill -9 {kill.target.value}: processes {', '.join(map(str, hit))}")
        return True

    def _kill_broker(self) -> bool:
        if self.broker is None or self.broker.pid is None:
            return self.broker is None
        pid = self.broker.pid
        self.broker.kill()
        self._broker_due = time.monotonic() + BROKER_DOWN_SECONDS
        self._count("broker", f"kill -9 broker: process {pid}")
        return True

    def _restart_broker(self, now: float) -> None:
        if self.broker is None:
            return
        if self._broker_due is not None and now >= self._broker_due:
            self._broker_due = None
            self.broker.start()
            self.progress.say(f"broker is back (process {self.broker.pid}) after {time.monotonic() - now:.2f} s")
        elif self._broker_due is None and self.broker.pid is None:
            raise DemoError(f"the broker ended by itself; its log is {self.broker.log}")

    def _count(self, name: str, message: str) -> None:
        self.counters.kills[name] = self.counters.kills.get(name, 0) + 1
        self._last_advance = time.monotonic()
        self._killed.append((name, self._last_advance))
        self.progress.say(message)

    @contextlib.contextmanager
    def _transactions_watched(self) -> Iterator[None]:
        """Count the sink's transactions by state, in a thread, because the broker may be down."""
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch_transactions, args=(stop,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join(5)

    def _watch_transactions(self, stop: threading.Event) -> None:
        from fencepost import Admin
        from fencepost.errors import KafkaError

        committed: set[tuple[str, int]] = set()
        aborted: set[tuple[str, int]] = set()
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            while not stop.wait(TRANSACTION_POLL_SECONDS):
                try:
                    ids = [t.transactional_id for t in admin.list_transactions()]
                    described = [t for t in admin.describe_transactions(self._own(ids)) if t.start_time_ms >= 0]
                except KafkaError:
                    continue  # the broker is down; the next poll counts again
                committed |= {(t.transactional_id, t.producer_epoch) for t in described if t.state == "CompleteCommit"}
                aborted |= {(t.transactional_id, t.producer_epoch) for t in described if t.state == "CompleteAbort"}
                running = [t.timeout_ms for t in described if t.state == "Ongoing"]
                prepared = sum(timeout == NO_TIMEOUT_MS for timeout in running)
                self.counters.transactions = {
                    "open": len(running) - prepared,
                    "prepared": prepared,
                    "committed": len(committed),
                    "aborted": len(aborted),
                }

    def _own(self, transactional_ids: list[str]) -> list[str]:
        from fencepost.spark.sink.names import parse

        return [
            name for name in transactional_ids if (parsed := parse(name)) is not None and parsed.sink == self.sink_id
        ]

    # Judging ---------------------------------------------------------------------------------------------------------

    def judge(self, expected: flights.Expected) -> DemoVerdict:
        """Resolve the transactions of losing attempts, then read the output with librdkafka."""
        from fencepost import Admin
        from fencepost.spark.sink.runner import resolve_sink

        if self.options.delivery == "exactly-once":
            resolved = resolve_sink(self.bootstrap_servers, self.sink_id)
            self.progress.say(
                f"losing attempts resolved: {len(resolved.committed)} committed, {len(resolved.aborted)} aborted"
            )
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            open_ids = [
                t.transactional_id for t in admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
            ]
        return judge(read_committed(self.bootstrap_servers, self.sink), expected, self._own(open_ids))

    def close(self) -> None:
        """End every process of this run."""
        if self.driver is not None and self.driver.is_running:  # later its pid may belong to another process
            self._remember_processes(self.driver)
        chaos.kill_all(p for p in self._seen_processes.values() if p.is_running())
        if self.broker is not None:
            self.broker.stop()
        elif not self.options.keep:
            self._delete_topics()

    def _delete_topics(self) -> None:
        """Delete the topics that this run created. If the cluster is unreachable, print that they remain."""
        from fencepost import Admin
        from fencepost.errors import KafkaError

        if not self._created:
            return
        try:
            with Admin(bootstrap_servers=self.bootstrap_servers, default_api_timeout_ms=FIRST_CONTACT_MS) as admin:
                for topic in self._created:
                    admin.delete_topic(topic, missing_ok=True)
        except KafkaError as error:
            self.progress.say(f"topics {', '.join(self._created)} are left on {self.bootstrap_servers}: {error}")


def run_demo(options: Options, console: Console) -> DemoVerdict:
    """Run the demo and return the verdict.

    Raises:
        DemoError: The run could not be completed.
        StartupError: The broker did not start.
        KeyboardInterrupt: The user stopped it.
    """
    work = Path(tempfile.mkdtemp(prefix="fencepost-demo-"))
    demo = Demo(options, work, console)
    completed = False
    try:
        expected = demo.prepare()
        kills = chaos.plan(Random(options.seed), options.kills, with_broker=demo.broker is not None)
        with demo.progress:
            demo.work_through(kills)
        verdict = demo.judge(expected)
        completed = True
        return verdict
    finally:
        demo.close()
        if completed and not options.keep:
            shutil.rmtree(work, ignore_errors=True)
        else:
            console.print(f"data, checkpoint and logs are in {work}", soft_wrap=True, highlight=False)
