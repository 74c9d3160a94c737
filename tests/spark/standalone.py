"""A standalone Spark cluster on this machine: a master on 127.0.0.1, workers on addresses of their own.

Speculative copies need two hosts, and a worker that is killed with all that runs on it is a host that is lost.
Everything comes from PySpark's own jars; a context manager ends what it began.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from fencepost_lab.torture.child_process import ChildProcess, free_port
from tests.spark.session import JVM_OPTIONS, jvm_options

WORKERS = ("127.0.0.2", "127.0.0.3")
START_S = 120
# Executors for a machine that runs much else.
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "8",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
}
# A copy of a task as soon as another one of the batch has ended.
SPECULATION = {
    **SMALL,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}
# Executors are given up a second after their last task, and asked for when tasks wait. One that has files of a shuffle
# is kept for longer.
DYNAMIC = {
    **SMALL,
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


class Standalone:
    """`url` is for SparkSession.builder.master. `environment` is what the executors' Python sees."""

    def __init__(self, folder: Path, environment: Mapping[str, str], workers: Sequence[str] = WORKERS) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment, "PYSPARK_PYTHON": sys.executable}
        self._workers = workers
        self._processes: dict[str, ChildProcess] = {}
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        started = False
        try:
            self._start_all()
            started = True
        finally:
            if not started:  # nobody else would end what has begun
                self._end_all()
        return self

    def _start_all(self) -> None:
        master = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        process = self._start("master", "org.apache.spark.deploy.master.Master", master)

        def says(words: str, times: int) -> None:
            process.wait_until(lambda: process.output().count(words) >= times, START_S, "the cluster did not start")

        says("I have been elected leader", 1)
        for host in self._workers:
            self.start_worker(host)
        says("Registering worker", len(self._workers))

    def start_worker(self, host: str) -> None:
        """One of `workers`, for the first time or again. It registers with the master by itself."""
        own = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        own += ["--work-dir", str(self._folder / host), self.url]
        self._start(host, "org.apache.spark.deploy.worker.Worker", own)

    def kill_worker(self, host: str, *, with_its_host: bool) -> None:
        """SIGKILL to the worker, and to all that it has started too when its host is lost with it."""
        worker = self._worker(host)
        family = worker.children(recursive=True) if with_its_host else []
        worker.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._processes[host].wait(START_S)

    def _worker(self, host: str) -> psutil.Process:
        pid = self._processes[host].pid
        if pid is None:
            raise RuntimeError(f"the worker on {host} has ended: {self._processes[host].tail()}")
        return psutil.Process(pid)

    def executors(self, host: str) -> list[psutil.Process]:
        """The JVMs of executors on that host."""
        return [process for process in self._worker(host).children(recursive=True) if _is_executor(process)]

    def _start(self, name: str, main: str, arguments: list[str]) -> ChildProcess:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        host = arguments[arguments.index("--host") + 1]
        environment = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        environment["SPARK_DAEMON_JAVA_OPTS"] = f"-Dspark.master.rest.enabled=false {jvm_options()}"
        process = ChildProcess(
            [str(script), main, *arguments], self._folder / f"{name}.log", inherited=self._environment | environment
        )
        process.launch()  # its executors and their Python workers are in its group, and end with it
        self._processes[name] = process
        return process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_all()

    def _end_all(self) -> None:
        for process in reversed(self._processes.values()):
            process.kill()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False
