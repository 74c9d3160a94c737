"""Make Spark start its workers with the running Python, unless the environment names another one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping

__all__ = ["ensure"]

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def ensure(environ: MutableMapping[str, str] | None = None, running: str = sys.executable) -> None:
    """Set PYSPARK_PYTHON to the running Python if `python3` in PATH is another one.

    Otherwise Spark would start `python3`, which may not have the data source. Does nothing if PYSPARK_PYTHON or
    PYSPARK_DRIVER_PYTHON is set. A session that already exists keeps its Python.
    """
    surroundings = os.environ if environ is None else environ
    if any(surroundings.get(name) for name in VARIABLES) or not running:
        return
    if shutil.which("python3", path=surroundings.get("PATH", "")) != running:
        surroundings["PYSPARK_PYTHON"] = running
