"""A place for compiled code where numba finds none: without a home, below packages that cannot be written.

Spark starts Python workers all the time; without a cache each compiles for seconds.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["ensure", "private_folder"]

VARIABLE: Final = "NUMBA_CACHE_DIR"
_PACKAGE: Final = Path(__file__).parents[1]


def ensure(
    environ: MutableMapping[str, str] | None = None,
    usual: Sequence[Path] | None = None,
    temporary: Path | None = None,
) -> None:
    """Set NUMBA_CACHE_DIR to a folder of this user, unless it is set or numba's usual places can be written."""
    surroundings = os.environ if environ is None else environ
    if surroundings.get(VARIABLE):
        return
    places = (_PACKAGE / "protocol" / "records" / "__pycache__", _user_cache(surroundings)) if usual is None else usual
    if any(_can_be_written(place) for place in places):
        return
    folder = private_folder(Path(tempfile.gettempdir()) if temporary is None else temporary)
    if folder is None:
        return
    surroundings[VARIABLE] = str(folder)
    if environ is None and "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)


def private_folder(temporary: Path) -> Path | None:
    """A folder that is this user's alone, since what lies in it is run. None where somebody else may write."""
    user = os.getuid()
    folder = temporary / f"fencepost-numba-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o022
    return folder if ours and _can_be_written(folder) else None


def _user_cache(environ: MutableMapping[str, str]) -> Path:
    root = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "numba"


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
