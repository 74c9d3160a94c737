"""Python imports this at start-up when its folder is on PYTHONPATH: every Python process of the query gets the killer.

FENCEPOST_TEST_KILL = {"step": "WriteDecision", "when": "before", "nth": 2, "folder": "...", "mode": "all"}
The nth time any process of the query carries out that step, driver, JVM and every other process of theirs are killed
with SIGKILL. mode "all": this one too. mode "zombie": it waits until the file `go` is in the folder, and goes on.
mode "executor": only the JVM of this task's executor is killed, and this task goes on. mode "slow": nothing is killed;
the task stands still until another attempt of it has come to that step, and both go on. mode "stand": nothing is
killed; the process says who it is in the file `standing`, and waits for `go`: whoever started all this is the killer.
A list of orders is possible. Where several queries share a driver, "sink" says whose steps an order is about.
A process that waits for `go` ends when the test's process, FENCEPOST_TEST_STARTER, has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


def children(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return [*found, *(descendant for child in found for descendant in children(child))]


def kill_family(folder: Path, mode: str) -> None:
    driver = int((folder / "driver.pid").read_text())
    family = [driver, *children(driver)]
    server = folder / "server.pid"  # of tests/support/forked_python.py: the driver's Python processes are its children
    if server.exists() and (number := server.read_text()):
        family += children(int(number))
    (folder / "killed").write_text(json.dumps(family))
    for pid in family:
        if pid == os.getpid():
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if mode == "all":
        os.kill(os.getpid(), signal.SIGKILL)
    wait_to_go_on(folder)


def wait_to_go_on(folder: Path) -> None:
    until = time.monotonic() + 1800
    starter = int(os.environ["FENCEPOST_TEST_STARTER"])
    while not (folder / "go").exists() and time.monotonic() < until:
        try:
            os.kill(starter, 0)
        except ProcessLookupError:  # the run of the tests was interrupted
            os._exit(1)
        time.sleep(0.05)
    (folder / "zombie.woke").write_text(str(os.getpid()))


def kill_executor(folder: Path) -> None:
    """Kill this process's ancestor that is an executor's JVM.

    Spark's daemon ends this process as soon as the JVM is gone, so the note about the kill is written before it.
    """
    pid = int(os.environ.get("FENCEPOST_TEST_FORKED_FOR", os.getppid()))
    while pid > 1 and b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    if pid <= 1:
        raise RuntimeError("this task's Python worker is not a descendant of an executor's JVM")
    (folder / "executor.killed").write_text(str(pid))
    os.kill(pid, signal.SIGKILL)


def stand_still(folder: Path) -> None:
    mine = note_attempt(folder)
    (folder / "slow.began").touch()
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if [path for path in folder.glob(f"{mine.rpartition('-')[0]}-*") if path.name != mine]:
            (folder / "slow.copied").touch()
            break
        time.sleep(0.02)
    (folder / "slow.went-on").touch()  # unless Spark has killed this attempt in the meantime


def note_attempt(folder: Path) -> str:
    """Leave a file that names the stage, the partition and the attempt of this process's task; return its name."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("an order with mode slow is about a step of a task")
    name = f"attempt-{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
    (folder / name).touch()
    return name


def stand(folder: Path) -> None:
    unfinished = folder / "standing.unfinished"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(folder / "standing")
    wait_to_go_on(folder)


def strike(order: dict[str, Any]) -> None:
    folder = Path(order["folder"])
    if order["mode"] == "executor":
        kill_executor(folder)
    elif order["mode"] == "slow":
        stand_still(folder)
    elif order["mode"] == "stand":
        stand(folder)
    else:
        kill_family(folder, order["mode"])


def come_to(order: dict[str, Any]) -> None:
    """Carry out the order if this is its turn."""
    if order["mode"] == "slow":
        note_attempt(Path(order["folder"]))
    if is_nth(order):
        strike(order)


def is_nth(order: dict[str, Any]) -> bool:
    """Counts over all processes, by files that only one can create."""
    folder, nth, name = Path(order["folder"]), order["nth"], order.get("name", "hit")
    number = 1
    while True:
        try:
            os.close(os.open(folder / f"{name}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            number += 1
            continue
        return bool(number == nth)


def arm(steps: ModuleType, order: dict[str, Any]) -> None:
    runner = steps.StepRunner
    folder = Path(order["folder"])
    plain = runner.perform

    async def perform(self: Any, step: Any) -> Any:
        meant = type(step).__name__ == order["step"] and order.get("sink", "") in repr(step)
        if meant and order["when"] == "before":
            come_to(order)
        observation = await plain(self, step)
        if meant and order["when"] == "after":
            come_to(order)
        if meant and (folder / "zombie.woke").exists() and (folder / "zombie.woke").read_text() == str(os.getpid()):
            (folder / "zombie.done").write_text(repr(observation))
        return observation

    runner.perform = perform


class ArmWhenImported(MetaPathFinder):
    """Importing the module here, in every Python process, would slow all of them down."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "fencepost.spark.sink.steps":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            plain = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                plain(module)
                orders = json.loads(os.environ["FENCEPOST_TEST_KILL"])
                for order in orders if isinstance(orders, list) else [orders]:
                    arm(module, order)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "FENCEPOST_TEST_KILL" in os.environ:
    sys.meta_path.insert(0, ArmWhenImported())
