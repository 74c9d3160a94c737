"""The demo's driver as a child process that reports events."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fencepost_lab.demo.query import Job

__all__ = ["DriverProcess"]


class DriverProcess:
    """The PySpark driver. Its events arrive in `events`, in order."""

    def __init__(self, job: Job, log: Path, environment: dict[str, str]) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fencepost_lab.demo.query", job.to_json()],
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={
                    **os.environ,
                    **environment,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                },
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Collect events. Other lines on stdout are ignored: Spark's launcher prints there."""
        if self.process.stdout is None:
            return
        for line in self.process.stdout:
            if line.startswith('{"event"'):
                self.events.put(json.loads(line))

    def drain(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        found = []
        while not self.events.empty():
            found.append(self.events.get_nowait())
        return found
