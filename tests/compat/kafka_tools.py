"""Kafka's own command line tools, one JVM for all of them (java_tools/Tools.java)."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.java_programs import compile_java, java_program

SOURCE = Path(__file__).with_name("java_tools") / "Tools.java"


class Ran(NamedTuple):
    """Exit status, and what the tool wrote to stdout and stderr."""

    status: int
    output: str


class KafkaTools:
    """Context manager; `run` is given a class without `org.apache.kafka.tools.` in front, or with its whole name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        compile_java([SOURCE], self._folder)
        self._process = subprocess.Popen(
            java_program("Tools", folder=self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.kill()
        self._process.wait()

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Ran:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = base64.b64encode(stdin.encode()).decode() or "-"
        name = tool if tool.startswith(("org.", "kafka.")) else f"org.apache.kafka.tools.{tool}"
        self._process.stdin.write("\t".join([given, name, *arguments]) + "\n")
        self._process.stdin.flush()
        status, _, written = self._process.stdout.readline().partition(" ")
        return Ran(int(status), base64.b64decode(written).decode())
