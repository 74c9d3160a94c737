"""World that `spark_checkpoints` damages: a broker, two topics, a checkpoint, and the query as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

import fencepost
from fencepost_lab.demo.chaos import python_workers
from fencepost_lab.torture.broker_process import BrokerProcess
from fencepost_lab.torture.child_process import ChildProcess
from tests.spark.copying import environment, with_killer
from tests.support.apache_kafka import ApacheKafka
from tests.support.torture.judging import committed_values, differences, open_after

PARTITIONS = 2
RUN_MOST_S = 300
OPEN_MOST_S = 5.0
SINK = "tortured"
IS_ONE_OF_OURS = b"record "


def broker_of(guarantee: str, broker: str) -> BrokerProcess | ApacheKafka:
    """Return a broker with which the sink has this guarantee, "durable" or "timed"."""
    two_phase = guarantee == "durable"
    settings: dict[str, str | int | bool] = {
        "transaction.two.phase.commit.enable": two_phase,
        "transaction.state.log.num.partitions": 3,
    }
    if broker == "kafka":
        return ApacheKafka({**settings, "unstable.api.versions.enable": two_phase})
    return BrokerProcess(settings)


class World:
    """`anomalies` is what must not be; `happened` is what was met."""

    def __init__(self, guarantee: str, broker: str) -> None:
        self.guarantee = guarantee
        self.keeps_prepared = guarantee == "durable" and broker != "kafka"
        self.folder = Path(tempfile.mkdtemp(prefix="fencepost-checkpoints-"))
        self.checkpoint = self.folder / "checkpoint"
        self.copies: list[Path] = []
        self.broker = broker_of(guarantee, broker)
        self.sent = 0
        self.happened: Counter[str] = Counter()
        self.anomalies: list[str] = []
        self._outputs = 0

    def begin(self) -> None:
        self.broker.start()
        with fencepost.Admin(self.servers) as admin:
            for topic in ("in", "out"):
                admin.create_topic(topic, PARTITIONS)

    def end(self) -> None:
        self.broker.stop()

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def produce(self, count: int) -> None:
        with fencepost.Producer(self.servers) as producer:
            for _ in range(count):
                producer.send("in", IS_ONE_OF_OURS + b"%d" % self.sent, partition=self.sent % PARTITIONS)
                self.sent += 1

    # --- runs ---

    def start(self, kill: list[dict[str, Any]] | None = None, **arguments: str) -> Run:
        """Begin a run of the query; `kill` as tests/spark/killer takes it, without its folder."""
        self._outputs += 1
        folder = self.folder / f"run-{self._outputs}"
        folder.mkdir()
        given = {
            "servers": self.servers,
            "source": "in",
            "target": "out",
            "sink": SINK,
            "checkpoint": str(self.checkpoint),
            "folder": str(folder),
            **arguments,
        }
        command = [sys.executable, str(Path(__file__).with_name("spark_query.py")), json.dumps(given)]
        process = ChildProcess(command, folder / "output", inherited=killer_environment(folder, kill))
        process.launch()
        return Run(self, process, folder)

    def command(self, *arguments: str) -> tuple[int, str]:
        """`fencepost ARGUMENTS`: its return code and all that it says."""
        given = ["fencepost", *arguments, "--bootstrap-servers", self.servers]
        done = subprocess.run([sys.executable, "-m", *given], capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr

    # --- what has to be true ---

    def nobody_waits(self, after: str) -> bool:
        """Nothing is open, and readers of committed records get to the end of the output."""
        with fencepost.Admin(self.servers) as admin:
            found = open_after(admin, {"out": PARTITIONS}, OPEN_MOST_S)
        if found:
            self.anomalies.append(f"open after {after}: {found}")
        else:
            self.happened["nothing open"] += 1
        return not found

    def compare(self, after: str) -> bool:
        """Compare the output with the input, and note each difference as an anomaly. Return true if there is none."""
        wrong = differences((IS_ONE_OF_OURS + b"%d" % number for number in range(self.sent)), self.committed())
        for what, values in wrong.items():
            self.anomalies.append(f"after {after}: {values.total()} {what}: {sorted(values)[:3]}")
        return not wrong

    def committed(self) -> list[bytes]:
        with fencepost.Admin(self.servers) as admin, fencepost.Consumer(self.servers) as consumer:
            return committed_values(admin, consumer, "out", PARTITIONS)


class Run:
    """One run of the query."""

    def __init__(self, world: World, process: ChildProcess, folder: Path) -> None:
        self._world, self.process, self.folder = world, process, folder

    def wait(self) -> tuple[int, str]:
        """Its return code and its output."""
        try:
            code = self.process.wait(RUN_MOST_S)
        except subprocess.TimeoutExpired:
            code = -9
            self._world.anomalies.append(f"a run did not end within {RUN_MOST_S} s: {self.output()[-800:]}")
        self.kill()  # what is left of it: the processes of Spark's workers end a little later
        return code, self.output()

    def wait_or_zombie(self) -> int:
        """Its return code; workers that stand still go on standing."""
        return self.process.wait(RUN_MOST_S)

    def output(self) -> str:
        return self.process.output()

    def kill(self) -> None:
        self.process.kill()

    def python_workers(self) -> list[psutil.Process]:
        """The processes in which tasks run, and sources and sinks live."""
        return python_workers(self.process.pid)


def killer_environment(folder: Path, kill: list[dict[str, Any]] | None) -> dict[str, str]:
    """Return the environment that makes each Python process of the query carry out these kill orders."""
    return with_killer([{**order, "folder": str(folder)} for order in kill]) if kill else environment()
