"""The memory that large answers are received into."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.records.engine import is_compiled

__all__ = ["room_for"]

_LEAST_BYTES: Final = 1024 * 1024


def room_for(size_bytes: int) -> memoryview | None:
    """Memory for a whole large answer that nobody has written to: the system gives a page when something comes for it,
    so that a size that lies takes none. None for small ones, and without numpy: the standard library fills all memory
    that it gives. Pages that are new to the process cost more than what is copied into them, and numpy's come back."""
    if size_bytes < _LEAST_BYTES or not is_compiled():
        return None
    import numpy as np

    return np.empty(size_bytes, np.uint8).data
