"""Functions that numba compiles for one signature and caches on disk. Imports numba.

Without a cache each process compiles for seconds, and Spark starts Python workers all the time. Numba's own cache
folders are not writable for a user without a home whose packages are read-only. This module adds a folder for that
case.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import numba

from fencepost.protocol.records.engine import VARIABLE

__all__ = ["Kernel", "ensure_cache", "inlined", "kernel"]

_FOLDER_VARIABLE: Final = "NUMBA_CACHE_DIR"
_BESIDE: Final = Path(__file__).parent / "__pycache__"

_Function = Callable[..., Any]

_log = logging.getLogger("fencepost")
_told: Final[list[str]] = []

# Inputs are read-only: numba accepts writable arrays for a read-only parameter, but not the reverse.
_TYPES: Final = {
    "bytes": numba.types.Array(numba.uint8, 1, "C", readonly=True),
    "int32s": numba.types.Array(numba.int32, 1, "C", readonly=True),
    "int64s": numba.types.Array(numba.int64, 1, "C", readonly=True),
    "int64 table": numba.types.Array(numba.int64, 2, "C", readonly=True),
    "bytes out": numba.types.Array(numba.uint8, 1, "C"),
    "int32s out": numba.types.Array(numba.int32, 1, "C"),
    "int64s out": numba.types.Array(numba.int64, 1, "C"),
    "uint64s out": numba.types.Array(numba.uint64, 1, "C"),
    "int64": numba.int64,
}


class Kernel:
    """A function that is compiled for its one signature, or loaded from the cache, at its first call."""

    __slots__ = ("_compiled", "_function", "_signature")

    def __init__(self, function: _Function, signature: tuple[str, ...]) -> None:
        self._function = function
        self._signature = signature
        self._compiled: _Function | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.compile())(*arguments)

    def compile(self) -> _Function:
        """Compile the function, or load it from the cache. The first call does this."""
        signature = tuple(_TYPES[name] for name in self._signature)
        try:
            compiled: _Function = numba.njit(signature, cache=True, nogil=True)(self._function)
        except (RuntimeError, OSError, ImportError, EOFError, UnpicklingError) as error:
            # No folder is writable (RuntimeError), or the cached files are not usable. Compile without a cache.
            # If the error has another cause, it is raised again here.
            compiled = numba.njit(signature, nogil=True)(self._function)
            _tell_once(str(error))
        self._compiled = compiled
        return compiled


def _tell_once(why: str) -> None:
    if _told:
        return
    _told.append(why)
    _log.warning(
        "compiled code cannot be kept, so that every process spends seconds on compiling: %s; NUMBA_CACHE_DIR may name "
        "a folder that can be written, %s=0 does without compiled code",
        why,
        VARIABLE,
    )


def kernel(*signature: str) -> Callable[[_Function], Kernel]:
    """Declare a kernel with the given argument types, named as in `_TYPES`.

    Functions that it calls must be `inlined` functions of a module. Functions of an enclosing scope would change the
    cache key in every process.
    """
    return lambda function: Kernel(function, signature)


def inlined(function: _Function) -> _Function:
    compiled: _Function = numba.njit(nogil=True, forceinline=True)(function)
    return compiled


# ---- location of the cache


def ensure_cache(
    environ: MutableMapping[str, str] | None = None,
    usual: Sequence[Path] | None = None,
    temporary: Path | None = None,
) -> None:
    """Set NUMBA_CACHE_DIR to a folder of this user, unless it is set or one of numba's usual folders is writable."""
    surroundings = os.environ if environ is None else environ
    if surroundings.get(_FOLDER_VARIABLE):
        return
    places = (_BESIDE, _user_cache(surroundings)) if usual is None else usual
    if any(_can_be_written(place) for place in places):
        return
    folder = _private_folder(Path(tempfile.gettempdir()) if temporary is None else temporary)
    if folder is None:
        return
    surroundings[_FOLDER_VARIABLE] = str(folder)
    if environ is None:
        config: Any = numba.config  # numba read the environment when it was imported
        config.CACHE_DIR = str(folder)


def _private_folder(temporary: Path) -> Path | None:
    """Return a folder that only this user can write, or None. The code in the folder is executed."""
    if not hasattr(os, "getuid"):  # Windows: temporary folders belong to the user, and numba finds one there
        return None
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


ensure_cache()
