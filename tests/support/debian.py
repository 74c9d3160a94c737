"""Installs Debian packages for tests that need their programs: as root, one after the other."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["Unavailable", "provided"]

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


def _install(packages: str) -> str | None:
    """Install the packages if this is Debian and the user is root. Return the reason of a failure, or None."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    # Several test processes run at once, and apt-get's own locks make the second one fail.
    with open(Path(tempfile.gettempdir()) / "fencepost-tests-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (["update"], ["install", "-y", "--no-install-recommends", *packages.split()]):
            done = subprocess.run(
                ["apt-get", "-o", PATIENCE, *words],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                check=False,
            )
    return None if done.returncode == 0 else f"{packages} cannot be installed: {done.stderr[-500:]}"
