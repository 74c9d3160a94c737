"""Functions that numba compiles for one signature, and keeps on disk where there is a place. Imports numba.

Without a cache each process compiles for seconds, and Spark starts Python workers all the time. So there is one more
place than numba's own, for those without a home below packages that cannot be written.
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

# What is only read is declared read-only: numba passes both kinds of array there, but no read-only one for a writable.
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
    """A kernel that is compiled for its one signature (or loaded from the cache) when it is first called."""

    __slots__ = ("_compiled", "_function", "_signature")

    def __init__(self, function: _Function, signature: tuple[str, ...]) -> None:
        self._function = function
        self._signature = signature
        self._compiled: _Function | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.compile())(*arguments)

    def compile(self) -> _Function:
        """What a first call does before it calls."""
        signature = tuple(_TYPES[name] for name in self._signature)
        try:
            compiled: _Function = numba.njit(signature, cache=True, nogil=True)(self._function)
        except (RuntimeError, OSError, ImportError, EOFError, UnpicklingError) as error:
            # No directory can be written (RuntimeError), or what lies there is of no use. Without a cache everything
            # else about the kernel is the same: if that was not the reason, the same error comes up again.
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
    """Of a function of the given types, by their names above. Functions that it calls are `inlined` ones of a module:
    those of an enclosing function would make it another function to the cache in every process.
    """
    return lambda function: Kernel(function, signature)


def inlined(function: _Function) -> _Function:
    compiled: _Function = numba.njit(nogil=True, forceinline=True)(function)
    return compiled


# ---- where compiled code is kept


def ensure_cache(
    environ: MutableMapping[str, str] | None = None,
    usual: Sequence[Path] | None = None,
    temporary: Path | None = None,
) -> None:
    """Set NUMBA_CACHE_DIR to a folder of this user, unless it is set or numba's usual places can be written."""
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
        config: Any = numba.config  # it was read from the environment when numba was imported
        config.CACHE_DIR = str(folder)


def _private_folder(temporary: Path) -> Path | None:
    """A folder that is this user's alone, since what lies in it is run. None where somebody else may write."""
    if not hasattr(os, "getuid"):  # Windows: temporary folders are the user's own, and numba finds a place there
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
