"""Return of free memory to the system, once a broker's large requests and responses have ended.

malloc keeps the memory of a large response for the next one, because new pages take several times as long to fill. So a
broker that has sent responses of 8 MB keeps 8 MB until this task returns them. Only the process of `fencepost broker`
does it: the process of an embedded broker has other owners of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

__all__ = ["return_free_memory"]

_LOOK_S: Final = 1.0
_LARGE_BYTES: Final = 1 << 20
"""With as many bytes of requests and responses in a second, the memory is in use."""


async def return_free_memory(moved_bytes: Callable[[], int]) -> None:
    """Run until cancelled. After each time of large requests and responses, return the free memory once.

    Args:
        moved_bytes: Returns the number of bytes of requests and responses since the start.
    """
    before, was_large = moved_bytes(), False
    while True:
        await asyncio.sleep(_LOOK_S)
        after = moved_bytes()
        is_large = after - before > _LARGE_BYTES
        if was_large and not is_large:
            _trim()
        before, was_large = after, is_large


def _trim() -> None:
    """Return the free memory of the process to the system. Other C libraries than glibc have no such call."""
    import ctypes  # on first use, because many brokers never need it

    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
