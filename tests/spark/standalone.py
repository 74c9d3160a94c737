"""A standalone Spark cluster on this machine: a master on 127.0.0.1, workers on 127.0.0.2 and 127.0.0.3.

Speculative copies need two hosts. Everything comes from PySpark's own jars; a context manager ends what it began.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

WORKERS = ("127.0.0.2", "127.0.0.3")
START_S = 120
# A copy of a task as soon as another one of the batch has ended.
SPECULATION = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "8",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}


class Standalone:
    """`url` is for SparkSession.builder.master. `environment` is what the executors' Python sees."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment, "PYSPARK_PYTHON": sys.executable}
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
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
        log = self._start("master", "org.apache.spark.deploy.master.Master", master)
        self._wait(log, "I have been elected leader", 1)
        for host in WORKERS:
            own = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            own += ["--work-dir", str(self._folder / host), self.url]
            self._start(host, "org.apache.spark.deploy.worker.Worker", own)
        self._wait(log, "Registering worker", len(WORKERS))

    def _start(self, name: str, main: str, arguments: list[str]) -> Path:
        log = self._folder / f"{name}.log"
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        host = arguments[arguments.index("--host") + 1]
        environment = {**self._environment, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        environment["SPARK_DAEMON_JAVA_OPTS"] = (
            "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        )
        with log.open("w") as output:
            # A process group of its own: its executors and their Python workers end with it.
            self._processes.append(
                subprocess.Popen(
                    [str(script), main, *arguments],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        return log

    def _wait(self, log: Path, words: str, times: int) -> None:
        until = time.monotonic() + START_S
        while log.read_text().count(words) < times:
            if time.monotonic() > until or self._processes[-1].poll() is not None:
                told = "\n".join(one.read_text()[-1500:] for one in self._folder.glob("*.log"))
                raise TimeoutError(f"the cluster did not start:\n{told}")
            time.sleep(0.2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_all()

    def _end_all(self) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes:
            process.wait()
