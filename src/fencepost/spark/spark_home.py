"""A SPARK_HOME with which Spark's Python processes import compiled modules.

Spark puts `python/lib/pyspark.zip` of its home first on the path of every Python process that it starts. The zip has no
compiled modules, so each process compiles PySpark again. A query starts six or more processes before its first batch is
written. This module makes a home with links to the installed one, in which folders replace the zips of the same names.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final

from fencepost.spark.java import cache_folder

__all__ = ["compiled_home", "unpacked"]

_VARIABLE: Final = "SPARK_HOME"
_NOT_PYTHON: Final = ("bin", "conf", "data", "jars", "licenses", "sbin")


@contextlib.contextmanager
def unpacked(environ: MutableMapping[str, str] | None = None, folder: Path | None = None) -> Iterator[None]:
    """Set SPARK_HOME to such a home during the block, for a JVM that is started in it.

    Does nothing if SPARK_HOME is set, or if no home can be made. The variable is removed afterwards, so that another
    PySpark that this process starts finds its own home.
    """
    surroundings = os.environ if environ is None else environ
    home = None if surroundings.get(_VARIABLE) else compiled_home(folder)
    if home is None:
        yield
        return
    surroundings[_VARIABLE] = str(home)
    try:
        yield
    finally:
        surroundings.pop(_VARIABLE, None)


def compiled_home(folder: Path | None = None) -> Path | None:
    """Return the home for the installed PySpark, and make it below `folder` if it is missing.

    `folder` None: the user's cache. Returns None if PySpark has an unknown layout, or if the folder cannot be written.
    Spark then starts with its usual home.
    """
    sources = {name: _package(name) for name in ("pyspark", "py4j")}
    package = sources["pyspark"]
    if package is None or sources["py4j"] is None or not (package / "bin" / "spark-submit").is_file():
        return None
    zips = sorted((package / "python" / "lib").glob("*.zip"))
    packed = {path.name: sources.get(path.name.split("-")[0].removesuffix(".zip")) for path in zips}
    if not packed or None in packed.values():
        return None
    entries = sorted(path.name for path in package.iterdir() if path.is_dir() and path.name in _NOT_PYTHON)
    stands_for = [str(package), *(f"{name} {source}" for name, source in packed.items()), *entries]
    own_name = f"spark-home-{hashlib.sha256(chr(10).join(stands_for).encode()).hexdigest()[:12]}"
    try:
        target = (cache_folder(os.environ) if folder is None else folder) / own_name
        if not target.exists():
            _make(target, package, entries, {name: source for name, source in packed.items() if source is not None})
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory, as in many containers
        return None
    return target if target.exists() else None


def _make(target: Path, package: Path, entries: list[str], packed: dict[str, Path]) -> None:
    """Make the home, which has only links and folders. Keeps a home that another process has made in the meantime."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        for name in entries:
            (unfinished / name).symlink_to(package / name)
        for name, source in packed.items():
            instead = unfinished / "python" / "lib" / name
            instead.mkdir(parents=True)
            (instead / source.name).symlink_to(source)
        unfinished.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first; rename never replaces a folder with content
            unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
