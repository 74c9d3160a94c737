"""Exclusion of imported modules from garbage collections, in the processes where PySpark collects."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
from fencepost.spark.worker_garbage import imports

sys.modules["__main__"].__spec__ = {spec}
frozen = []
for module in ("decimal", "decimal", "sqlite3"):
    __import__(module)
    imports.spare()
    frozen.append(gc.get_freeze_count())
    cycle = []
    cycle.append(cycle)
print(*frozen)
"""

TAKEN_BACK = """
import gc, sqlite3, sys
from importlib.machinery import ModuleSpec
from fencepost.spark.worker_garbage import imports

gc.disable()
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
imports.spare()
gc.collect()
cycle = []
cycle.append(cycle)
del cycle, sys.modules["sqlite3"]
imports.spare()
print(gc.collect())
"""


def frozen(spec: str) -> list[int]:
    """Count the spared objects after a first task, a task that imports nothing, and a task that imports a module."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(spec=spec)], capture_output=True, text=True, check=True)
    return [int(count) for count in done.stdout.split()]


def test_what_came_since_the_last_task_is_spared() -> None:
    first, nothing_new, more = frozen('ModuleSpec("pyspark.daemon", None)')
    assert 1_000 < first == nothing_new < more


def test_where_nothing_was_imported_a_tasks_garbage_is_collected() -> None:
    done = subprocess.run([sys.executable, "-c", TAKEN_BACK], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1


@pytest.mark.parametrize("spec", ["None", 'ModuleSpec("an_application", None)'])
def test_an_application_is_left_alone(spec: str) -> None:
    assert frozen(spec) == [0, 0, 0]
