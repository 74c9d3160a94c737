"""Programs of examples/, started as a user starts them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fencepost_lab.torture.child_process import ChildProcess
from tests.support.readme import ROOT

__all__ = ["ExampleProgram"]

MOST_S = 120.0


class ExampleProgram(ChildProcess):
    """A program of examples/ that runs from its creation on.

    Args:
        file: Name of the program in examples/.
        options: Its options.
        folder: Folder for its log. Each program has a log of its own.
    """

    def __init__(self, file: str, *options: str, folder: Path) -> None:
        log = folder / f"{file}-{len(list(folder.glob(f'{file}-*.log')))}.log"
        command = [sys.executable, f"examples/{file}", *options]
        super().__init__(command, log, environment={"PYTHONUNBUFFERED": "1"}, folder=ROOT)
        self.launch()

    def end_by(self, number: signal.Signals) -> tuple[int, str]:
        """Send the signal and wait. Return exit status and output."""
        self.send(number)
        return self.wait(MOST_S), self.output()

    def run_until(self, done: Callable[[], bool]) -> str:
        """Wait until it is done, and end it by SIGTERM, to which it must answer with status 0. Return its output."""
        try:
            self.wait_until(done, MOST_S, "the program has not done its work")
            status, output = self.end_by(signal.SIGTERM)
        finally:
            self.kill()
        assert status == 0, output
        return output
