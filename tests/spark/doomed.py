"""Kills at chosen steps, all in a driver: starting one, with its JVM and Python processes, takes most of a run's time.

Each query runs until a process of its own stands still at its step. When all do, the driver, its JVM and all their
processes are killed at once (except zombies, which stand on): no query has done anything after its step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest

from tests.spark.copying import HERE, Copy, with_killer
from tests.support.forked_python import forked_python


@dataclass(frozen=True, slots=True)
class Kill:
    """Before or after the nth time that the query carries out a step; a zombie is the process that stood there."""

    step: str
    when: str
    nth: int
    zombie: bool = False

    def __str__(self) -> str:
        return f"{self.step}-{self.when}-{self.nth}" + ("-zombie" if self.zombie else "")


Key: TypeAlias = tuple[str, Kill]
"""Which arm's copy is killed, and where."""


class Killed:
    """Copies that were killed, each by a Kill of its own. `make` gives a new copy of an arm; `folder` is for the
    drivers.
    """

    def __init__(self, keys: Iterable[Key], make: Callable[[str], Copy], folder: Path) -> None:
        self._keys, self._make, self._folder = tuple(keys), make, folder
        self._killed: dict[Key, Copy | BaseException] | None = None
        self._zombies: list[psutil.Process] = []
        self._drivers = 0

    def take(self, arm: str, kill: Kill) -> Copy:
        """Killed as asked. The first time all are made; a test that runs again gets a new one. Raises what its own copy
        has failed with, and nobody else's."""
        if self._killed is None:
            self._killed = self._kill(self._keys)
        if (arm, kill) not in self._killed:
            self._killed |= self._kill([(arm, kill)])
        found = self._killed.pop((arm, kill))
        if isinstance(found, BaseException):
            raise found.with_traceback(None)  # kept for several tests: it would grow with each
        return found

    def close(self) -> None:
        """End the zombies that were not told to go on."""
        for zombie in self._zombies:
            if _lives(zombie):
                zombie.kill()

    def _kill(self, keys: Sequence[Key]) -> dict[Key, Copy | BaseException]:
        found: dict[Key, Copy | BaseException] = {}
        for key in keys:
            try:
                found[key] = copy = self._make(key[0])
                copy.fill()
            except (Exception, pytest.skip.Exception) as reason:  # noqa: BLE001 - as there is no broker for this arm
                found[key] = reason
        copies = {key: candidate for key, candidate in found.items() if isinstance(candidate, Copy)}
        if not copies:
            return found
        self._drivers += 1
        folder = self._folder / f"driver-{self._drivers}"
        folder.mkdir()
        try:
            self._zombies += kill_where_they_stand([(kill, copy) for (_, kill), copy in copies.items()], folder)
        except Exception as reason:  # noqa: BLE001 - each test tells it
            return {**found, **dict.fromkeys(copies, reason)}
        failures = {key: copy.folder / "failed" for key, copy in copies.items()}
        return found | {
            key: AssertionError(reported.read_text()) for key, reported in failures.items() if reported.exists()
        }


def kill_where_they_stand(copies: Sequence[tuple[Kill, Copy]], folder: Path) -> list[psutil.Process]:
    """Run all copies in a driver and kill it; the zombies. What did not come to its step has a file `failed`."""
    orders = [
        {"step": kill.step, "when": kill.when, "nth": kill.nth, "mode": "stand", "sink": copy.name}
        | {"folder": str(copy.folder)}
        for kill, copy in copies
    ]
    arguments = [copy.arguments(folder=str(copy.folder)) for _, copy in copies]
    command = [sys.executable, str(HERE / "copy_topic.py"), "--doomed", json.dumps(arguments)]
    with forked_python(with_killer(orders)) as python:
        surroundings = with_killer(orders) | {"PYSPARK_PYTHON": python.path}
        with (folder / "output").open("w") as reported:
            driver = subprocess.Popen(command, env=surroundings, cwd=folder, stdout=reported, stderr=reported)
        return _kill_standing(copies, driver, python.server, folder)


def _kill_standing(
    copies: Sequence[tuple[Kill, Copy]], driver: subprocess.Popen[bytes], server: int | None, folder: Path
) -> list[psutil.Process]:
    """Kill the daemons of PySpark, then parents before their children: none has time to do anything about it.

    A daemon that sees the end of its JVM ends its process group, and so the zombies. They are not stopped instead: the
    system ends a group with a stopped process when its parent dies.
    """
    output = folder / "output"
    family: list[psutil.Process] = []
    try:
        until = time.monotonic() + 1200
        while not (folder / "all-stand").exists() and driver.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert (folder / "all-stand").exists(), output.read_text()[-6000:]
        stand = [(kill, copy.folder / "standing") for kill, copy in copies if not (copy.folder / "failed").exists()]
        standing = {int(path.read_text()): kill for kill, path in stand}
        assert len(standing) == len(stand), "two queries stand still in a process"
        family = [] if server is None else psutil.Process(server).children(recursive=True)
        family += psutil.Process(driver.pid).children(recursive=True)
        assert set(standing) <= {process.pid for process in family}
    except BaseException:
        driver.kill()
        if not family:
            _end_those_that_stand(copies)
        raise
    zombies = [process for process in family if process.pid in standing and standing[process.pid].zombie]
    groups = {os.getpgid(zombie.pid) for zombie in zombies}
    daemons = [process for process in family if process.pid in groups and process not in zombies]
    for process in (*daemons, psutil.Process(driver.pid), *family):
        if process not in zombies and _lives(process):
            process.kill()
    assert driver.wait(60) == -9, output.read_text()[-6000:]
    until = time.monotonic() + 60
    while any(_lives(process) for process in family if process not in zombies) and time.monotonic() < until:
        time.sleep(0.05)
    alive = {process.pid for process in family if _lives(process)}
    reported = {process.pid: (process.name(), process.status()) for process in family if process.pid in alive}
    assert alive == {zombie.pid for zombie in zombies}, f"alive: {reported}; to stay: {zombies}"
    return zombies


def _end_those_that_stand(copies: Sequence[tuple[Kill, Copy]]) -> None:
    for _, copy in copies:
        path = copy.folder / "standing"
        if path.exists() and psutil.pid_exists(int(path.read_text())):
            psutil.Process(int(path.read_text())).kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
