"""A program with a Spark session that answers questions: a line of JSON each way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.spark.copying import environment


class AnsweringProgram:
    """A program that prints `{"answer": "ready"}`, and then an answer for each question. It ends when its input does.

    Args:
        command: The program and its arguments, for the tests' Python.
        log: File for what the program writes to stderr.
        python: The Python of Spark's workers, PYSPARK_PYTHON; None: the tests'.
        own_group: Start it in a process group of its own, so that `kill` ends its JVM and workers as well.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, python: str | None = None, own_group: bool = False
    ) -> None:
        self._command, self._log, self._python, self._own_group = command, log, python, own_group
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                env=environment() | ({} if self._python is None else {"PYSPARK_PYTHON": self._python}),
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
            assert not line.startswith('{"failed"'), json.loads(line)["failed"]
        raise AssertionError(self._log.read_text()[-4000:])

    def kill(self) -> None:
        """Send SIGKILL to the process group: Python, the JVM and all workers."""
        assert self._process is not None and self._own_group
        os.killpg(self._process.pid, signal.SIGKILL)
        with self._process:  # closes its pipes
            self._process.wait()
        self._process = None
