"""Kafka's own command line tools, one JVM for all of them and for all tests of a process (Tools.java)."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apache_kafka import Unavailable
from tests.support.java_programs import compile_java, java_program

__all__ = ["Ran", "run_kafka_tool"]

SOURCE = Path(__file__).with_name("Tools.java")


class Ran(NamedTuple):
    """Exit status, and what the tool wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Complaints come first, as they mostly do."""
        return self.stderr + self.stdout


def run_kafka_tool(tool: str, *arguments: str, stdin: str = "") -> Ran:
    """Run a class to its end: of `org.apache.kafka.tools`, or with its whole name. Skips the test without `javac`.
    Raises RuntimeError when the JVM ends under it; the next one has another.

    For example `run_kafka_tool("DumpLogSegments", "--files", path, "--print-data-log")`.
    """
    try:
        if _tools().have_ended:
            _tools.cache_clear()
        tools = _tools()
    except Unavailable as reason:
        pytest.skip(str(reason))
    return tools.run(tool, *arguments, stdin=stdin)


class _Tools:
    """The JVM. It also ends when its stdin does: with the tests."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fencepost-tools-")
        compile_java([SOURCE], Path(self._folder.name))
        self._process = subprocess.Popen(
            java_program("Tools", folder=Path(self._folder.name)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @property
    def have_ended(self) -> bool:
        return self._process.poll() is not None

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Ran:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = base64.b64encode(stdin.encode()).decode() or "-"
        name = tool if tool.startswith(("org.", "kafka.")) else f"org.apache.kafka.tools.{tool}"
        self._process.stdin.write("\t".join([given, name, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the JVM of Kafka's tools has ended with {self._process.wait()} under {name}")
        status, *written = answer.rstrip("\n").split("\t")
        stdout, stderr = (base64.b64decode(text).decode() for text in written)
        return Ran(int(status), stdout, stderr)

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # it may have ended
                    stream.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


@functools.cache
def _tools() -> _Tools:
    tools = _Tools()
    atexit.register(tools.end)
    return tools
