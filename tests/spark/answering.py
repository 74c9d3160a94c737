"""A program with a Spark session that answers questions: a line of JSON each way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.spark.copying import HERE, environment


class AnsweringProgram:
    """A program that prints `{"answer": "ready"}`, and then an answer for each question. It ends when its input does.

    Args:
        command: The program and its arguments, for the tests' Python.
        log: File for what the program writes to stderr.
        python: The Python of Spark's workers, PYSPARK_PYTHON; None: the tests'.
        own_group: Start it in a process group of its own, so that `kill` ends its JVM and workers as well.
        surroundings: Its environment; None: that of any driver.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        python: str | None = None,
        own_group: bool = False,
        surroundings: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._log, self._own_group = command, log, own_group
        self._environment = environment() if surroundings is None else dict(surroundings)
        if python is not None:
            self._environment["PYSPARK_PYTHON"] = python
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=self._own_group,
            )
        assert self.answer() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its input, which ends it

    def send(self, question: dict[str, Any]) -> None:
        """Ask, and do not wait for the answer."""
        assert self._process is not None and self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Wait for the next answer. Raises AssertionError if the program failed, which no connector's error causes."""
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"answer"'):
                return json.loads(line)["answer"]
            assert not line.startswith('{"failed"'), json.loads(line)["failed"] + self._log.read_text()[-3000:]
        raise AssertionError(self._log.read_text()[-4000:])

    def kill(self) -> None:
        """Send SIGKILL to the process group: Python, the JVM and all workers."""
        assert self._process is not None and self._own_group
        os.killpg(self._process.pid, signal.SIGKILL)
        with self._process:  # closes its pipes
            self._process.wait()
        self._process = None


class AnotherDriver:
    """A driver beside the one in the tests' process. It starts when it is first needed, and anew after a failed run.

    Args:
        python: The Python of Spark's workers, PYSPARK_PYTHON.
        log: File for what the driver writes to stderr.
        surroundings: Its environment; None: that of any driver.
    """

    def __init__(self, python: str, log: Path, surroundings: Mapping[str, str] | None = None) -> None:
        command = [str(HERE / "copy_topic.py"), "--serve"]
        self._driver = AnsweringProgram(command, log, python=python, own_group=True, surroundings=surroundings)
        self._is_running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_running:
            self._driver.__exit__(kind, raised, traceback)

    def start(self) -> None:
        """Start the driver if it does not run, and wait until it has its session."""
        if not self._is_running:
            try:
                self._driver.__enter__()
            except BaseException:
                self._driver.kill()
                raise
            self._is_running = True

    def copy(self, arguments: dict[str, str]) -> str:
        """Copy, and return the report of the run. Raises AssertionError if the run failed, which ends the driver."""
        self.start()
        try:
            self._driver.send(arguments)
            return str(self._driver.answer())
        except BaseException:
            self._is_running = False
            self._driver.kill()
            raise
