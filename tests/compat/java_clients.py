"""kafka-clients of several releases in one JVM, driven line by line (java/Launcher.java, java/Scenario.java)."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka import SHORT_LIVED, jars_folder, java_command
from tests.support.java_programs import compile_java

SOURCES = Path(__file__).with_name("java")
OLDEST = "2.0.1"
PATIENCE_S = 150.0


class JavaClients:
    """Context manager. `start` scenarios, then `wait` for what their applications saw: {step: outcome} of each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps: dict[str, dict[str, str]] = {}
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        jars = jars_folder(SOURCES / "clients.pom.xml", "dependency:copy")
        compile_java(sorted(SOURCES.glob("*.java")), self._folder, str(jars / f"kafka-clients-{OLDEST}.jar"))
        self._process = subprocess.Popen(
            [
                java_command(),
                *SHORT_LIVED,
                "-Xmx256m",
                "-cp",
                str(self._folder),
                "Launcher",
                str(jars),
                str(self._folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if error is not None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def start(
        self, key: str, release: str, bootstrap_servers: str, topic: str, scenario: str, reported: str = ""
    ) -> None:
        """`key` names the run; the topic's name is also the group's, and the transactional id without `told`."""
        self._steps[key] = {}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{key} {release} {bootstrap_servers} {topic} {reported or topic} {scenario}\n")
        self._process.stdin.flush()

    def wait_for(self, key: str, step: str) -> None:
        """Until the scenario has told of a step. Raises TimeoutError."""
        self._wait(lambda: step in self._steps[key], key)

    def wait(self, key: str) -> dict[str, str]:
        """Wait until the scenario has ended, and return its outcomes. Raises TimeoutError."""
        self._wait(lambda: key in self._ended, key)
        return self._steps[key]

    def _wait(self, condition: object, key: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE_S):  # type: ignore[arg-type]
                raise TimeoutError(f"{key} has only told {self._steps[key]}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            key, _, text = line.rstrip("\n").partition(" ")
            with self._changed:
                if text == "end":
                    self._ended.add(key)
                elif key in self._steps:
                    step, _, outcome = text.partition("=")
                    self._steps[key][step] = outcome
                self._changed.notify_all()
