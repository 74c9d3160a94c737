"""Archives of loaded classes (AppCDS): a Kafka or a Spark driver needs about half the CPU time to be there with one.

An archive is made once for each Java and set of jars, by a run that does what the tests' JVMs do. It is kept in the
cache.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["archived"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost"


def archived(java: str, jars: Path, make: Callable[[str], None]) -> tuple[str, ...]:
    """The option of a JVM that takes its classes from the archive of `jars`. Where there is none, `make(option)` is
    called, which has to run a JVM with that option to its orderly end. When that fails, the reason goes to standard
    error and there is no option: the JVM only takes longer to start, so no test fails for want of an archive.
    """
    path = CACHE / f"classes-{_kind(java, jars)}.jsa"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come at once
            if not path.exists():
                lock.truncate(0)
                print(jars, file=lock, flush=True)
                _remove_what_nobody_needs()
                unfinished = path.with_suffix(".unfinished")
                try:
                    make(f"-XX:ArchiveClassesAtExit={unfinished}")
                    unfinished.replace(path)
                except (subprocess.SubprocessError, OSError) as error:
                    unfinished.unlink(missing_ok=True)
                    print(f"no archive of the classes of {jars}: {error}", file=sys.stderr)
                    return ()
    return (f"-XX:SharedArchiveFile={path}",)


def _remove_what_nobody_needs() -> None:
    """Of 160 MB each: what a maker that was killed has left, and archives of jars that are gone. A JVM takes classes
    only from an archive of the very files it has in its path, so that another clone has no use for them."""
    for path in CACHE.glob("classes-*.lock"):
        with path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it is being made
            path.with_suffix(".unfinished").unlink(missing_ok=True)
            jars = lock.read().strip()
            if jars and not Path(jars).is_dir():
                path.with_suffix(".jsa").unlink(missing_ok=True)


@functools.cache
def _kind(java: str, jars: Path) -> str:
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    names = sorted(f"{jar.name} {jar.stat().st_size}" for jar in jars.glob("*.jar"))
    return hashlib.sha256(version + "\n".join([str(jars), *names]).encode()).hexdigest()[:16]
