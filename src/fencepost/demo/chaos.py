"""Who is killed when: a plan drawn from the seed, and the processes it names. Every kill is a SIGKILL.

The plan is pure: it speaks in fractions of the work, so that each kill finds the job running whatever the machine's
speed; a random delay behind the fraction puts it anywhere within a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

__all__ = ["Kill", "Target", "driver_processes", "plan", "python_workers"]

FIRST_FRACTION = 0.04
LAST_FRACTION = 0.88
DELAY_SECONDS_AT_MOST = 1.6


class Target(Enum):
    """What a kill hits."""

    DRIVER = "driver"  # the driver with its JVM; its Python workers live on as long as they can
    DRIVER_TREE = "driver and all its workers"
    WORKER = "worker"  # one Python worker: a task, the source's reader, or the sink's commit worker
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill `target` once `fraction` of the input is written, after another `delay_seconds`."""

    fraction: float
    delay_seconds: float
    target: Target


def plan(random: Random, kills_of_each: int, *, with_broker: bool) -> list[Kill]:
    """`kills_of_each` kills of drivers, workers and (if ours) the broker, in the order in which they are due."""
    targets: list[Target] = []
    for _ in range(kills_of_each):
        targets += [random.choice((Target.DRIVER, Target.DRIVER_TREE)), Target.WORKER]
        targets += [Target.BROKER] if with_broker else []
    random.shuffle(targets)
    fractions = sorted(random.uniform(FIRST_FRACTION, LAST_FRACTION) for _ in targets)
    return [
        Kill(fraction, random.uniform(0, DELAY_SECONDS_AT_MOST), target)
        for fraction, target in zip(fractions, targets, strict=True)
    ]


def driver_processes(driver: psutil.Process, *, with_workers: bool) -> list[psutil.Process]:
    """The driver and its JVM, and all that these started if `with_workers`."""
    children = driver.children(recursive=True)
    if with_workers:
        return [driver, *children]
    return [driver, *(child for child in children if _has(child, lambda line: "java" in line[0]))]


def python_workers(driver: psutil.Process) -> list[psutil.Process]:
    """The Python workers at work for this driver: the leaves below the JVM that run PySpark's modules."""
    return [
        child
        for child in driver.children(recursive=True)
        if _has(child, lambda line: any(part.startswith("pyspark.") for part in line)) and not child.children()
    ]


def _has(process: psutil.Process, test: Callable[[list[str]], bool]) -> bool:
    """Whether the process still lives and its command line passes the test."""
    import psutil

    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    return bool(line) and test(line)


def kill_all(processes: Iterable[psutil.Process]) -> list[int]:
    """Send SIGKILL to each; the pids that were still there."""
    import psutil

    hit = []
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        hit.append(process.pid)
    return hit
