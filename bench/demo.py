"""The demo: how long the work stands still after each kill, until the next micro-batch has finished."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from fencepost_lab.benchmark.contest import Row, others_share

__all__ = ["rows", "waits"]

TITLE = "from kill -9 to the next batch: "
MARK = "half of 25 to 40 s"


def waits(printed: str) -> dict[str, list[float]]:
    """Seconds by who was killed, out of what the demo has printed. Raises ValueError."""
    _, found, reported = printed.partition(TITLE)
    if not found:
        raise ValueError(f"the demo did not say how long it stood still: {printed[-2000:]}")
    parts = (part.split(maxsplit=1) for part in reported.splitlines()[0].split(";"))
    return {name: [float(each) for each in re.findall(r"[\d.]+", seconds)] for name, seconds in parts}


def rows(*, quick: bool) -> Iterator[Row]:
    """A row for each kind of kill. Raises RuntimeError when the demo fails."""
    command = [sys.executable, "-m", "fencepost", "demo", *(("--flights", "20000", "--kills", "1") if quick else ())]
    busy = others_share()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    busy = max(busy, others_share())
    if done.returncode:
        raise RuntimeError(f"the demo ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    for name, seconds in waits(done.stdout).items():
        yield Row(f"the demo from kill -9 of {name} to the next batch", "s", seconds, "", [], MARK, None, busy)
