"""Control of Python's garbage collector while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held_off", "without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable collections in the block, then freeze all objects.

    For blocks that create thousands of permanent objects.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def held_off() -> Iterator[None]:
    """Disable collections in the block. For blocks that create thousands of objects that are in use.

    The collector would otherwise scan all of them again for every few hundred new ones.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
