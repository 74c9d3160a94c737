"""A Spark query and three Apache Kafkas that go one by one: `python -m tests.support.torture.several_machines`.

Every process that stands for a machine has a loopback address of its own: a master, three workers and a driver of a
standalone Spark cluster, and three Kafka nodes with three replicas of everything. A query copies one topic to another,
exactly once, while the input is fed. Meanwhile drivers, executors, workers with all that runs on them, and Kafka nodes
are killed with -9; nodes are stopped too, two at a time are missing, and executors and nodes are held until others have
taken over, and go on. Then everything is started again, the query copies what is left, and the output must be the
input, each record once, with nothing open. `--local` leaves the Spark cluster out: driver and Python workers only. With
`--cut` nodes are cut off the network as well, one and two at a time (as root, with iproute2).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import fencepost
from fencepost_lab.demo.chaos import family, kill_all, python_workers
from fencepost_lab.torture.child_process import ChildProcess
from tests.spark.copying import HERE, environment
from tests.spark.standalone import SMALL, Standalone
from tests.support.apache_kafka_cluster import ApacheKafkaCluster, ClusterNode
from tests.support.separate_hosts import SeparateHosts
from tests.support.torture.feeders import Feeder
from tests.support.torture.judging import committed_values, differences, hanging, tell
from tests.support.torture.repeating import Repeating

KAFKA_HOSTS = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
WORKER_HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
DRIVER_HOST = "127.0.0.5"
PARTITIONS = {"in": 6, "out": 3}
SINK = "machines"
BEGINNING_MOST_S = 600.0
ENDING_MOST_S = 600.0
BATCH_MOST_S = 60.0
# So that an executor that is held is taken for lost, and goes on as one that others have replaced.
SOON_LOST = {
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}


@dataclass
class Findings:
    """Counts and anomalies of a run."""

    happened: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)
    records: int = 0


class Query:
    """The query's driver, started again whenever it has ended. `arguments` are copy_topic.py's."""

    def __init__(self, folder: Path, arguments: dict[str, str], host: str, found: Findings) -> None:
        self._folder, self._arguments, self._found = folder, arguments, found
        self._environment = {**environment(), "SPARK_LOCAL_IP": host}
        self._driver: ChildProcess | None = None
        self._runs = 0

    @property
    def batches(self) -> int:
        """Number of complete batches, by the checkpoint."""
        commits = Path(self._arguments["checkpoint"], "commits")
        return sum(1 for path in commits.glob("[0-9]*")) if commits.exists() else 0

    def begin(self) -> None:
        """Start, and wait for the first batch: the storm is to meet work. Raises TimeoutError."""
        self._start(for_ever="yes")
        deadline = time.monotonic() + BEGINNING_MOST_S
        while not self.batches:
            if time.monotonic() > deadline or self._driver is None or not self._driver.is_running:
                raise TimeoutError(f"without any faults the query does nothing: {self._output().read_text()[-3000:]}")
            time.sleep(0.2)

    def keep_running(self) -> None:
        """Start the driver if there is none. One that has ended by itself is counted under its reason."""
        if self._driver is not None and self._driver.is_running:
            return
        if self._driver is not None:
            self._found.happened[f"query ended by itself: {self._reason()}"] += 1
        self._start(for_ever="yes")

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and the Python processes on its host."""
        if self._driver is not None:
            below = family(self._driver.pid)
            self._driver.kill()
            kill_all(below)
            self._driver = None

    def python_workers(self) -> list[psutil.Process]:
        """Those that the driver's JVM has forked for tasks."""
        return [] if self._driver is None else python_workers(self._driver.pid)

    def run_to_the_end(self) -> None:
        """Copy what is left. Raises TimeoutError; a run that fails is counted, and repeated twice."""
        for _ in range(3):
            driver = self._start()
            try:
                if driver.wait(ENDING_MOST_S) == 0:
                    return
            except subprocess.TimeoutExpired:
                self.kill()
                raise TimeoutError(f"the last run has no end: {self._output().read_text()[-3000:]}") from None
            self._found.happened[f"last run failed: {self._reason()}"] += 1
        self._found.anomalies.append(f"the last run fails: {self._output().read_text()[-3000:]}")

    def _start(self, **more: str) -> ChildProcess:
        self._runs += 1
        command = [sys.executable, str(HERE / "copy_topic.py"), json.dumps({**self._arguments, **more})]
        self._driver = ChildProcess(command, self._output(), inherited=self._environment)
        self._driver.launch()
        return self._driver

    def _output(self) -> Path:
        return self._folder / f"driver-{self._runs}.log"

    def _reason(self) -> str:
        """The first error of ours that its output names, or the first of all, or the end of it."""
        said = self._output().read_text(errors="replace")
        named = re.search(r"fencepost\.[\w.]*errors\.(\w+)", said) or re.search(r"(\w+(?:Error|Exception)): .*", said)
        return named.group(0)[:200] if named else said.strip()[-300:]


class Spark:
    """Faults of the query by name. Each strikes after something was copied since the last one."""

    def __init__(self, query: Query, cluster: Standalone | None, chance: random.Random, found: Findings) -> None:
        self._query, self._cluster, self._chance, self._found = query, cluster, chance, found
        self._faults: dict[str, Callable[[], bool]] = {"driver killed": self._kill_driver}
        if cluster is None:
            self._faults["Python worker killed"] = self._kill_python_worker
        else:
            self._faults |= {
                "executor killed": self._kill_executor,
                "executor held": self._hold_executor,
                "worker killed": lambda: self._kill_worker(with_its_host=False),
                "worker killed with its host": lambda: self._kill_worker(with_its_host=True),
            }

    def storm(self, stopping: threading.Event) -> None:
        order = list(self._faults)
        while not stopping.is_set():
            self._chance.shuffle(order)
            for name in order:
                self._wait_for_a_batch(stopping)
                if stopping.wait(self._chance.uniform(0, 4)):
                    return
                self._found.happened[name if self._faults[name]() else f"{name}: there was none"] += 1
                self._query.keep_running()

    def _wait_for_a_batch(self, stopping: threading.Event) -> None:
        before, deadline = self._query.batches, time.monotonic() + BATCH_MOST_S
        while self._query.batches == before and not stopping.wait(0.2):
            self._query.keep_running()
            if time.monotonic() > deadline:
                self._found.happened[f"no batch in {BATCH_MOST_S:.0f} s"] += 1
                return

    def _kill_driver(self) -> bool:
        self._query.kill()
        return True

    def _kill_python_worker(self) -> bool:
        return bool(kill_all(self._query.python_workers()[:1]))

    def _kill_executor(self) -> bool:
        executors = self._executors()
        if executors:
            self._chance.choice(executors).kill()
        return bool(executors)

    def _hold_executor(self) -> bool:
        """The executor and its Python workers, for longer than Spark waits for it, or for less."""
        executors = self._executors()
        if not executors:
            return False
        executor = self._chance.choice(executors)
        held = family(executor.pid)
        for order in (signal.SIGSTOP, signal.SIGCONT):
            for process in held:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(order)
            if order == signal.SIGSTOP:
                time.sleep(self._chance.uniform(5, 30))
        return True

    def _kill_worker(self, *, with_its_host: bool) -> bool:
        assert self._cluster is not None
        host = self._chance.choice(WORKER_HOSTS)
        self._cluster.kill_worker(host, with_its_host=with_its_host)
        time.sleep(self._chance.uniform(1, 8))
        self._cluster.start_worker(host)
        return True

    def _executors(self) -> list[psutil.Process]:
        return (
            []
            if self._cluster is None
            else [process for host in WORKER_HOSTS for process in self._cluster.executors(host)]
        )


class Kafka:
    """Faults of the nodes, one node after the other."""

    def __init__(
        self, cluster: ApacheKafkaCluster, chance: random.Random, found: Findings, apart: SeparateHosts | None
    ) -> None:
        self._cluster, self._chance, self._found, self._apart = cluster, chance, found, apart
        self._turn = 0

    def storm(self, until: float, stopping: threading.Event) -> None:
        faults: dict[str, Callable[[ClusterNode], None]] = {
            "node killed": self._kill,
            "node stopped": self._stop,
            "node held": self._hold,
            "two nodes killed": self._kill_two,
        }
        if self._apart is not None:
            faults |= {"node cut off": self._cut, "two nodes cut off": self._cut_two}
        order = [*faults, "node killed"]
        while True:
            self._chance.shuffle(order)
            for name in order:
                if stopping.wait(min(self._chance.uniform(3, 15), max(until - time.monotonic(), 0))):
                    return
                if time.monotonic() >= until:
                    return
                self._turn += 1
                self._found.happened[name] += 1
                faults[name](self._nodes()[0])
                self._cluster.wait_until_whole()

    def _nodes(self) -> Sequence[ClusterNode]:
        nodes, turn = self._cluster.nodes, self._turn % len(self._cluster.nodes)
        return [*nodes[turn:], *nodes[:turn]]

    def _kill(self, node: ClusterNode) -> None:
        node.kill()
        time.sleep(self._chance.uniform(0, 8))
        node.start()

    def _stop(self, node: ClusterNode) -> None:
        node.stop(keep_data=True)
        time.sleep(self._chance.uniform(0, 8))
        node.start()

    def _hold(self, node: ClusterNode) -> None:
        """Longer than its session lasts: others lead what it led, and it goes on as if it still did."""
        held = psutil.Process(node.pid)
        held.suspend()
        time.sleep(self._chance.uniform(2, 15))
        held.resume()

    def _cut(self, *nodes: ClusterNode) -> None:
        """For longer than its session lasts, or not: what it leads, others lead soon, and it does not know."""
        assert self._apart is not None
        for node in nodes:
            self._apart.cut(node.node_id)
        time.sleep(self._chance.uniform(2, 20))
        for node in nodes:
            self._apart.mend(node.node_id)

    def _cut_two(self, node: ClusterNode) -> None:
        """From each other, too: whoever is left has too few in sync, and there is no majority anywhere."""
        self._cut(node, self._nodes()[1])

    def _kill_two(self, node: ClusterNode) -> None:
        """Fewer than min.insync.replicas are left, and no majority of controllers."""
        both = [node, self._nodes()[1]]
        for victim in both:
            victim.kill()
        time.sleep(self._chance.uniform(0, 8))
        for victim in both:
            victim.launch()
        for victim in both:
            victim.wait()


def check(servers: str, feeder: Feeder, found: Findings) -> None:
    """The input is what was acknowledged, the output is the input, each once, and nothing is open."""
    with fencepost.Admin(servers) as admin, fencepost.Consumer(servers) as consumer:
        read = {topic: committed_values(admin, consumer, topic, count) for topic, count in PARTITIONS.items()}
        open_ones = hanging(admin)
    feeder.compare(read["in"])
    found.anomalies += [*feeder.anomalies, *open_ones]
    for what, values in differences(read["in"], read["out"]).items():
        found.anomalies.append(f"{values.total()} {what}: {sorted(values)[:5]}")
    found.records = len(read["out"])
    if not read["out"]:
        found.anomalies.append("nothing was copied")


def run(given: argparse.Namespace, folder: Path) -> Findings:
    found = Findings()
    chance = random.Random(given.seed)
    guarantee = "durable" if given.two_phase else "timed"
    settings = {"transaction.two.phase.commit.enable": given.two_phase, "unstable.api.versions.enable": given.two_phase}
    feature = ("--feature", f"transaction.version={given.transaction_version}")
    with contextlib.ExitStack() as stack:
        apart = stack.enter_context(SeparateHosts(len(KAFKA_HOSTS))) if given.cut else None
        cluster_of = ApacheKafkaCluster(settings, hosts=KAFKA_HOSTS, format_arguments=feature, apart=apart)
        kafka = stack.enter_context(cluster_of)
        servers = kafka.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            for topic, count in PARTITIONS.items():
                admin.create_topic(topic, count, 3)
        arguments = {"servers": servers, "source": "in", "target": "out", "sink": SINK, "guarantee": guarantee}
        arguments |= {"checkpoint": str(folder / "checkpoint"), "rows_per_batch": "1000"}
        cluster, host = None, "127.0.0.1"
        if not given.local:
            cluster, host = stack.enter_context(Standalone(folder, environment(), WORKER_HOSTS)), DRIVER_HOST
            at = {"spark.driver.host": host, "spark.driver.bindAddress": host}
            arguments |= {"master": cluster.url, "settings": json.dumps({**SMALL, **SOON_LOST, **at})}
        query = Query(folder, arguments, host, found)
        stack.callback(query.kill)
        feeder = Feeder(servers, "in", PARTITIONS["in"], found.happened)
        stopping = threading.Event()
        spark = Spark(query, cluster, random.Random(chance.random()), found)

        def strike() -> None:
            try:
                spark.storm(stopping)
            except BaseException as error:  # what it has found before counts, and the run ends
                found.anomalies.append(f"the storm ended early: {error!r}")
                stopping.set()
                raise

        feeding, striking = Repeating(feeder.feed_some, stopping), threading.Thread(target=strike, daemon=True)
        feeding.start()
        try:
            query.begin()
            striking.start()
            Kafka(kafka, chance, found, apart).storm(time.monotonic() + given.minutes * 60, stopping)
        finally:
            stopping.set()
        for thread in (feeding, striking):
            thread.join(2 * BATCH_MOST_S)
        if feeding.error is not None:
            found.anomalies.append(f"the feeder ended early: {feeding.error!r}")
        feeder.finish()
        query.kill()
        query.run_to_the_end()
        found.happened["batches"] = query.batches
        check(servers, feeder, found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--local", action="store_true", help="the query in a driver of its own, no Spark cluster")
    parser.add_argument("--cut", action="store_true", help="nodes are cut off the network, too")
    parser.add_argument("--transaction-version", type=int, choices=(0, 1, 2), default=2)
    parser.add_argument("--two-phase", action="store_true", help="transaction.two.phase.commit.enable on the nodes")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-machines-"))
    logging.basicConfig(level=logging.CRITICAL)
    found = run(given, folder)
    print(f"{found.records} records in the output")
    return tell(found.anomalies, found.happened, folder)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sys.exit(main())
