"""Which Python Spark starts for its workers: what runs this, unless somebody has said otherwise."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping

__all__ = ["ensure"]

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def ensure(environ: MutableMapping[str, str] | None = None, running: str = sys.executable) -> None:
    """Set PYSPARK_PYTHON where it is unset and `python3` in PATH is another Python than this.

    Spark would start that Python and not find the data source there. A session that is made already keeps what it has.
    """
    surroundings = os.environ if environ is None else environ
    if any(surroundings.get(name) for name in VARIABLES) or not running:
        return
    if shutil.which("python3", path=surroundings.get("PATH", "")) != running:
        surroundings["PYSPARK_PYTHON"] = running
