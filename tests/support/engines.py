"""Tests under each of the two engines that work on many records (fencepost.protocol.records.engine)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from fencepost.protocol.records.engine import VARIABLE, is_compiled

__all__ = ["ENGINES", "engine"]

ENGINES: Final = ("compiled", "plain")


@contextmanager
def engine(name: str) -> Iterator[None]:
    """What runs inside uses this one. The compiled one has to be there: a test of it must not pass without it."""
    with mock.patch.dict(os.environ, {VARIABLE: "0" if name == "plain" else "1"}):
        is_compiled.cache_clear()
        try:
            assert is_compiled() == (name == "compiled"), "numba is not installed"
            yield
        finally:
            is_compiled.cache_clear()
