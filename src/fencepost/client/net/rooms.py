"""The memory that large answers are received into."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.records.engine import is_compiled

__all__ = ["room_for"]

_LEAST_BYTES: Final = 1024 * 1024


def room_for(size_bytes: int) -> memoryview | None:
    """Return untouched memory for a large response, or None.

    Pages are committed on first write, so a forged size costs no memory. None is returned for small sizes and without
    numpy, because the standard library fills all memory that it allocates. numpy reuses its pages; pages that are new
    to the process cost more than the copy of the data into them.
    """
    if size_bytes < _LEAST_BYTES or not is_compiled():
        return None
    import numpy as np

    return np.empty(size_bytes, np.uint8).data
