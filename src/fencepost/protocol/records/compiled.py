"""Functions that numba compiles for one signature, and caches on disk where it finds a place. Imports numba."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, Final

import numba

from fencepost.protocol.records.engine import VARIABLE

__all__ = ["Kernel", "inlined", "kernel"]

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
