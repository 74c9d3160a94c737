"""Python's garbage collector, kept from what is going to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held_off", "without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """What is made within, thousands of objects that all stay, is not worth being looked at again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def held_off() -> Iterator[None]:
    """While thousands of objects are made that somebody waits for: none of them can be garbage yet, and the collector
    would look at them all again for every few hundred more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
