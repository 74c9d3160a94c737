"""Provides the programs of Debian packages to tests that need them: as root, one after the other."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

__all__ = ["Unavailable", "provided", "unpacked"]

Found = TypeVar("Found")
PATIENCE = "DPkg::Lock::Timeout=300"  # somebody else may be installing something


class Unavailable(Exception):
    """This machine has not got it, and cannot install it."""


def provided(packages: str, look: Callable[[], Found | None], lacking: str) -> Found:
    """Return the result of `look`. If it finds nothing, install the packages, separated by blanks, and look again.

    Raises Unavailable, with the failure of the installation or with `lacking` as a reason.
    """
    found = look()
    if found is None and (failure := _install(packages)) is not None:
        raise Unavailable(failure)
    found = found or look()
    if found is None:
        raise Unavailable(lacking)
    return found


def unpacked(package: str, program: str) -> Path:
    """Return a program of a package that is unpacked and not installed, so that its service does not start.

    Raises Unavailable.
    """
    folder = Path(tempfile.gettempdir()) / f"fencepost-tests-{package}"
    found = folder / program
    if not found.exists():
        _check_installable()
        with _alone(), tempfile.TemporaryDirectory(dir=folder.parent) as aside:
            if not found.exists():
                _update(package)
                _run(["apt-get", "download", package], package, aside)
                (archive,) = Path(aside).glob("*.deb")
                _run(["dpkg-deb", "--extract", str(archive), "unpacked"], package, aside)
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(Path(aside) / "unpacked", folder)
    return found


def _check_installable() -> None:
    """Raise Unavailable unless this is Debian and the user is root."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable("packages are installed as root on Debian only")


@contextmanager
def _alone() -> Iterator[None]:
    """Several test processes run at once, and apt-get's own locks make the second one fail."""
    with open(Path(tempfile.gettempdir()) / "fencepost-tests-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], package: str, folder: str | None = None) -> None:
    """Run a command of apt or dpkg. Raises Unavailable."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{package} cannot be fetched: {done.stderr[-500:]}")


def _update(package: str) -> None:
    with suppress(Unavailable):  # the lists of an earlier time may do
        _run(["apt-get", "-o", PATIENCE, "update"], package)


def _install(packages: str) -> str | None:
    """Install the packages if this is Debian and the user is root. Return the reason of a failure, or None."""
    try:
        _check_installable()
    except Unavailable:
        return None  # the caller names what is lacking
    try:
        with _alone():
            _update(packages)
            _run(["apt-get", "-o", PATIENCE, "install", "-y", "--no-install-recommends", *packages.split()], packages)
    except Unavailable as failure:
        return str(failure)
    return None
