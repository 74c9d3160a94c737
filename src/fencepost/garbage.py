"""Python's garbage collector, kept from what is going to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """What is made within, thousands of objects that all stay, is not worth being looked at again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
