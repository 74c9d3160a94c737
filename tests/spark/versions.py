"""Older PySparks: each is installed once, by pip, into a folder of its own in the cache, to go first on the path."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost"


class NotOffered(Exception):
    """The package registry has no such release."""


def installed(minor: str) -> Path:
    """PySpark's newest release of that minor version ("4.2"), alone in a folder. Raises NotOffered."""
    folder = CACHE / f"pyspark-{minor}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"pyspark-{minor}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            command += ["--target", str(folder), f"pyspark=={minor}.*"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if "No matching distribution" in done.stderr:
                raise NotOffered(f"the package registry does not offer PySpark {minor}")
            if done.returncode != 0:
                raise RuntimeError(done.stderr[-3000:])
            (folder / ".complete").touch()
    return folder
