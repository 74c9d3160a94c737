"""Memory for large responses."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.records import engine

__all__ = ["room_for"]

_LEAST_BYTES: Final = 1024 * 1024


def room_for(size_bytes: int) -> memoryview | None:
    """Return untouched memory for a large response; None for a small one, and without the native module.

    Pages are committed on first write, so a forged size costs no memory. The standard library fills all memory that it
    allocates. This memory reuses pages; pages that are new to the process cost more than the copy of the data into
    them.
    """
    if size_bytes < _LEAST_BYTES or not engine.is_native:
        return None
    return memoryview(engine.native.room(size_bytes))
