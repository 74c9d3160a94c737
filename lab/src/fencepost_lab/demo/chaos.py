"""The plan of kills, drawn from the seed, and the processes to kill. Every kill is a SIGKILL.

The plan is a pure function. It gives the time of each kill as a fraction of the work, so that the job is still running
on machines of any speed. A random delay after the fraction places the kill anywhere within a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

__all__ = ["Kill", "KillTarget", "driver_processes", "family", "kill_all", "plan", "python_workers"]

FIRST_FRACTION = 0.04
LAST_FRACTION = 0.88
DELAY_SECONDS_AT_MOST = 1.6


class KillTarget(Enum):
    """Process to kill."""

    DRIVER = "driver"  # the driver with its JVM; its Python workers continue as long as they can
    DRIVER_TREE = "driver and all its workers"
    WORKER = "worker"  # one Python worker: a task, the source's reader, or the sink's commit worker
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill of `target`, `delay_seconds` after `fraction` of the input has been written."""

    fraction: float
    delay_seconds: float
    target: KillTarget


def plan(random: Random, kills_of_each: int, *, with_broker: bool) -> list[Kill]:
    """Return kills in order of time: `kills_of_each` of drivers, workers and, with `with_broker`, the broker."""
    targets: list[KillTarget] = []
    for _ in range(kills_of_each):
        targets += [random.choice((KillTarget.DRIVER, KillTarget.DRIVER_TREE)), KillTarget.WORKER]
        targets += [KillTarget.BROKER] if with_broker else []
    random.shuffle(targets)
    fractions = sorted(random.uniform(FIRST_FRACTION, LAST_FRACTION) for _ in targets)
    return [
        Kill(fraction, random.uniform(0, DELAY_SECONDS_AT_MOST), target)
        for fraction, target in zip(fractions, targets, strict=True)
    ]


def family(pid: int | None) -> list[psutil.Process]:
    """Return a process and its descendants; none if it has ended or never began (None)."""
    import psutil

    if pid is None:
        return []
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def driver_processes(pid: int, *, with_workers: bool) -> list[psutil.Process]:
    """Return the driver and its JVM; with `with_workers` also all their descendants."""
    found = family(pid)
    if with_workers:
        return found
    return found[:1] + [child for child in found[1:] if _has(child, lambda line: "java" in line[0])]


def python_workers(pid: int | None) -> list[psutil.Process]:
    """Return the driver's Python workers: the leaf processes below the JVM that run PySpark's modules."""
    return [child for child in family(pid)[1:] if _has(child, _is_pyspark) and not family(child.pid)[1:]]


def _is_pyspark(line: list[str]) -> bool:
    return any(part.startswith("pyspark.") for part in line)


def _has(process: psutil.Process, test: Callable[[list[str]], bool]) -> bool:
    """Return true if the process is alive and its command line passes the test."""
    import psutil

    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    return bool(line) and test(line)


def kill_all(processes: Iterable[psutil.Process]) -> list[int]:
    """Send SIGKILL to each process; return the pids that existed."""
    import psutil

    hit = []
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        hit.append(process.pid)
    return hit
